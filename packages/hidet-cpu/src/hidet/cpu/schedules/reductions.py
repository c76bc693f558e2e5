"""What reductions have in common: reductions of rows, formulas of their results, and further reductions that use those.

A row is the set of elements that one result is reduced from. `reduction_program` reads an anchor's definition, with
what is fused around it, as expressions over `outer` variables (which row) and `inner` ones (which element of it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet.compute.definition import Combiner, Compute, Operand
from hidet.dims import Dim, prove_equal
from hidet.dtypes import DType
from hidet.ir.expr import Access, Const, Expr, Reduce, Var
from hidet.ir.node import IRNode
from hidet.ir.structural import structural_hash
from hidet.ir.visit import refold, rewrite, substitute, walk
from hidet.schedule.affine import as_dims
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """One reduction of every row. values: what is reduced. results: variables that stand for the reduced values later
    on."""

    combiner: Combiner
    values: tuple[Expr, ...]
    results: tuple[Var, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Element types of the reduced values."""
        return tuple(value.dtype for value in self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Reductions that are computed in one pass over a row, and then formulas: (variable, value) pairs in order."""

    reductions: tuple[Reduction, ...]
    formulas: tuple[tuple[Var, Expr], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReductionOutput:
    """A tensor to write: `value`, of formula variables, at `indices` in outer variables."""

    result: Operand
    strides: tuple[Dim, ...]
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ReductionProgram:
    """Everything a task with a reduction computes, over accesses to the task's inputs."""

    outer: tuple[Var, ...]
    outer_extents: tuple[Dim, ...]
    inner: tuple[Var, ...]
    inner_extents: tuple[Dim, ...]
    levels: tuple[Level, ...]
    outputs: tuple[ReductionOutput, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Every expression that may access tensors or use loop variables."""
        reduced = (value for level in self.levels for reduction in level.reductions for value in reduction.values)
        formulas = (value for level in self.levels for _, value in level.formulas)
        return (*reduced, *formulas, *(output.value for output in self.outputs))


def reduction_program(task: Task) -> ReductionProgram | None:
    """The program of a task whose anchor reduces rows; None when its stages differ in their rows or nest reductions."""
    stages = task.definition.stages
    if not stages or not all(isinstance(stage, Compute) for stage in stages):
        return None
    return _Reader(task, [stage for stage in stages if isinstance(stage, Compute)]).program()


class _Reader:
    def __init__(self, task: Task, stages: Sequence[Compute]) -> None:
        self.task, self.stages = task, stages
        self.outer = stages[0].axes
        self.inner: tuple[Var, ...] = ()
        self.extents: tuple[Dim, ...] = ()
        self.inputs = task.sources
        self.formula_of: dict[Operand, Var] = {}
        self.depth: dict[Var, int] = {}
        self.known: dict[str, Reduction] = {}
        self.reductions: list[list[Reduction]] = []
        self.formulas: list[list[tuple[Var, Expr]]] = []

    def program(self) -> ReductionProgram | None:
        shape = self.stages[0].result.shape
        for stage in self.stages:
            same = len(stage.axes) == len(self.outer) and all(
                prove_equal(a, b) is True for a, b in zip(stage.result.shape, shape, strict=True)
            )
            if not same or not self._stage(stage):
                return None
        if not self.reductions:
            return None
        outputs = [
            self._output(e, t.type.element_strides) for e, t in zip(self.task.epilogues, self.task.outputs, strict=True)
        ]
        found = tuple(output for output in outputs if output is not None)
        if len(found) < len(outputs):
            return None
        levels = tuple(Level(tuple(f), tuple(x)) for f, x in zip(self.reductions, self.formulas, strict=True))
        return ReductionProgram(self.outer, shape, self.inner, self.extents, levels, found)

    def _stage(self, stage: Compute) -> bool:
        """Add the reductions and the formula of one stage; False when it has another form."""
        value = substitute(stage.value, dict(zip(stage.axes, self.outer, strict=True)))
        nodes = [n for n in walk(value) if isinstance(n, Reduce)]
        if any(n is not r and isinstance(n, Reduce) for r in nodes for n in walk(r)):
            return False
        replaced: dict[Reduce, Expr] = {}
        for node in nodes:
            result = self._reduce(node)
            if result is None:
                return False
            replaced[node] = result
        formula = self._resolve(rewrite(value, lambda n: replaced.get(n) if isinstance(n, Reduce) else refold(n)))
        if formula is None:
            return False
        variable = Var(stage.result.name, stage.result.dtype)
        depth = self._depth_of(formula)
        self.formula_of[stage.result] = variable
        self.depth[variable] = depth
        if not self.formulas:
            return False
        self.formulas[max(depth - 1, 0)].append((variable, formula))
        return True

    def _reduce(self, node: Reduce) -> Var | None:
        extents = as_dims(node.extents)
        if not self.inner:
            self.inner, self.extents = node.axes, extents
        elif len(extents) != len(self.extents) or any(
            prove_equal(a, b) is not True for a, b in zip(extents, self.extents, strict=True)
        ):
            return None
        bindings = dict(zip(node.axes, self.inner, strict=True))
        values = [self._resolve(substitute(value, bindings)) for value in node.values]
        resolved = tuple(value for value in values if value is not None)
        if len(resolved) < len(values):
            return None
        key = f"{node.combiner.name} {structural_hash((*self.outer, *self.inner), resolved)}"
        reduction = self.known.get(key)
        if reduction is None:
            results = tuple(Var(f"{node.combiner.name}{n}", v.dtype) for n, v in enumerate(resolved))
            reduction = self.known[key] = Reduction(node.combiner, resolved, results)
            level = max(map(self._depth_of, resolved))
            while len(self.reductions) <= level:
                self.reductions.append([])
                self.formulas.append([])
            self.reductions[level].append(reduction)
            self.depth.update(dict.fromkeys(results, level + 1))
        return reduction.results[node.result]

    def _depth_of(self, value: Expr) -> int:
        """How many passes over a row come before `value` is known."""
        return max((self.depth.get(n, 0) for n in walk(value) if isinstance(n, Var)), default=0)

    def _resolve(self, value: Expr) -> Expr | None:
        """`value` with earlier stages as variables and inputs as the task's; None if a stage is read elsewhere."""
        failed: list[Access] = []

        def change(n: IRNode) -> IRNode | None:
            if not isinstance(n, Access):
                return refold(n)
            variable = self.formula_of.get(n.operand)
            if variable is not None:
                if not self._is_here(n):
                    failed.append(n)
                return variable
            return self._input(n)

        resolved = rewrite(value, change)
        return None if failed else resolved

    def _is_here(self, access: Access) -> bool:
        return all(
            index is var or (extent == 1 and isinstance(index, Const) and index.value == 0)
            for index, var, extent in zip(access.indices, self.outer, access.operand.shape, strict=True)
        )

    def _input(self, access: Access) -> Expr:
        source = self.inputs.get(access.operand, access.operand)
        if isinstance(source, Operand):
            return source[access.indices]
        return substitute(source.value, dict(zip(source.axes, access.indices, strict=True)))

    def _output(self, epilogue: Compute, strides: tuple[Dim, ...]) -> ReductionOutput | None:
        if len(epilogue.axes) != len(self.outer):
            return None
        value = self._resolve(substitute(epilogue.value, dict(zip(epilogue.axes, self.outer, strict=True))))
        return None if value is None else ReductionOutput(epilogue.result, strides, self.outer, value)
