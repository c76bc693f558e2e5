"""Softmax, normalisations and reductions: rows that are read once, in one kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.context import CompileContext
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.cost_streams import row_seconds
from hidet.gpu.schedules.exchange import has_warps
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.row_kernel import launch_rows
from hidet.gpu.schedules.row_layout import RowLayout, Strides, resident_threads, row_layout
from hidet.gpu.schedules.row_split import has_parts, is_simple, parts_of, split_rows
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import If, Stmt
from hidet.schedule.cost import extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rows import Rework, RowProgram, Statistic, row_program
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task
from hidet.target import gpu_target

_LEAST_WINDOW = 32
"""Elements of a window from which several threads share it."""
_PARTS = (1, 4, 16, 64, 256)
_LIFT = 24.0
"""Added to exponents of two: the hardware's powers below 2**-126 are zero, those of f32 go down to 2**-149. The inverse
of the sum takes it away again."""
BY_ROWS = 0
"""Stands for as many threads a row as a call's number of rows leaves to each."""


def _softmax(held: Var, statistics: tuple[Statistic, ...], final: Expr) -> tuple[tuple[Statistic, ...], Expr]:
    """Exponentials are kept and multiplied by the inverse of their sum, which lies between 1 and the row's length."""
    top, total = statistics
    total = replace(total, finish=1.0 / total.total, stored=True)
    return (top, total), build.cast(held * total.variable, final.dtype)


def _narrow_softmax(held: Var, statistics: tuple[Statistic, ...], final: Expr) -> tuple[tuple[Statistic, ...], Expr]:
    """As `_softmax`, by the hardware's powers of two, whose error is far below the last digit of 16-bit results."""
    top, total = statistics
    power = (held - top.variable) * math.log2(math.e) + _LIFT
    return _softmax(held, (top, replace(total, value=intrinsic_call("gpu.exp2_approx", power))), final)


_REWORKS: Mapping[str, Rework] = {"softmax": _softmax}
"""Cheaper forms for rows that stay in registers."""
_NARROW_REWORKS: Mapping[str, Rework] = {"softmax": _narrow_softmax}
"""Those for rows of f32 whose results are all 16-bit floats."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Layouts of the same rows: in registers, and for rows that are read again for each statistic."""

    kept: RowLayout
    again: RowLayout
    strides: Strides


@dataclass(frozen=True, slots=True)
class RowShare:
    """How rows are dealt out: to `threads` each, or `BY_ROWS`, which read `lanes` neighbours at once.

    is_kept: whether a row stays in their registers; else it is read again for each statistic. parts: about how many
    parts a row is cut into, each a row for others; 1 for whole rows.
    """

    threads: int
    lanes: int
    is_kept: bool
    parts: int = 1


class RowRule(ScheduleRule[_Rows, RowShare]):
    """Schedules anchors that are statistics of rows, alone or followed by an element-wise stage."""

    def match(self, task: Task, ctx: CompileContext) -> Match[_Rows] | None:
        """None for other definitions, for small windows, and for results that lie irregularly."""
        plain, target = row_program(task), gpu_target(ctx.target)
        if plain is None or task.in_place or not has_warps(target):
            return None
        if task.op_name == "adaptive_avg_pool" and extent_estimate(plain.row_elements) < _LEAST_WINDOW:
            return None
        reworked = row_program(task, _rework(task, plain))
        strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
        kept, again = (
            None if program is None else row_layout(program, strides, target) for program in (reworked, plain)
        )
        if kept is None or again is None:
            return None
        return Match(task, _Rows(kept, again.rereading(), strides))

    def space(self, match: Match[_Rows], ctx: CompileContext) -> Space[RowShare]:
        """Threads a row, what they read at once and keep, and parts of long rows."""
        rows, default = match.data, self.default(match, ctx)
        lanes = [1 << n for n in range(rows.kept.lanes.bit_length())]
        most = max(rows.kept.most_threads, rows.kept.with_lanes(1).most_threads)
        several = (BY_ROWS,) if default.threads == BY_ROWS else ()
        whole = replace(default, parts=1)
        return Space(
            (
                Knob("threads", (*several, *(1 << n for n in range(most.bit_length()))), "threads that share a row"),
                Knob("lanes", tuple(lanes), "neighbours that a thread reads at once"),
                Knob("kept", (True, False), "whether the row stays in registers"),
                Knob("parts", tuple(sorted({*_PARTS, default.parts})), "parts of a row, each worked on as one"),
            ),
            RowShare,
            (
                Constraint("partial results of a block fit into it", lambda p: p.threads <= _most_threads(rows, p)),
                Constraint("threads have registers for the row", lambda p: not p.is_kept or _kept(rows, p).copies > 0),
                Constraint("rows have positions for the parts", lambda p: p.parts == 1 or _has_parts(rows, p.parts)),
                Constraint("threads by the number of rows are the default's", lambda p: p.threads > 0 or p == default),
                Constraint("parts of rows are dealt out on their own", lambda p: p.parts == 1 or _at(p, 1) == whole),
            ),
        )

    def default(self, match: Match[_Rows], ctx: CompileContext) -> RowShare:
        """As many threads as keep a row in registers, or as the device has to spare."""
        kept, again = match.data.kept, match.data.again
        if _are_dealt_by_rows(kept) and parts_of(kept) == 1:
            return RowShare(BY_ROWS, kept.lanes, True)
        threads = kept.threads if kept.copies else again.threads
        return RowShare(threads, kept.lanes, kept.copies > 0, parts_of(again if kept.copies == 0 else kept))

    def predict(self, match: Match[_Rows], params: RowShare, ctx: CompileContext) -> float | None:
        """By the model of `cost_streams`."""
        constants, rows = known_constants(ctx), match.data
        if constants is None:
            return None
        dealt = _dealt_out(rows, params)
        layout = dealt.kept if params.is_kept else dealt.again
        return row_seconds(match.task, layout, params.is_kept, params.parts, rows.kept.target, constants)

    def build(self, match: Match[_Rows], params: RowShare, ctx: CompileContext) -> Program:
        """One kernel for rows of a known length; several for few long ones."""
        rows = match.data
        builder = ProgramBuilder(match.task)
        memory: dict[Operand, Expr] = dict(builder.pointers)
        if params.threads == BY_ROWS:
            builder.run(_by_rows(builder, rows, memory))
            return builder.program()
        if params.parts == 1:
            builder.run(_aligned(builder, _dealt_out(rows, params), memory))
            return builder.program()
        split = split_rows(_cut_layout(rows), params.parts)
        strides = dict(rows.strides)
        for tensor in split.between:
            memory[tensor] = builder.scratch(tensor.name, tensor.dtype, dims.product(tensor.shape))
            strides[tensor] = contiguous_strides(tensor.shape)
        for step in split.steps:
            layout = row_layout(step.program, strides, rows.kept.target, step.is_there)
            assert layout is not None, "a part of a regular row is regular"
            builder.run(_aligned(builder, _Rows(layout, layout.rereading(), strides), memory))
        return builder.program()


