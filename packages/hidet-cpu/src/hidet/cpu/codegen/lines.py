"""Instructions of one LLVM function under construction: registers, blocks and what expressions are made of."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.cpu.codegen import spelling
from hidet.cpu.codegen.convert import convert
from hidet.cpu.codegen.spelling import register_type
from hidet.cpu.codegen.state import ModuleState
from hidet.ir.expr import Number
from hidet.ir.types import Type, lanes_of, with_lanes


class LineEmitter:
    """`lines` are the instructions so far; `flags` are those of floating-point arithmetic."""

    def __init__(self, module: ModuleState) -> None:
        self.module = module
        self.lines: list[str] = []
        self.current_block = "entry"
        self.flags = "contract "
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

    def failure_text(self) -> str:
        """The instruction that ends a function whose assertion failed."""
        self.module.declare("llvm.trap", "void", ())
        return "call void @llvm.trap()\n  unreachable"

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
