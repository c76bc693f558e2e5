"""What softmax and normalisations have in common: statistics of rows, then a result that is element-wise in them.

A row is the set of elements that one value of each statistic is folded from. `RowProgram` says what is computed, with
everything fused into the anchor, as expressions of a few variables; `row_loops` and `lane_loops` turn it into code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Combiner, Compute, Operand
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Access, Binary, Cast, Const, Expr, Reduce, Size, Var
from hidet.ir.node import IRNode
from hidet.ir.visit import accesses, replace_accesses, rewrite, substitute, walk
from hidet.ops.rules import arithmetic_dtype, widen
from hidet.schedule.affine import as_dims
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Statistic:
    """One fold of a row and what is made of it.

    variable: stands for the result in later expressions. value: an expression of the row's held element and earlier
    statistics. function: what is applied to `value` before it is folded, to scalars and SIMD vectors alike; None folds
    `value` itself. total: stands for the folded value in `finish`, which gives the result. stored: whether the row from
    then on holds what was folded, instead of what it held.
    """

    variable: Var
    combiner: Combiner
    value: Expr
    total: Var
    finish: Expr
    function: Callable[[Expr], Expr] | None = None
    stored: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RowOutput:
    """A tensor to write: `value` at `indices`. per_row: one element a row, of statistics alone."""

    result: Operand
    strides: tuple[Dim, ...]
    indices: tuple[Expr, ...]
    value: Expr
    per_row: bool


@dataclass(frozen=True, slots=True, eq=False)
class RowProgram:
    """Rows of elements numbered by `inner` variables, one row for each value of the `outer` variables.

    element: an element as it comes from memory, in the arithmetic type: accesses to the task's inputs at indices in
    outer and inner variables. held: stands for the element in later expressions. count: stands for the number of
    elements in a row.
    """

    outer: tuple[Var, ...]
    outer_extents: tuple[Dim, ...]
    inner: tuple[Var, ...]
    inner_extents: tuple[Dim, ...]
    element: Expr
    held: Var
    count: Var
    statistics: tuple[Statistic, ...]
    outputs: tuple[RowOutput, ...]

    @property
    def dtype(self) -> DType:
        """The arithmetic type."""
        return self.held.dtype

    @property
    def row_elements(self) -> Dim:
        """Elements of one row."""
        return dims.product(self.inner_extents)

    @property
    def is_computed(self) -> bool:
        """Whether reading an element is more than one load of its type."""
        return not isinstance(self.element, Access)


Rework = Callable[[Var, tuple[Statistic, ...], Expr], tuple[tuple[Statistic, ...], Expr]]


def row_program(task: Task, rework: Rework | None = None) -> RowProgram | None:
    """The row program of a task whose anchor's stages are statistics of the first input and then an element-wise one.

    rework: from the held element, the statistics and the anchor's result to equal ones that are cheaper to compute.
    None when the definition does not have this form.
    """
    folds, last = _split(task)
    if last is None:
        return None
    domain = _domain(folds[0], task.definition.inputs[0])
    if domain is None:
        return None
    outer, inner, indices = domain
    return _Reading(task, folds, last, outer, inner, indices).program(rework)


def _split(task: Task) -> tuple[list[Compute], Compute | None]:
    """The stages that fold and the one that follows them; the latter None when there are others."""
    stages = [s for s in task.definition.stages if isinstance(s, Compute)]
    if len(stages) != len(task.definition.stages) or len(stages) < 2:
        return [], None
    *folds, last = stages
    if any(_reduction(stage) is None for stage in folds) or _reductions(last.value):
        return [], None
    return folds, last


def _reductions(value: Expr) -> list[Reduce]:
    return [n for n in walk(value) if isinstance(n, Reduce)]


def _reduction(stage: Compute) -> Reduce | None:
    """The only reduction of a stage, if it folds single values."""
    found = _reductions(stage.value)
    return found[0] if len(found) == 1 and len(found[0].values) == 1 else None


def _domain(fold: Compute, source: Operand) -> tuple[tuple[Var, ...], Reduce, tuple[Expr, ...]] | None:
    """Outer variables, the reduction that binds the inner ones, and the indices at which it reads `source`."""
    reduction = _reduction(fold)
    assert reduction is not None
    reads = [a for a in accesses(reduction.values[0]) if a.operand is source]
    if len({tuple(map(id, a.indices)) for a in reads}) != 1:
        return None
    return fold.axes, reduction, reads[0].indices


class _Reading:
    """Translates a definition: operands become the task's, statistics and elements become variables."""

    def __init__(
        self,
        task: Task,
        folds: Sequence[Compute],
        last: Compute,
        outer: tuple[Var, ...],
        domain: Reduce,
        indices: tuple[Expr, ...],
    ) -> None:
        self.task, self.folds, self.last = task, folds, last
        self.outer, self.domain, self.indices = outer, domain, indices
        self.source = task.definition.inputs[0]
        self.held = Var("element", arithmetic_dtype(self.source.dtype))
        self.count = build.size_var("count")
        self.variables = {fold.result: Var(fold.result.name, fold.result.dtype) for fold in folds}
        self.inputs = task.sources

    def program(self, rework: Rework | None) -> RowProgram:
        inner_extents = as_dims(self.domain.extents)
        statistics = tuple(self._statistic(fold, dims.product(inner_extents)) for fold in self.folds)
        places: dict[Var, Expr] = dict(zip(self.last.axes, self.indices, strict=True))
        final = self._resolve(self.last.value, places)
        if rework is not None:
            statistics, final = rework(self.held, statistics, final)
        return RowProgram(
            outer=self.outer,
            outer_extents=self.folds[0].result.shape,
            inner=self.domain.axes,
            inner_extents=inner_extents,
            element=widen(self._input(self.source, self.indices)),
            held=self.held,
            count=self.count,
            statistics=statistics,
            outputs=tuple(
                self._output(epilogue, tensor.type.element_strides, final)
                for epilogue, tensor in zip(self.task.epilogues, self.task.outputs, strict=True)
            ),
        )

    def _input(self, operand: Operand, indices: Sequence[Expr]) -> Expr:
        """An element of an input of the anchor, from the task's inputs."""
        source = self.inputs[operand]
        if isinstance(source, Operand):
            return source[tuple(indices)]
        return substitute(source.value, dict(zip(source.axes, indices, strict=True)))

    def _resolve(self, value: Expr, bindings: Mapping[Var, Expr]) -> Expr:
        def replacement(access: Access) -> Expr | None:
            if access.operand is self.source:
                return self.held
            if access.operand in self.variables:
                return self.variables[access.operand]
            return self._input(access.operand, access.indices) if access.operand in self.inputs else None

        return replace_accesses(substitute(value, bindings), replacement)

    def _statistic(self, fold: Compute, count: Dim) -> Statistic:
        reduction = _reduction(fold)
        assert reduction is not None
        bindings: dict[Var, Expr] = dict(zip(fold.axes, self.outer, strict=True))
        total = Var("total", reduction.dtype)
        finish = rewrite(fold.value, lambda n: total if isinstance(n, Reduce) else None)
        finish = rewrite(finish, lambda n: self._average(n, total, count))
        inner: dict[Var, Expr] = dict(zip(reduction.axes, self.domain.axes, strict=True))
        return Statistic(
            variable=self.variables[fold.result],
            combiner=reduction.combiner,
            value=self._resolve(reduction.values[0], {**bindings, **inner}),
            total=total,
            finish=self._resolve(finish, bindings),
        )

    def _average(self, n: IRNode, total: Var, count: Dim) -> IRNode | None:
        """A sum divided by the length of the row, which is a size however it is written in the definition."""
        if not isinstance(n, Binary) or n.op != "div" or n.a is not total:
            return None
        literal = isinstance(n.b, Const) and n.b.value == count
        size = isinstance(n.b, Cast) and isinstance(n.b.a, Size) and n.b.a.dim == count
        return Binary("div", total, build.cast(self.count, total.dtype), n.type) if literal or size else None

    def _output(self, epilogue: Compute, strides: tuple[Dim, ...], final: Expr) -> RowOutput:
        per_row = not any(a.operand is self.last.result for a in accesses(epilogue.value))
        indices = self.outer if per_row else self.indices

        def replacement(access: Access) -> Expr | None:
            return final if access.operand is self.last.result else self.variables.get(access.operand)

        bound = substitute(epilogue.value, dict(zip(epilogue.axes, indices, strict=True)))
        return RowOutput(epilogue.result, strides, tuple(indices), replace_accesses(bound, replacement), per_row)
