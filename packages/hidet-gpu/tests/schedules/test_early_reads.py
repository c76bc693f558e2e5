"""Which reads of a kernel's end stand before its loop, and in which order."""

from __future__ import annotations

from hidet import dtypes
from hidet.gpu.schedules.early_reads import read_early
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Load, Var
from hidet.ir.printer import print_stmt
from hidet.ir.types import PointerType
from hidet.ir.visit import walk

BIAS, OTHER, CHOICE = (Var(name, PointerType(dtypes.f32)) for name in ("bias", "other", "choice"))
TOTAL, IS_THERE = Var("total", dtypes.f32), Var("is_there", dtypes.boolean)
COLUMN = build.size_var("column")


def read(value: Expr) -> tuple[str, list[Load]]:
    """What is read early, and what `value` reads afterwards."""
    k = IRBuilder()
    (rest,) = read_early(k, [value], [TOTAL], IS_THERE, [BIAS])
    return print_stmt(k.body), [node for node in walk(rest) if isinstance(node, Load)]


def test_weights_are_read_first_each_once_and_only_where_there_is_a_result() -> None:
    bias, other = build.load(BIAS, COLUMN), build.load(OTHER, COLUMN)
    early, late = read(other + (TOTAL + bias) * bias)
    assert early.index("= bias[column]") < early.index("= other[column]")
    assert early.count("if is_there") == 2 and early.count("bias[column]") == 1
    assert late == []


def test_reads_under_a_condition_or_at_places_that_are_read_stay() -> None:
    guarded = build.select(build.load(CHOICE, COLUMN) > 0.0, build.load(OTHER, COLUMN), build.const(0.0, dtypes.f32))
    early, late = read(TOTAL + guarded)
    assert "choice[column]" in early and "other" not in early
    assert [load.buffer for load in late] == [OTHER]
    place = build.cast(build.load(OTHER, COLUMN), dtypes.i64)
    early, late = read(TOTAL + build.load(BIAS, place))
    assert early.strip() in ("", "pass") and len(late) == 2


def test_reads_at_places_that_the_total_tells_stay() -> None:
    early, late = read(build.load(BIAS, build.cast(TOTAL, dtypes.i64)))
    assert early.strip() in ("", "pass") and len(late) == 1


def test_weights_of_all_values_are_read_before_anything_else() -> None:
    k, other_total = IRBuilder(), Var("other_total", dtypes.f32)
    totals = [TOTAL, other_total]
    values = [total + build.load(OTHER, COLUMN + n) + build.load(BIAS, COLUMN + n) for n, total in enumerate(totals)]
    read_early(k, values, totals, IS_THERE, [BIAS])
    text = print_stmt(k.body)
    assert text.rindex("= bias[") < text.index("= other[") and text.count("if is_there") == 4
