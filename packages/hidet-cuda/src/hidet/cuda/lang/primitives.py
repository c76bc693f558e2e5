"""Functions of scripts that stand for several statements of an NVIDIA GPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.errors import DTypeError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Load, Var
from hidet.ir.types import BufferType
from hidet.lang import operators
from hidet.lang.values import Primitive

if TYPE_CHECKING:
    from hidet.lang.translator import Translator


def _ldmatrix(
    translator: Translator,
    regs: Any,
    smem_addr: Any,
    shared_space_addr: bool = False,
    trans: bool = False,
) -> None:
    """1, 2 or 4 matrices of 8 x 8 elements of 2 bytes into as many elements of 4 bytes: `regs=[r[0], r[1]]`."""
    places = [load for load in regs if isinstance(load, Load) and load.dtype.bits == 32]
    if len(places) != len(regs) or len(regs) not in (1, 2, 4):
        raise DTypeError(
            "regs of ldmatrix are 1, 2 or 4 elements of 4 bytes", hint="regs = view(~r[0], u32[4]); [regs[0], ...]"
        )
    if shared_space_addr:
        raise DTypeError("ldmatrix takes a pointer into shared memory", hint="leave shared_space_addr out")
    words = Var("words", BufferType(dtypes.u32, (build.index(len(regs)),), None, "register"))
    translator.stmts.append(s.Declare(words))
    name = f"cuda.load_matrix_x{len(regs)}{'_transposed' if trans else ''}"
    address = operators.decayed(smem_addr)
    translator.stmts.append(s.Evaluate(intrinsic_call(name, words, operators.as_expr(address))))
    for number, place in enumerate(places):
        word = build.load(words, number)
        value = word if place.dtype is dtypes.u32 else Bitcast(word, place.type)
        translator.stmts.append(s.Store(place.buffer, place.indices, value))


ldmatrix = Primitive("ldmatrix", _ldmatrix)
