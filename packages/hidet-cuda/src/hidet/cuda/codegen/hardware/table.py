"""Spelling a call of an intrinsic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.cuda.codegen.hardware.assembly import assembly_piece, function_name
from hidet.cuda.codegen.hardware.builtin import BUILTINS
from hidet.cuda.codegen.hardware.ptx import assembly_of
from hidet.cuda.codegen.text import Text, call
from hidet.errors import CodegenError
from hidet.ir.expr import Const
from hidet.ir.intrinsics.signature import Immediate, Intrinsic

if TYPE_CHECKING:
    from hidet.cuda.codegen.expression import ExpressionEmitter
    from hidet.ir.expr import Expr
    from hidet.ir.types import Type


def spell_intrinsic(emitter: ExpressionEmitter, row: Intrinsic, arguments: list[Expr], type_: Type) -> Text:
    """A call of `row`. CodegenError when the target has no spelling for it."""
    spelled = BUILTINS.get(row.name.removeprefix("cuda."))
    if spelled is not None:
        return spelled(emitter, arguments, [emitter.value(a) for a in arguments], type_)
    assembly = assembly_of(row)
    if assembly is None:
        raise CodegenError(f"intrinsic {row.name} has no CUDA spelling")
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


def is_spelled(row: Intrinsic) -> bool:
    """Whether the target has a spelling for an intrinsic."""
    return row.name.removeprefix("cuda.") in BUILTINS or assembly_of(row) is not None
