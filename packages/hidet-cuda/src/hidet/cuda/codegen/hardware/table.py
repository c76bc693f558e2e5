"""Spelling a call of an intrinsic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.cuda.codegen.hardware.assembly import Assembly, assembly_piece, function_name
from hidet.cuda.codegen.hardware.builtin import BUILTINS, Spell
from hidet.cuda.codegen.hardware.ptx import assembly_of
from hidet.cuda.intrinsics import PLAIN
from hidet.errors import CodegenError
from hidet.gpu.codegen.text import Text, call
from hidet.ir.expr import Const
from hidet.ir.intrinsic import Immediate, Intrinsic

if TYPE_CHECKING:
    from hidet.gpu.codegen.expression import ExpressionEmitter
    from hidet.ir.expr import Expr
    from hidet.ir.types import Type


def spell_intrinsic(emitter: ExpressionEmitter, row: Intrinsic, arguments: list[Expr], type_: Type) -> Text:
    """A call of `row`. CodegenError when the target has no spelling for it."""
    assembly = spelling_of(row)
    if assembly is None:
        raise CodegenError(f"intrinsic {row.name} of {row.family.name} has no CUDA spelling")
    if isinstance(assembly, str):
        return Text(f"({assembly.format(*[emitter.value(a).text for a in arguments])})")
    if not isinstance(assembly, Assembly):
        return assembly(emitter, arguments, [emitter.value(a) for a in arguments], type_)
    name = function_name(row)
    emitter.prelude.add(assembly_piece(row, name, assembly))
    values: list[Text] = []
    immediates: list[str] = []
    for parameter, argument in zip(row.parameters, arguments, strict=True):
        if isinstance(parameter, Immediate):
            assert isinstance(argument, Const)
            immediates.append(str(argument.value))
        else:
            values.append(emitter.value(argument))
    head = f"{name}<{', '.join(immediates)}>" if immediates else name
    return call(head, *values)


def spelling_of(row: Intrinsic) -> str | Spell | Assembly | None:
    """How a call is written: a CUDA C++ expression with `{0}`, `{1}`, … for the arguments, a function that writes one,
    or PTX. None for what the target does not have.

    Families of other wheels name a table of such expressions as `spellings={"cuda": ...}`.
    """
    plain = row.name.partition(".")[2]
    own = (BUILTINS.get(plain) if PLAIN.get(plain) is row else None) or assembly_of(row)
    given: str | Spell | Assembly | None = own or row.family.spelling("cuda", row.name)
    return given
