"""How intrinsics are written in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hidet.cpu.codegen.arithmetic import emit_fma
from hidet.cpu.codegen.spelling import register_type
from hidet.errors import CodegenError
from hidet.ir.intrinsic import Intrinsic

if TYPE_CHECKING:
    from hidet.cpu.codegen.lines import LineEmitter
    from hidet.ir.expr import Call

Spelling = Callable[["LineEmitter", Sequence[str], "Call"], str]
"""Of the emitter, the arguments as LLVM values, and the call: writes instructions, gives the LLVM value of the result,
"poison" where there is none."""


def spelling_of(row: Intrinsic) -> str | Spelling | None:
    """How an intrinsic is written: the name of an LLVM intrinsic with the same parameters and result, or a function
    that writes it; None for one that a CPU does not have.

    Families of other wheels name a table of LLVM's names as `spellings={"cpu": ...}`.
    """
    found: str | Spelling | None = SPELLINGS.get(row.name) or row.family.spelling("cpu", row.name)
    return found


def emit_intrinsic(emitter: LineEmitter, arguments: Sequence[str], node: Call) -> str:
    """The result of a call of an intrinsic. CodegenError for one that a CPU does not have."""
    assert node.intrinsic is not None
    spelling = spelling_of(node.intrinsic)
    if spelling is None:
        raise CodegenError(f"{node.callee} is an intrinsic of {node.intrinsic.family.name}, which a CPU does not have")
    if isinstance(spelling, str):
        types = [register_type(argument.type) for argument in node.arguments]
        return emitter.intrinsic(spelling, list(zip(types, arguments, strict=True)), register_type(node.type))
    return spelling(emitter, arguments, node)


def _prefetch(emitter: LineEmitter, arguments: Sequence[str], node: Call) -> str:
    """Into the second-level cache."""
    emitter.module.declare("llvm.prefetch.p0", "void", ("ptr", "i32", "i32", "i32"))
    emitter.line(f"call void @llvm.prefetch.p0(ptr {arguments[0]}, i32 0, i32 2, i32 1)")
    return "poison"


def _poll(emitter: LineEmitter, arguments: Sequence[str], node: Call) -> str:
    emitter.return_if_polled()
    return "poison"


SPELLINGS: dict[str, Spelling] = {
    "fma": lambda emitter, arguments, node: emit_fma(emitter, list(arguments), node.type),
    "prefetch": _prefetch,
    "poll": _poll,
}
