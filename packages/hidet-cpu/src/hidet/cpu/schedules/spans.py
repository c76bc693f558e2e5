"""Loops over neighbouring elements in SIMD vectors, the last of which may be cut short by a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hidet import dtypes
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.types import VectorType


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Neighbouring values of a loop variable: `lanes` of them from `start` on.

    mask: a bool vector that says which lanes count; None when all do.
    """

    var: Var
    start: Expr
    lanes: int = 1
    mask: Expr | None = None


Body = Callable[[IRBuilder, Span, int], bool]
"""Writes the elements of a span, with the number of the accumulator to use; False without a form in vectors."""


def sweep(k: IRBuilder, var: Var, start: Expr, extent: Expr, lanes: int, unroll: int, body: Body) -> None:
    """A loop over `extent` values of `var` from `start` on: `unroll` vectors at a time, then single masked ones.

    A body without a form in vectors runs element by element, as far as LLVM does not find one.
    """
    has_vectors = body(IRBuilder(), Span(var, var, lanes), 0)
    if not has_vectors:
        with k.loop(var, extent, start, kind="vectorize"):
            body(k, Span(var, var), 0)
        return
    step = unroll * lanes
    whole = build.binary("truncdiv", extent, build.index(step)) * step
    with k.loop(var, whole, start, step):
        for n in range(unroll):
            body(k, Span(var, var + n * lanes, lanes), n)
    with k.loop(var, extent - whole, start + whole, lanes):
        mask = k.let("mask", _first_lanes(start + extent - var, lanes))
        body(k, Span(var, var, lanes, mask), 0)


_MASK_WORDS = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32}


def vector_lanes(vector_bits: int, element_bits: int) -> int:
    """Lanes of the vectors to use: those of a register, and at least 8, which is the narrowest mask there is."""
    return max(8, vector_bits // element_bits)


def _first_lanes(count: Expr, lanes: int) -> Expr:
    """A mask of the first `count` > 0 lanes, or of all of them: bits of an integer, as AVX-512 has it."""
    bits = build.binary("shr", build.index(2**lanes - 1), lanes - build.minimum(count, lanes))
    return Bitcast(build.cast(bits, _MASK_WORDS[lanes]), VectorType(dtypes.boolean, lanes))
