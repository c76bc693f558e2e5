"""Scans (cumulative sums, products, extremes) along any axis.

Where the axis is contiguous, several rows are reduced at the same time, because each step of one row waits for the one
before it; elsewhere SIMD goes across rows. Sums and products of floats run in f64, as torch's do, and are rounded where
they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.context import CompileContext
from hidet.cpu.schedules.cost_items import task_bytes
from hidet.cpu.schedules.cost_scan import ScanExtents, scan_seconds
from hidet.cpu.schedules.reduce_columns import ColumnReducer
from hidet.cpu.schedules.reduce_kernels import Plan, Reducer, ReductionKernel, assemble, kernel_of, row_kernel
from hidet.cpu.schedules.reduce_layout import ReductionMemory, reduction_layout
from hidet.cpu.schedules.reduce_rows import total_dtypes, whole
from hidet.cpu.schedules.reductions import Level, Reduction, ReductionOutput, ReductionProgram
from hidet.cpu.target import cpu_target
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.visit import substitute
from hidet.schedule.cost import extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.scans import ScanProgram, scan_program
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task
from hidet.target.constants import DeviceConstants

PICOSECONDS = 500
_TOGETHER = (1, 2, 4, 8)
_CLEARLY = 1.06
"""How much faster something unusual has to be: every further kernel is more code to compile."""


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    plan: Plan
    scan: ScanProgram


@dataclass(frozen=True, slots=True)
class ScanParams:
    """together: rows whose steps are interleaved, or vectors of rows where these lie side by side."""

    item_elements: int = 8192
    together: int = 4


class ScanRule(ScheduleRule[_Found, ScanParams]):
    """Schedules scans and what is element-wise after them."""

    def match(self, task: Task, ctx: CompileContext) -> Match[_Found] | None:
        """Any element type, any strides, any direction."""
        scan = scan_program(task)
        if scan is None:
            return None
        program = _reduction_program(scan)
        layout = reduction_layout(task, program)
        if layout is None:
            return None
        column = None
        if not any(loop.stride == 1 for loop in layout.inner):
            column = next((loop for loop in layout.outer if loop.stride == 1), None)
        lanes = max(1, ctx.target.vector_bits // 32)
        default = ScanParams()
        plan = Plan(program, layout, column, default.together * lanes, lanes, default.item_elements)
        return Match(task, _Found(plan, scan))

    def space(self, match: Match[_Found], ctx: CompileContext) -> Space[ScanParams]:
        """Elements of a work item, and rows that are scanned together."""
        return Space(
            (
                Knob("item_elements", (2048, 8192, 32768), "elements that a work item scans"),
                # An addition takes four cycles, and one can begin in each.
                Knob("together", _TOGETHER, "rows, or vectors of rows, whose steps are interleaved"),
            ),
            ScanParams,
        )

    def default(self, match: Match[_Found], ctx: CompileContext) -> ScanParams:
        """Some microseconds a work item; additions that do not wait for each other, as many as the cost model expects
        to be clearly faster than four."""
        constants = cpu_target(ctx).published_constants()
        chosen = ScanParams()
        least = _seconds(match, chosen, constants, 1) / _CLEARLY
        for together in _TOGETHER:
            params = replace(chosen, together=together)
            expected = _seconds(match, params, constants, 1)
            if expected < least:
                chosen, least = params, expected
        return chosen

    def predict(self, match: Match[_Found], params: ScanParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_scan`."""
        constants = known_constants(ctx)
        assert constants is not None
        return _seconds(match, params, constants, ctx.options.threads or constants.cores)

    def build(self, match: Match[_Found], params: ScanParams, ctx: CompileContext) -> Program:
        """One kernel."""
        found, tile = match.data, params.together * match.data.plan.lanes
        found = replace(found, plan=replace(found.plan, tile=tile, item_elements=params.item_elements))
        kernel = _Kernel(match.task, found.plan, found.scan, params.together)
        return assemble(match.task, [kernel.columns() if found.plan.column is not None else kernel.rows()])


def _seconds(match: Match[_Found], params: ScanParams, constants: DeviceConstants, threads: int) -> float:
    plan = match.data.plan
    extents = ScanExtents(
        rows=max(1, extent_estimate(plan.layout.rows)),
        length=max(1, extent_estimate(plan.layout.row_elements)),
        nbytes=task_bytes(match.task),
        lanes=0 if plan.column is None else plan.lanes,
    )
    return scan_seconds(extents, params.item_elements, params.together, constants, threads)


