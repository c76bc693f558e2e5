"""The softmax of attention, a block of keys at a time (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018), over scores that are logarithms to base 2 and whose lanes are queries.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hidet.cpu.math.exponential import exp2_fraction
from hidet.cpu.math.format import DOUBLE, SINGLE, Format
from hidet.cpu.math.steps import Steps, as_bits, from_bits, like, shift_left
from hidet.cpu.schedules.attention_tile import TileShape
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Select, Var
from hidet.ir.stmt import Assign, Declare, For, Stmt, Store

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


def exp2_of_nonpositive(s: Steps, x: Expr, form: Format) -> Expr:
    """2**x for x <= 0: error below 1 ulp, 0 where the result would be subnormal; NaN stays NaN.

    The magic number both rounds x to an integer and leaves the exponent field of the power in its low bits.
    """
    magic = form.magic + form.bias
    shifted = s.let("shifted", x + magic)
    fraction = s.let("fraction", x - (shifted - magic))
    power = from_bits(shift_left(as_bits(shifted, form.bits), form.mantissa), form.dtype)
    value = exp2_fraction(fraction, form) * power
    return s.let("weight", build.select(x < like(x, 1.0 - form.bias), like(x, 0.0), value))


def larger(a: Expr, b: Expr) -> Expr:
    """The larger of two; either of them when one is NaN. One instruction, unlike a maximum that has to find NaN."""
    return Select(a > b, a, b, a.type)


def update(shape: TileShape, state: SoftmaxState, scores: Var, rows: Expr, vectors: Expr) -> Stmt:
    """Turn `rows` rows of scores into weights relative to the new maximum, and bring the state up to date.

    `rows` is a multiple of ROWS_TOGETHER; scores of -inf get weight 0, also where all are -inf. A NaN score makes the
    query's weights NaN.
    """
    form = number_format(shape.dtype)
    lanes = shape.lanes
    start = build.size_var("lane")

    def place(row: Expr) -> Expr:
        return row * shape.pitch + start

    def score(row: Expr) -> Expr:
        return build.load(scores, place(row), lanes=lanes)

    infinite = build.broadcast(build.const(-float("inf"), shape.dtype), lanes)
    s = Steps()
    old = s.let("old_top", build.load(state.top, start, lanes=lanes))
    tops = [Var(f"top{i}", shape.vector) for i in range(ROWS_TOGETHER)]
    row = build.size_var("row")
    s.statements += [Declare(top, old) for top in tops]
    find = [Assign(top, larger(top, score(row + i))) for i, top in enumerate(tops)]
    s.statements.append(For(row, build.index(0), rows, build.seq(find), step=ROWS_TOGETHER))
    top = s.let("new_top", functools.reduce(larger, list[Expr](tops)))
    shift = s.let("shift", build.select(build.equal(top, infinite), like(top, 0.0), top))
    decay = exp2_of_nonpositive(s, s.let("fall", old - shift), form)

    sums = [Var(f"sum{i}", shape.vector) for i in range(ROWS_TOGETHER)]
    s.statements += [Declare(v, like(top, 0.0)) for v in sums]
    weigh = Steps()
    for i, partial in enumerate(sums):
        weight = exp2_of_nonpositive(weigh, weigh.let("x", score(row + i) - shift), form)
        weigh.statements += [Store(scores, (place(row + i),), weight), Assign(partial, partial + weight)]
    s.statements.append(For(row, build.index(0), rows, build.seq(weigh.statements), step=ROWS_TOGETHER))
    block = (sums[0] + sums[1]) + (sums[2] + sums[3])
    s.statements += [
        Store(state.total, (start,), build.load(state.total, start, lanes=lanes) * decay + block),
        Store(state.top, (start,), top),
        Store(state.decay, (start,), decay),
    ]
    return For(start, build.index(0), vectors * lanes, build.seq(s.statements), step=lanes)
