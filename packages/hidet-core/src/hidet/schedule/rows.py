"""What softmax, normalisations and reductions have in common: statistics of rows, and what is element-wise in them.

A row is the set of elements that one value of each statistic is reduced from. `RowProgram` says what is computed, with
everything fused into the anchor, as expressions of a few variables; each target has its own way to turn it into code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Combiner, Compute, Operand
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.graph.types import same_shape
from hidet.ir import build
from hidet.ir.expr import Access, Binary, Cast, Const, Expr, Reduce, Select, Size, Var
from hidet.ir.node import IRNode
from hidet.ir.visit import accesses, refold, replace_accesses, rewrite, substitute, walk
from hidet.schedule.affine import as_dim, as_dims
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Statistic:
    """One reduction of a row and what is made of it.

    beside: what is reduced together with `value`, and what stands for its total: the place of a maximum, for example.
    variable: stands for the result in later expressions. value: an expression of the row's held element and earlier
    statistics. function: what is applied to `value` before it is reduced, to scalars and SIMD vectors alike; None
    reduces `value` itself. total: stands for the reduced value in `finish`, which gives the result. stored: whether the
    row from then on holds what was reduced, instead of what it held. further: more results of the same reduction, each
    as a variable and what is made of the totals and of results before it.
    """

    variable: Var
    combiner: Combiner
    value: Expr
    total: Var
    finish: Expr
    function: Callable[[Expr], Expr] | None = None
    stored: bool = False
    beside: tuple[tuple[Expr, Var], ...] = ()
    further: tuple[tuple[Var, Expr], ...] = ()

    @property
    def results(self) -> tuple[tuple[Var, Expr], ...]:
        """All that is made of the totals."""
        return ((self.variable, self.finish), *self.further)

    @property
    def values(self) -> tuple[Expr, ...]:
        """All that is reduced."""
        return (self.value, *(value for value, _ in self.beside))

    @property
    def totals(self) -> tuple[Var, ...]:
        """What stands for the reduced values."""
        return (self.total, *(total for _, total in self.beside))


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

    @property
    def is_plain(self) -> bool:
        """Whether an element is one that is read, perhaps in another type."""
        element = self.element
        while isinstance(element, Cast):
            element = element.a
        return isinstance(element, Access)


Rework = Callable[[Var, tuple[Statistic, ...], Expr], tuple[tuple[Statistic, ...], Expr]]


def row_program(task: Task, rework: Rework | None = None) -> RowProgram | None:
    """The row program of a task whose anchor's stages are statistics of the first input, and perhaps then one of each
    element, or of each row.

    rework: from the held element, the statistics and the anchor's result to equal ones that are cheaper to compute.
    None when the definition does not have this form.
    """
    split = _split(task)
    if split is None:
        return None
    stages, last = split
    source = task.definition.inputs[0]
    domain = _domain(stages[0], source)
    if domain is None or (last is not None and not _follows(last, stages[0], source)):
        return None
    outer, inner, indices = domain
    return _Reading(task, stages, last, outer, inner, indices).program(rework)


def _follows(last: Compute, stage: Compute, source: Operand) -> bool:
    """Whether a stage has a value for each element of `source`, or for each row."""
    return any(same_shape(last.result.shape, shape) for shape in (source.shape, stage.result.shape))


def _split(task: Task) -> tuple[list[Compute], Compute | None] | None:
    """The stages that reduce, over as many elements each, and the one that follows them, if there is one."""
    stages = [s for s in task.definition.stages if isinstance(s, Compute)]
    if not stages or len(stages) != len(task.definition.stages):
        return None
    last = None if _reductions(stages[-1].value) else stages.pop()
    found = [_reduction(stage) for stage in stages]
    extents = {tuple(as_dim(extent) for extent in each.extents) for each in found if each is not None}
    if not stages or None in found or len(extents) != 1 or None in next(iter(extents)):
        return None
    return stages, last


def _reductions(value: Expr) -> list[Reduce]:
    return [n for n in walk(value) if isinstance(n, Reduce)]


def _reduction(stage: Compute) -> Reduce | None:
    """The only reduction of a stage."""
    found = _reductions(stage.value)
    return found[0] if len(found) == 1 else None


def _domain(stage: Compute, source: Operand) -> tuple[tuple[Var, ...], Reduce, tuple[Expr, ...]] | None:
    """Outer variables, the reduction that binds the inner ones, and the indices at which it reads `source`."""
    reduction = _reduction(stage)
    assert reduction is not None
    reads = [a for a in accesses(reduction.values[0]) if a.operand is source]
    if len({tuple(map(id, a.indices)) for a in reads}) != 1:
        return None
    indices = reads[0].indices
    # What is chosen by a condition may lie outside of the tensor where that fails, as a window's last elements do.
    if not all(isinstance(index, Var) for index in indices) and any(map(_chooses, reduction.values)):
        return None
    return stage.axes, reduction, indices


def _chooses(value: Expr) -> bool:
    return any(isinstance(node, Select) for node in walk(value))


def _arithmetic_type(reduction: Reduce, source: Operand) -> DType:
    """The type in which elements of `source` are reduced: what they are cast to, or their own."""
    nodes = list(walk(reduction.values[0]))
    read = {id(node) for node in nodes if isinstance(node, Access) and node.operand is source}
    casts = [node for node in nodes if isinstance(node, Cast) and id(node.a) in read]
    types = {node.dtype for node in casts}
    return types.pop() if len(types) == 1 and {id(node.a) for node in casts} == read else source.dtype


def _reduced_together(statistics: Sequence[Statistic]) -> tuple[Statistic, ...]:
    """The statistics, neighbours as one where what the second reduces does not depend on the first."""
    made: list[Statistic] = []
    for statistic in statistics:
        if made and _may_join(made[-1], statistic):
            made[-1] = _joined(made[-1], statistic)
        else:
            made.append(statistic)
    return tuple(made)


def _may_join(a: Statistic, b: Statistic) -> bool:
    own = {variable for variable, _ in a.results}
    is_plain = not any(s.stored or s.function is not None for s in (a, b))
    return is_plain and not any(node in own for value in b.values for node in walk(value) if isinstance(node, Var))


def _joined(a: Statistic, b: Statistic) -> Statistic:
    count = len(a.values)

    def identity(types: Sequence[DType]) -> tuple[Expr, ...]:
        return (*a.combiner.identity(types[:count]), *b.combiner.identity(types[count:]))

    def combine(left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        first = a.combiner.combine(left[:count], right[:count])
        return (*first, *b.combiner.combine(left[count:], right[count:]))

    return replace(
        a,
        combiner=Combiner(f"{a.combiner.name}_{b.combiner.name}", identity, combine),
        beside=(*a.beside, (b.value, b.total), *b.beside),
        further=(*a.further, *b.results),
    )


class _Reading:
    """Translates a definition: operands become the task's, statistics and elements become variables."""

    def __init__(
        self,
        task: Task,
        stages: Sequence[Compute],
        last: Compute | None,
        outer: tuple[Var, ...],
        domain: Reduce,
        indices: tuple[Expr, ...],
    ) -> None:
        self.task, self.stages, self.last = task, stages, last
        self.outer, self.domain, self.indices = outer, domain, indices
        self.source = task.definition.inputs[0]
        self.is_of_rows = last is not None and not same_shape(last.result.shape, self.source.shape)
        self.held = Var("element", _arithmetic_type(domain, self.source))
        self.count = build.size_var("count")
        self.variables = {stage.result: Var(stage.result.name, stage.result.dtype) for stage in stages}
        self.inputs = task.sources

    def program(self, rework: Rework | None) -> RowProgram:
        inner_extents = as_dims(self.domain.extents)
        statistics = tuple(self._statistic(stage, dims.product(inner_extents)) for stage in self.stages)
        final: Expr | None = None
        if self.last is not None:
            indices = self.outer if self.is_of_rows else self.indices
            final = self._resolve(self.last.value, dict(zip(self.last.axes, indices, strict=True)))
            if rework is not None:
                statistics, final = rework(self.held, statistics, final)
        return RowProgram(
            outer=self.outer,
            outer_extents=self.stages[0].result.shape,
            inner=self.domain.axes,
            inner_extents=inner_extents,
            element=build.cast(self._input(self.source, self.indices), self.held.dtype),
            held=self.held,
            count=self.count,
            statistics=_reduced_together(statistics),
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
        narrow = build.cast(self.held, self.source.dtype)

        def change(node: IRNode) -> IRNode | None:
            if isinstance(node, Cast) and node.a is narrow and node.type is self.held.type:
                return self.held
            if not isinstance(node, Access):
                return refold(node)
            if node.operand is self.source:
                return narrow
            if node.operand in self.variables:
                return self.variables[node.operand]
            return self._input(node.operand, node.indices) if node.operand in self.inputs else None

        return rewrite(substitute(value, bindings), change)

    def _statistic(self, stage: Compute, count: Dim) -> Statistic:
        reduction = _reduction(stage)
        assert reduction is not None
        bindings: dict[Var, Expr] = dict(zip(stage.axes, self.outer, strict=True))
        totals = [Var("total", value.dtype) for value in reduction.values]
        total = totals[reduction.result]
        finish = rewrite(stage.value, lambda n: total if isinstance(n, Reduce) else None)
        finish = rewrite(finish, lambda n: self._average(n, total, count))
        inner: dict[Var, Expr] = dict(zip(reduction.axes, self.domain.axes, strict=True))
        values = [self._resolve(value, {**bindings, **inner}) for value in reduction.values]
        return Statistic(
            variable=self.variables[stage.result],
            combiner=reduction.combiner,
            value=values[0],
            total=totals[0],
            finish=self._resolve(finish, bindings),
            beside=tuple(zip(values[1:], totals[1:], strict=True)),
        )

    def _average(self, n: IRNode, total: Var, count: Dim) -> IRNode | None:
        """A sum divided by the length of the row, which is a size however it is written in the definition."""
        if not isinstance(n, Binary) or n.op != "div" or n.a is not total:
            return None
        literal = isinstance(n.b, Const) and n.b.value == count
        size = isinstance(n.b, Cast) and isinstance(n.b.a, Size) and n.b.a.dim == count
        return Binary("div", total, build.cast(self.count, total.dtype), n.type) if literal or size else None

    def _output(self, epilogue: Compute, strides: tuple[Dim, ...], final: Expr | None) -> RowOutput:
        result = None if self.last is None else self.last.result
        per_row = self.is_of_rows or not any(a.operand is result for a in accesses(epilogue.value))
        indices = self.outer if per_row else self.indices

        def replacement(access: Access) -> Expr | None:
            return final if access.operand is result else self.variables.get(access.operand)

        bound = substitute(epilogue.value, dict(zip(epilogue.axes, indices, strict=True)))
        return RowOutput(epilogue.result, strides, tuple(indices), replace_accesses(bound, replacement), per_row)