def _reduction_program(scan: ScanProgram) -> ReductionProgram:
    """The scan as a reduction with a result an element."""
    return ReductionProgram(
        outer=scan.outer,
        outer_extents=scan.outer_extents,
        inner=(scan.along,),
        inner_extents=(scan.length,),
        levels=(Level((Reduction(scan.combiner, scan.values, scan.running),), ()),),
        outputs=tuple(ReductionOutput(o.result, o.strides, scan.axes, o.value) for o in scan.outputs),
    )


class _Kernel:
    def __init__(self, task: Task, plan: Plan, scan: ScanProgram, together: int) -> None:
        self.plan, self.scan, self.together = plan, scan, together
        self.reduction: Reduction = plan.program.levels[0].reductions[0]
        self.memory = ReductionMemory(task, plan.program, plan.layout)
        self.axis = plan.program.inner[0]
        self.step = build.size_var("step")
        extent = whole(plan.layout.inner[0], self.memory).count if plan.layout.inner else build.index(1)
        self.extent = extent
        self.place = extent - 1 - self.step if scan.reverse else self.step

    def columns(self) -> ReductionKernel:
        """SIMD across rows, with the running values of a tile of rows in arrays."""

        def body(reducer: Reducer) -> None:
            assert isinstance(reducer, ColumnReducer)
            k, types = reducer.k, total_dtypes(self.reduction)
            arrays = [reducer.array("running", dtype) for dtype in types]
            with reducer.across():
                k.store_each(arrays, reducer.lane, self.reduction.combiner.identity(types))
            with k.loop(self.step, self.extent), reducer.across():
                running = [build.load(array, reducer.lane) for array in arrays]
                k.store_each(arrays, reducer.lane, self._advance(k, reducer.bindings, running))

        return row_kernel("kernel0", self.plan, self.memory, body, self._length(), {}, PICOSECONDS)

    def rows(self) -> ReductionKernel:
        """Along rows, some at the same time."""
        outer = self.plan.layout.outer
        k, item = IRBuilder(), build.size_var("item")
        if not outer:
            self._together(k, [{}])
            return kernel_of("kernel0", self.memory, k.body, ((item, 1),), self._length() * PICOSECONDS)
        *others, last = outer
        rows = dims.maximum(1, dims.floordiv(self.plan.item_elements, self._length()))
        rows, together = dims.ceildiv(rows, self.together) * self.together, self.together
        block = dims.minimum(rows, dims.maximum(1, last.extent))
        step = self.memory.scope.size(block, "block")
        start = item * step
        count = build.minimum(step, self.memory.scope.size(last.extent, "rows") - start)
        with k.for_range("group", count, step=together) as group:
            with k.if_(count - group >= together):
                self._together(k, [{last.var: start + group + n} for n in range(together)])
            with k.else_(), k.for_range("one", count - group) as one:
                self._together(k, [{last.var: start + group + one}])
        grid = (*((loop.var, loop.extent) for loop in others), (item, dims.ceildiv(last.extent, block)))
        return kernel_of("kernel0", self.memory, k.body, grid, block * self._length() * PICOSECONDS)

    def _length(self) -> Dim:
        return dims.maximum(1, self.plan.layout.row_elements)

    def _together(self, k: IRBuilder, rows: Sequence[Mapping[Var, Expr]]) -> None:
        """Rows given by what their outer variables are, step by step."""
        starts = self.reduction.combiner.identity(total_dtypes(self.reduction))
        running = [[k.let("running", start) for start in starts] for _ in rows]
        with k.loop(self.step, self.extent):
            updated = [self._advance(k, bindings, own) for bindings, own in zip(rows, running, strict=True)]
            for own, values in zip(running, updated, strict=True):
                k.assign_each(own, values)

    def _advance(self, k: IRBuilder, bindings: Mapping[Var, Expr], running: Sequence[Expr]) -> list[Var]:
        """One step of one row: writes its results, and gives the running values after it."""
        here: dict[Var, Expr] = {**bindings, self.axis: self.place}
        values = [
            build.cast(self._read(value, here), old.dtype)
            for value, old in zip(self.reduction.values, running, strict=True)
        ]
        fresh = [k.let("value", value) for value in values]
        left, right = (fresh, running) if self.scan.reverse else (running, fresh)
        updated = [k.let("next", value) for value in self.reduction.combiner.combine(left, right)]
        results = running if self.scan.exclusive else updated
        for variable, result in zip(self.reduction.results, results, strict=True):
            here[variable] = build.cast(result, variable.dtype)
        for output in self.plan.program.outputs:
            pointer, place = self.memory.target(output)
            k.store(pointer, substitute(place, here), self._read(output.value, here))
        return updated

    def _read(self, value: Expr, here: Mapping[Var, Expr]) -> Expr:
        return substitute(self.memory.read(value), here)
