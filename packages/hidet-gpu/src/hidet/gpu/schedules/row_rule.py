"""Softmax, normalisations and reductions: rows that are read once, in one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.context import CompileContext
from hidet.gpu.schedules.exchange import has_warps
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.row_kernel import launch_rows
from hidet.gpu.schedules.row_layout import RowLayout, Strides, row_layout
from hidet.gpu.schedules.row_split import split_rows
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import If, Stmt
from hidet.schedule.cost import extent_estimate
from hidet.schedule.rows import Rework, Statistic, row_program
from hidet.schedule.rule import FixedRule, Match, Program
from hidet.schedule.task import Task
from hidet.target import gpu_target

_LEAST_WINDOW = 32
"""Elements of a window from which several threads share it."""


def _softmax(held: Var, statistics: tuple[Statistic, ...], final: Expr) -> tuple[tuple[Statistic, ...], Expr]:
    """Exponentials are kept and multiplied by the inverse of their sum, which lies between 1 and the row's length."""
    top, total = statistics
    total = replace(total, finish=1.0 / total.total, stored=True)
    return (top, total), build.cast(held * total.variable, final.dtype)


_REWORKS: Mapping[str, Rework] = {"softmax": _softmax}
"""Cheaper forms for rows that stay in registers."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Layouts of the same rows: in registers, and for rows that are read again for each statistic."""

    kept: RowLayout
    again: RowLayout
    strides: Strides


class RowRule(FixedRule[_Rows]):
    """Schedules anchors that are statistics of rows, alone or followed by an element-wise stage."""

    def match(self, task: Task, ctx: CompileContext) -> Match[_Rows] | None:
        """None for other definitions, for small windows, and for results that lie irregularly."""
        plain, target = row_program(task), gpu_target(ctx.target)
        if plain is None or task.in_place or not has_warps(target):
            return None
        if task.op_name == "adaptive_avg_pool" and extent_estimate(plain.row_elements) < _LEAST_WINDOW:
            return None
        reworked = row_program(task, _REWORKS.get(task.op_name))
        strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
        kept, again = (
            None if program is None else row_layout(program, strides, target) for program in (reworked, plain)
        )
        if kept is None or again is None:
            return None
        return Match(task, _Rows(kept, again.rereading(), strides))

    def build(self, match: Match[_Rows], params: None, ctx: CompileContext) -> Program:
        """One kernel for rows of a known length; several for few long ones."""
        rows = match.data
        builder = ProgramBuilder(match.task)
        memory: dict[Operand, Expr] = dict(builder.pointers)
        split = split_rows(rows.again if rows.kept.copies == 0 else rows.kept)
        if split is None:
            builder.run(_aligned(builder, rows, memory))
            return builder.program()
        strides = dict(rows.strides)
        for tensor in split.between:
            memory[tensor] = builder.scratch(tensor.name, tensor.dtype, dims.product(tensor.shape))
            strides[tensor] = contiguous_strides(tensor.shape)
        for step in split.steps:
            layout = row_layout(step.program, strides, rows.kept.target, step.is_there)
            assert layout is not None, "a part of a regular row is regular"
            builder.run(_aligned(builder, _Rows(layout, layout.rereading(), strides), memory))
        return builder.program()


def _aligned(builder: ProgramBuilder, rows: _Rows, memory: Mapping[Operand, Expr]) -> Stmt:
    """By addresses: all lanes at once, or element by element."""
    fast = _by_length(builder, rows, memory)
    # Memory of the program's own is aligned.
    given = [operand for operand in rows.kept.wide if operand in builder.pointers]
    if rows.kept.lanes == 1 or not given:
        return fast

    def slow() -> Stmt:
        single = _Rows(rows.kept.single(), rows.again.single().rereading(), rows.strides)
        return _by_length(builder, single, memory)

    return builder.by_alignment(given, fast, slow)


def _by_length(builder: ProgramBuilder, rows: _Rows, memory: Mapping[Operand, Expr]) -> Stmt:
    """By the length of rows: from registers, or from memory again."""
    kept, again = rows.kept, rows.again
    if kept.copies == 0:
        return launch_rows(builder, again, rows.strides, memory)
    fast = launch_rows(builder, kept, rows.strides, memory)
    if isinstance(kept.places, int):
        return fast
    fits = builder.size(kept.places) <= kept.most
    return If(fits, fast, launch_rows(builder, again, rows.strides, memory))
