"""Instructions of one LLVM function under construction: registers, blocks and what expressions are made of."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.cpu.codegen import spelling
from hidet.cpu.codegen.convert import convert
from hidet.cpu.codegen.failing import FAILURE, KERNEL_CELL, POLL_FUNCTION
from hidet.cpu.codegen.spelling import register_type
from hidet.cpu.codegen.state import ModuleState
from hidet.ir.expr import Number
from hidet.ir.types import Type, lanes_of, with_lanes


class LineEmitter:
    """`lines` are the instructions so far; `flags` are those of floating-point arithmetic.

    failed_text: the instruction that ends a function in which an assertion failed; None where it goes on to its end.
    """

    def __init__(self, module: ModuleState) -> None:
        self.module = module
        self.lines: list[str] = []
        self.current_block = "entry"
        self.flags = "contract "
        self.failed_text: str | None = "ret void"
        self._count = 0

    def fresh(self, hint: str = "t") -> str:
        """A new register name."""
        self._count += 1
        return f"%{hint}.{self._count}"

    def labels(self, *hints: str) -> list[str]:
        """New block labels."""
        self._count += 1
        return [f"{hint}.{self._count}" for hint in hints]

    def line(self, text: str) -> None:
        """Append one instruction."""
        self.lines.append(f"  {text}")

    def block(self, label: str) -> None:
        """Start a block."""
        self.lines.append(f"{label}:")
        self.current_block = label

    def jump(self, label: str) -> None:
        """Fall through to `label`."""
        self.line(f"br label %{label}")

    def leave_where_failed(self, kernel: str | None = None) -> None:
        """Return if an assertion of this call has failed, in `kernel` where that was launched just now."""
        if self.failed_text is None:
            return
        noted = self.instruction("load atomic ptr, ptr %failure monotonic, align 8", "noted")
        is_failed = self.instruction(f"icmp ne ptr {noted}, null")
        failed, passed = self.labels("failed", "passed")
        self.line(f"br i1 {is_failed}, label %{failed}, label %{passed}")
        self.block(failed)
        if kernel is not None:
            second = self.instruction(f"getelementptr ptr, ptr %failure, i64 {KERNEL_CELL}")
            self.line(f"store ptr {self.module.text(kernel)}, ptr {second}, align 8")
        self.line(self.failed_text)
        self.block(passed)

    def return_if_polled(self) -> None:
        """Return if a poll says that the call is to end."""
        assert self.failed_text is not None, "a function that runs to its end does not poll"
        is_stopped = self.instruction(f"call i1 @{POLL_FUNCTION}({FAILURE})", "polled")
        ended, going = self.labels("ended", "going")
        self.line(f"br i1 {is_stopped}, label %{ended}, label %{going}")
        self.block(ended)
        self.line(self.failed_text)
        self.block(going)

    def instruction(self, text: str, hint: str = "t") -> str:
        """Append `register = text` and return the register."""
        self._count += 1
        register = f"%{hint}.{self._count}"
        self.lines.append(f"  {register} = {text}")
        return register

    def intrinsic(self, name: str, arguments: Sequence[tuple[str, str]], result: str, flags: str = "") -> str:
        """Call an LLVM intrinsic or external function, declaring it."""
        self.module.declare(name, result, tuple(type_ for type_, _ in arguments))
        listed = ", ".join(f"{type_} {text}" for type_, text in arguments)
        return self.instruction(f"call {flags}{result} @{name}({listed})")

    def select(self, condition: str, a: str, b: str, type_: Type) -> str:
        """Register `a` where `condition`, a bool of as many lanes, else `b`."""
        llvm, test = register_type(type_), register_type(with_lanes(dtypes.boolean, lanes_of(type_)))
        return self.instruction(f"select {test} {condition}, {llvm} {a}, {llvm} {b}")

    def constant(self, value: Number, type_: Type) -> str:
        """A literal of a scalar or vector type."""
        return spelling.constant(value, type_)

    def convert(self, text: str, source: Type, target: Type) -> str:
        """Convert a register between scalar or vector types."""
        return convert(self, text, source, target)
