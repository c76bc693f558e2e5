"""Softmax and log-softmax along any axis, with element-wise operators fused before and after them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hidet import dtypes
from hidet.cpu.math.coefficients import EXP, LN2
from hidet.cpu.math.exponential import LOG2_E
from hidet.cpu.math.format import SINGLE
from hidet.cpu.math.steps import as_bits, from_bits, polynomial, shift_left
from hidet.cpu.schedules.row_layout import RowLayout, row_layout
from hidet.cpu.schedules.row_loops import contiguous_rows
from hidet.cpu.schedules.rows import RowProgram, Statistic, row_program
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task
from hidet.target import Target

# Elements of one work item: a few microseconds of work.
ITEM_ELEMENTS = 16384
# Time of one element on a core with 512-bit vectors, mostly for its exponential.
PICOSECONDS = 200

_ARITHMETIC = (dtypes.f32, dtypes.f64)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    program: RowProgram
    layout: RowLayout


class SoftmaxRule:
    """Schedules softmax and log_softmax."""

    def match(self, task: Task, target: Target) -> Match | None:
        """Both operators on f64, f32, f16 and bf16 tensors of any strides."""
        if task.anchor is None or task.anchor.op.name not in _REWORKS:
            return None
        program = row_program(task, _REWORKS[task.anchor.op.name])
        if program is None or program.dtype not in _ARITHMETIC:
            return None
        layout = row_layout(task, program)
        return None if layout is None else Match(task, _Found(program, layout))

    def space(self, match: Match, target: Target) -> SearchSpace:
        """How many elements one work item computes."""
        return SearchSpace({"item_elements": (4096, 16384, 65536)})

    def default(self, match: Match, target: Target) -> Params:
        """A few microseconds a work item."""
        return {"item_elements": ITEM_ELEMENTS}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """One kernel."""
        found: _Found = match.data
        lanes = max(8, target.vector_bits // found.program.dtype.bits)
        return contiguous_rows(match.task, found.program, found.layout, params["item_elements"], lanes, PICOSECONDS)


def _softmax(held: Var, statistics: tuple[Statistic, ...], final: Expr) -> tuple[tuple[Statistic, ...], Expr]:
    """Exponentials are kept and multiplied by the inverse of their sum, which lies between 1 and the row's length."""
    top, total = statistics
    total = replace(_of_distances(held, top, total), finish=1.0 / total.total, stored=True)
    return (top, total), build.cast(held * total.variable, final.dtype)


def _log_softmax(held: Var, statistics: tuple[Statistic, ...], final: Expr) -> tuple[tuple[Statistic, ...], Expr]:
    """One logarithm a row."""
    top, total = statistics
    total = replace(_of_distances(held, top, total), finish=build.unary("log", total.total))
    return (top, total), build.cast(held - top.variable - total.variable, final.dtype)


def _of_distances(held: Var, top: Statistic, total: Statistic) -> Statistic:
    """The sum of exponentials of distances from the largest element."""
    return replace(total, value=held - top.variable, function=_exp_of_nonpositive)


def _exp_of_nonpositive(x: Expr) -> Expr:
    """e**x of x <= 0, NaN for NaN; error below 1.5 ulp. Three quarters of the operations of the general function.

    x = n ln(2) + r as in `hidet.cpu.math.exponential`, n in [-152, 0]. The rounding of n leaves the exponent field of
    2**(n + 25) in the low bits; what lies above it is shifted out. The polynomial gives e**r * 2**-25, and the product
    of both is rounded once, also to a subnormal number. For n = -152 the field is 0 and so is the factor: x86 takes
    more than a hundred cycles for a product that underflows, and masked elements of -inf would all be such.
    """
    if x.dtype is not dtypes.f32:
        return build.unary("exp", x)
    down = 2.0**-25
    high, low = LN2["single"]
    magic = SINGLE.magic + SINGLE.bias + 25
    inside = build.maximum(x, -105.3)
    shifted = inside * LOG2_E + magic
    whole = shifted - magic
    r = inside - whole * high - whole * low
    near = r * r * polynomial(r, [c * down for c in EXP["single"]]) + (r * down + down)
    return near * from_bits(shift_left(as_bits(shifted, dtypes.i32), SINGLE.mantissa), dtypes.f32)


_REWORKS = {"softmax": _softmax, "log_softmax": _log_softmax}
