"""What a module collects while its functions are emitted: declarations, used kernels, metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hidet.cpu.codegen.failing import FAILURE, checked_name, failing_functions, has_asserted_values, polls_signals
from hidet.cpu.codegen.spelling import register_type
from hidet.ir.expr import Call
from hidet.ir.types import Type

if TYPE_CHECKING:
    from hidet.cpu.arch import CpuArch
    from hidet.cpu.codegen.lines import LineEmitter
    from hidet.ir.func import Function


class ModuleState:
    """Mutable tables of one LLVM module under construction."""

    def __init__(self, arch: CpuArch, functions: Mapping[str, Function]) -> None:
        self.arch = arch
        self.functions = functions
        self.failing = failing_functions(tuple(functions.values()))
        self.has_asserted_values = bool(self.failing) and has_asserted_values(tuple(functions.values()))
        self.declarations: dict[str, str] = {}
        self.polls_signals = bool(self.failing) and polls_signals(tuple(functions.values()))
        self._texts: dict[str, str] = {}
        self._metadata: list[str] = []

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> None:
        """Declare an external function once."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"

    def text(self, value: str) -> str:
        """A constant of the characters of `value` in UTF-8 and a zero; the same one for equal texts."""
        data = value.encode() + b"\0"
        known = self._texts.setdefault(value, f"@text.{len(self._texts)}")
        escaped = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in data)
        self.declarations[known] = f'{known} = private unnamed_addr constant [{len(data)} x i8] c"{escaped}"'
        return known

    def use_kernel(self, name: str) -> None:
        """A kernel is launched: declare it unless this module defines it."""
        if name not in self.functions:
            self.declare(name, "void", ("ptr", "i64", "i64"))

    def is_pure(self, call: Call) -> bool:
        """Whether a call only computes: a pure intrinsic, or a function of this module that says so."""
        if call.intrinsic is not None:
            return call.intrinsic.effect == "pure"
        function = self.functions.get(call.callee)
        return function is not None and ("pure", True) in function.attributes

    def is_inline(self, call: Call) -> bool:
        """Whether a call becomes instructions and leaves no loop: an intrinsic that does not wait, or a function that
        is always inlined and has no loops."""
        if call.intrinsic is not None:
            return call.intrinsic.effect != "waits"
        function = self.functions.get(call.callee)
        if call.callee in self.failing:
            return False
        return function is not None and ("inline", True) in function.attributes

    def metadata(self, text: str) -> str:
        """Add a metadata node and return its reference."""
        self._metadata.append(text)
        return f"!{len(self._metadata) - 1}"

    def vector_loop(self, group: str, insist: bool) -> str:
        """Loop metadata: iterations do not depend on each other through memory in access group `group`.

        insist: SIMD is used whatever LLVM's cost model says. It warns on stderr where that proves impossible.
        """
        parts = [self.metadata(f'!{{!"llvm.loop.parallel_accesses", {group}}}')]
        if insist:
            parts.append(self.metadata('!{!"llvm.loop.vectorize.enable", i1 true}'))
        number = len(self._metadata)
        return self.metadata(f"distinct !{{!{number}, {', '.join(parts)}}}")

    def scalar_loop(self) -> str:
        """Loop metadata: no SIMD. To spare code, LLVM would mask the last vector and gather and scatter the others,
        whereas loops outside of the arithmetic count to three, as a rule."""
        enable = self.metadata('!{!"llvm.loop.vectorize.enable", i1 false}')
        number = len(self._metadata)
        return self.metadata(f"distinct !{{!{number}, {enable}}}")

    def call(self, emitter: LineEmitter, callee: str, arguments: Sequence[tuple[str, str]], result: Type | None) -> str:
        """Call a function of this module, or an external one; the text of a call that gives no value is unused."""
        llvm = "void" if result is None else register_type(result)
        target = self.functions.get(callee)
        if target is not None and target.kind == "host":
            arguments = [("ptr", "%pool"), *arguments]
        elif target is None:
            self.declare(callee, llvm, [type_ for type_, _ in arguments])
        listed = [f"{type_} {text}" for type_, text in arguments]
        called = callee
        if callee in self.failing:
            listed.append(FAILURE)
            called = checked_name(callee)
        value = "poison"
        if result is None:
            emitter.line(f"call void @{called}({', '.join(listed)})")
        else:
            value = emitter.instruction(f"call {llvm} @{called}({', '.join(listed)})")
        if callee in self.failing:
            emitter.leave_where_failed()
        return value

    def tail(self) -> str:
        """Declarations and metadata, to follow the functions."""
        numbered = [f"!{number} = {text}" for number, text in enumerate(self._metadata)]
        return "\n".join([*self.declarations.values(), *numbered])
