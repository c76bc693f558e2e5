"""The softmax of attention, a block of keys at a time (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018), over scores that are logarithms to base 2 and whose lanes are queries.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from hidet.cpu.math.exponential import exp2_fraction
from hidet.cpu.math.format import DOUBLE, SINGLE, Format
from hidet.cpu.math.steps import as_bits, from_bits, like, shift_left
from hidet.cpu.schedules.attention_tile import TileShape
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Select, Var

# Rows handled together: the maximum of one row would wait for that of the row before.
ROWS_TOGETHER = 4


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxState:
    """Local arrays of one element a query.

    top: largest score so far. total: sum of the weights relative to it. decay: what older weights are worth after the
    last block.
    """

    top: Var
    total: Var
    decay: Var


def number_format(dtype: DType) -> Format:
    """The arithmetic for scores of `dtype`."""
    return SINGLE if dtype.bits == 32 else DOUBLE


def exp2_of_nonpositive(k: IRBuilder, x: Expr, form: Format) -> Expr:
    """2**x for x <= 0: error below 1 ulp, 0 where the result would be subnormal; NaN stays NaN.

    The magic number both rounds x to an integer and leaves the exponent field of the power in its low bits.
    """
    magic = form.magic + form.bias
    shifted = k.let("shifted", x + magic)
    fraction = k.let("fraction", x - (shifted - magic))
    power = from_bits(shift_left(as_bits(shifted, form.bits), form.mantissa), form.dtype)
    value = exp2_fraction(fraction, form) * power
    return k.let("weight", build.select(x < like(x, 1.0 - form.bias), like(x, 0.0), value))


def larger(a: Expr, b: Expr) -> Expr:
    """The larger of two; either of them when one is NaN. One instruction, unlike a maximum that has to find NaN."""
    return Select(a > b, a, b, a.type)


def update(k: IRBuilder, shape: TileShape, state: SoftmaxState, scores: Var, rows: Expr, vectors: Expr) -> None:
    """Turn `rows` rows of scores into weights relative to the new maximum, and bring the state up to date.

    `rows` is a multiple of ROWS_TOGETHER; scores of -inf get weight 0, also where all are -inf. A NaN score makes the
    query's weights NaN.
    """
    form, lanes = number_format(shape.dtype), shape.lanes
    with k.for_range("lane", vectors * lanes, step=lanes) as start:
        row = build.size_var("row")
        places = [(row + i) * shape.pitch + start for i in range(ROWS_TOGETHER)]
        old = k.let("old_top", build.load(state.top, start, lanes=lanes))
        tops = k.let_each("top", [old] * ROWS_TOGETHER)
        with k.loop(row, rows, step=ROWS_TOGETHER):
            for top, place in zip(tops, places, strict=True):
                k.assign(top, larger(top, build.load(scores, place, lanes=lanes)))
        top = k.let("new_top", functools.reduce(larger, list[Expr](tops)))
        shift = k.let("shift", build.select(build.equal(top, -math.inf), like(top, 0.0), top))
        decay = exp2_of_nonpositive(k, k.let("fall", old - shift), form)

        sums = k.let_each("sum", [like(top, 0.0)] * ROWS_TOGETHER)
        with k.loop(row, rows, step=ROWS_TOGETHER):
            for partial, place in zip(sums, places, strict=True):
                x = k.let("x", build.load(scores, place, lanes=lanes) - shift)
                weight = exp2_of_nonpositive(k, x, form)
                k.store(scores, place, weight)
                k.assign(partial, partial + weight)
        block = (sums[0] + sums[1]) + (sums[2] + sums[3])
        k.store(state.total, start, build.load(state.total, start, lanes=lanes) * decay + block)
        k.store(state.top, start, top)
        k.store(state.decay, start, decay)