def _rework(task: Task, plain: RowProgram) -> Rework | None:
    """The cheaper form of a task's rows, if there is one."""
    is_narrow = plain.dtype is dtypes.f32 and all(
        tensor.type.dtype in dtypes.FLOATS_OF_16_BITS for tensor in task.outputs
    )
    return (_NARROW_REWORKS if is_narrow else _REWORKS).get(task.op_name)


def _dealt_out(rows: _Rows, share: RowShare) -> _Rows:
    """Layouts of whole rows as chosen."""
    if share.is_kept:
        return replace(rows, kept=_kept(rows, share))
    again = replace(rows.again.with_lanes(share.lanes), threads=share.threads)
    return replace(rows, kept=replace(rows.kept.with_lanes(share.lanes), copies=0), again=again)


def _kept(rows: _Rows, share: RowShare) -> RowLayout:
    layout = rows.kept.with_lanes(share.lanes)
    return layout if share.threads == BY_ROWS else layout.shared_by(share.threads)


def _are_dealt_by_rows(kept: RowLayout) -> bool:
    """Whether rows of one length, of which each call tells the number, may be shared by fewer or more threads."""
    is_known = isinstance(kept.reads, int) and not isinstance(kept.items, int)
    return is_known and not kept.is_side_by_side and kept.copies > 0 and len(kept.shares()) > 1


def _most_threads(rows: _Rows, share: RowShare) -> int:
    return (rows.kept if share.is_kept else rows.again).with_lanes(share.lanes).most_threads


def _cut_layout(rows: _Rows) -> RowLayout:
    """Of rows that are cut into parts, none of which keeps what it has for another statistic."""
    return rows.kept if rows.kept.copies > 0 and is_simple(rows.kept.program) else rows.again


def _has_parts(rows: _Rows, count: int) -> bool:
    return has_parts(_cut_layout(rows), count)


def _at(share: RowShare, parts: int) -> RowShare:
    return replace(share, parts=parts)


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


def _by_rows(builder: ProgramBuilder, rows: _Rows, memory: Mapping[Operand, Expr]) -> Stmt:
    """By the number of rows: to as few threads as keep them in registers, or as many as make the device busy."""
    count, busy = builder.size(rows.kept.items), resident_threads(rows.kept.target)
    *fewer, most = rows.kept.shares()
    chosen: Stmt = launch_rows(builder, most, rows.strides, memory)
    for layout in reversed(fewer):
        is_busy = count * layout.threads >= busy
        chosen = If(is_busy, launch_rows(builder, layout, rows.strides, memory), chosen)
    return builder.by_alignment(
        [operand for operand in rows.kept.wide if operand in builder.pointers],
        chosen,
        lambda: launch_rows(builder, rows.kept.single(), rows.strides, memory),
    )


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
