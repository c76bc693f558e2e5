"""Few long rows: parts of fixed length are reduced by one kernel, and combined in order by a second one.

Both exist once for every pass over the rows. Formulas that later passes need lie in scratch memory in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dims
from hidet.cpu.schedules.reduce_kernels import (
    Plan,
    Reducer,
    ReductionKernel,
    assemble,
    element_picoseconds,
    row_kernel,
)
from hidet.cpu.schedules.reduce_layout import ReductionMemory
from hidet.cpu.schedules.reduce_rows import Range, total_dtypes, whole
from hidet.cpu.schedules.reductions import Level, Reduction
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.visit import substitute
from hidet.schedule.rule import Program
from hidet.schedule.task import Task


def cut_program(task: Task, plan: Plan) -> Program:
    """The program that reduces parts of about `plan.item_elements` elements."""
    return _Cut(task, plan).program()


class _Cut:
    def __init__(self, task: Task, plan: Plan) -> None:
        self.task, self.plan = task, plan
        self.first, *self.rest = plan.layout.inner
        width = plan.tile if plan.column is not None else 1
        inside = dims.maximum(1, dims.product([loop.extent for loop in self.rest]) * width)
        self.step: Dim = dims.maximum(1, dims.floordiv(plan.item_elements, inside))
        self.parts: Dim = dims.ceildiv(self.first.extent, self.step)
        # What each pass leaves for later ones, by names in scratch memory.
        self.left = {
            f"value{n}_{m}": variable
            for n, level in enumerate(plan.program.levels[:-1])
            for m, variable in enumerate(_left_by(level))
        }

    def program(self) -> Program:
        rows = self.plan.layout.rows
        scratch: dict[str, tuple[DType, Dim]] = {name: (v.dtype, rows) for name, v in self.left.items()}
        kernels: list[ReductionKernel] = []
        for number, level in enumerate(self.plan.program.levels):
            names = self._part_names(number, level)
            scratch.update({name: (dtype, rows * self.parts) for name, dtype in names.items()})
            kernels += [self._reduce_parts(number, level, names), self._combine(number, level, names)]
        return assemble(self.task, kernels, scratch)

    @staticmethod
    def _part_names(number: int, level: Level) -> dict[str, DType]:
        return {
            f"part{number}_{n}_{m}": dtype
            for n, reduction in enumerate(level.reductions)
            for m, dtype in enumerate(total_dtypes(reduction))
        }

    def _memory(self, part_names: Mapping[str, DType]) -> ReductionMemory:
        left = {name: variable.dtype for name, variable in self.left.items()}
        return ReductionMemory(self.task, self.plan.program, self.plan.layout, {**left, **part_names})

    def _row(self, memory: ReductionMemory) -> Expr:
        """Number of the current row."""
        place: Expr = build.index(0)
        for loop in self.plan.layout.outer:
            place = place * memory.scope.size(loop.extent, "n") + loop.var
        return place

    def _known(self, memory: ReductionMemory, before: int) -> dict[Var, Expr]:
        """What the passes before number `before` left, as reads of scratch memory."""
        known = {variable for level in self.plan.program.levels[:before] for variable in _left_by(level)}
        row = self._row(memory)
        return {v: build.load(memory.scratch[name], row) for name, v in self.left.items() if v in known}

    def _reduce_parts(self, number: int, level: Level, names: Mapping[str, DType]) -> ReductionKernel:
        memory = self._memory(names)
        part = build.size_var("part")
        step = memory.scope.size(self.step, "step")
        start = part * step
        count = build.minimum(step, memory.scope.size(self.first.extent, "n") - start)
        ranges = [Range(self.first.var, start, count, self.step), *(whole(loop, memory) for loop in self.rest)]
        place = part * memory.scope.size(self.plan.layout.rows, "rows") + self._row(memory)

        def body(reducer: Reducer) -> None:
            values = [value for results in reducer.reduce(level.reductions, ranges) for value in results]
            here = substitute(place, reducer.bindings)
            with reducer.across():
                for (name, dtype), value in zip(names.items(), values, strict=True):
                    reducer.k.store(memory.scratch[name], here, build.cast(value, dtype))

        length = self.step * dims.product([loop.extent for loop in self.rest])
        time = element_picoseconds(self.plan.program)
        bindings = self._known(memory, number)
        grid = ((part, self.parts),)
        return row_kernel(f"reduce{number}", self.plan, memory, body, length, bindings, time, more_grid=grid)

    def _combine(self, number: int, level: Level, names: Mapping[str, DType]) -> ReductionKernel:
        memory = self._memory(names)
        part, row = build.size_var("part"), self._row(memory)
        rows = memory.scope.size(self.plan.layout.rows, "rows")
        reads = iter([build.load(memory.scratch[name], part * rows + row) for name in names])
        reductions_of_parts = [
            Reduction(reduction.combiner, tuple(next(reads) for _ in reduction.values), reduction.results)
            for reduction in level.reductions
        ]
        ranges = [Range(part, build.index(0), memory.scope.size(self.parts, "parts"), self.parts)]
        is_last = number == len(self.plan.program.levels) - 1

        def body(reducer: Reducer) -> None:
            reducer.bind(reductions_of_parts, reducer.reduce(reductions_of_parts, ranges))
            reducer.formulas(level.formulas)
            if is_last:
                reducer.outputs(self.plan.program.outputs)
                return
            names_here = {v: name for name, v in self.left.items()}
            here = substitute(row, reducer.bindings)
            with reducer.across():
                for variable in _left_by(level):
                    reducer.k.store(memory.scratch[names_here[variable]], here, reducer.bindings[variable])

        bindings = self._known(memory, number)
        length = dims.maximum(1, self.parts)
        return row_kernel(f"combine{number}", self.plan, memory, body, length, bindings, 1000)


def _left_by(level: Level) -> list[Var]:
    """The variables that a pass over the rows defines."""
    return [
        *(result for reduction in level.reductions for result in reduction.results),
        *(variable for variable, _ in level.formulas),
    ]
