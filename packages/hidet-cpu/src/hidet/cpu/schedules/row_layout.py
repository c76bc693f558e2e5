"""Where the tensors of a row program lie: loops over merged axes, and each access as an offset in loop variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cpu.schedules.gemm_lanes import lane_wise
from hidet.cpu.schedules.places import affine_places
from hidet.cpu.schedules.spans import Span
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.stmt import Stmt, Store
from hidet.ir.types import with_lanes
from hidet.ir.visit import accesses, rewrite, substitute, walk
from hidet.schedule.affine import Affine, collapse_axes
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.rows import RowOutput, RowProgram
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop over neighbouring axes that every tensor walks as one: the innermost one's variable counts them all."""

    var: Var
    extent: Dim


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Rows side by side: a loop over neighbouring elements that belong to different rows.

    width: how many neighbours belong to the same row; `loop` counts groups * width elements. group: counts the rows.
    """

    loop: Loop
    width: Dim
    group: Var


@dataclass(frozen=True, slots=True, eq=False)
class RowLayout:
    """Loops over rows (`outer`) and within a row (`inner`), outermost in memory first.

    columns: given where neighbours in memory belong to different rows; else there are an outer and an inner loop, the
    last one over the elements that lie closest together. maps: offsets of accesses. targets: offsets of outputs, in the
    program's order. unit: variables of axes of extent one, which have no loop.
    """

    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    columns: Columns | None
    maps: Mapping[Access, Affine]
    targets: tuple[Affine, ...]
    unit: frozenset[Var]

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All loops."""
        return (*self.outer, *self.inner, *(() if self.columns is None else (self.columns.loop,)))


def row_layout(task: Task, program: RowProgram) -> RowLayout | None:
    """The layout; None when an output's place is no affine function of the loop variables."""
    values, variables = list(expressions(program)), (*program.outer, *program.inner)
    places = affine_places(task, values, variables, [(output.indices, output.strides) for output in program.outputs])
    if places is None:
        return None
    maps, known, pinned, everything = places.maps, places.targets, places.pinned, places.all
    # The tensor that is read once a statistic decides; it has the most axes of those that the elements are made of.
    read = [maps[access] for access in accesses(program.element) if access in maps]
    written = [target for target, output in zip(known, program.outputs, strict=True) if not output.per_row]
    lead = max([*read, *written, Affine({}, 0)], key=lambda m: len(m.coefficients))
    outer, outer_unit = _merge(program.outer, program.outer_extents, lead, everything, pinned)
    inner, inner_unit = _merge(program.inner, program.inner_extents, lead, everything, pinned)
    outer, inner, columns = _columns(outer, inner, lead, [*maps.values(), *written], pinned)
    return RowLayout(outer, inner, columns, maps, known, outer_unit | inner_unit)


# Rows whose elements lie in runs shorter than this are better computed side by side, where their runs adjoin.
_SHORT_RUN = 64

_Loops = tuple[Loop, ...]


def _columns(
    outer: _Loops, inner: _Loops, lead: Affine, maps: Sequence[Affine], pinned: frozenset[Var]
) -> tuple[_Loops, _Loops, Columns | None]:
    """The loops, with those taken out that become columns. lead: the map that decides. maps: all that must agree."""
    one_column = (Loop(build.size_var("column"), 1),)
    if not outer:
        return (Loop(build.size_var("row"), 1),), inner or one_column, None
    last = outer[-1]
    if inner and lead.coefficient(inner[-1].var) == 1:
        run = inner[-1]
        is_short = isinstance(run.extent, int) and run.extent < _SHORT_RUN and len(inner) > 1
        if is_short and collapse_axes([last.var, run.var], [last.extent, run.extent], maps, pinned) == [[0, 1]]:
            whole = Loop(run.var, last.extent * run.extent)
            return outer[:-1], inner[:-1], Columns(whole, run.extent, last.var)
        return outer, inner, None
    if lead.coefficient(last.var) == 1:
        return outer[:-1], inner, Columns(last, 1, last.var)
    return outer, inner or one_column, None


def expressions(program: RowProgram) -> tuple[Expr, ...]:
    """Every expression of the program that may access tensors."""
    return (
        program.element,
        *(value for s in program.statistics for value in s.values),
        *(o.value for o in program.outputs),
    )


def _merge(
    variables: Sequence[Var], extents: Sequence[Dim], lead: Affine, maps: Sequence[Affine], pinned: frozenset[Var]
) -> tuple[tuple[Loop, ...], frozenset[Var]]:
    """Loops over `variables` in the order in which `lead` lies in memory, and the variables without a loop."""
    order = sorted(range(len(variables)), key=lambda n: -(dims.hint_value(lead.coefficient(variables[n])) or 0))
    axes, sizes = [variables[n] for n in order], [extents[n] for n in order]
    groups = collapse_axes(axes, sizes, maps, pinned)
    loops = tuple(Loop(axes[group[-1]], dims.product([sizes[n] for n in group])) for group in groups)
    grouped = {axes[n] for group in groups for n in group}
    return loops, frozenset(axes) - grouped


class RowMemory:
    """The parameters of one kernel, and expressions that read and places to write in terms of loop variables."""

    def __init__(self, task: Task, program: RowProgram, layout: RowLayout) -> None:
        self.scope = KernelScope()
        self.layout = layout
        self.pointers: dict[Operand, Var] = {
            t.operand: self.scope.pointer(t.operand.name, t.operand.dtype) for t in (*task.inputs, *task.outputs)
        }
        self._lowering = Lowering(self.scope, {})
        self._zeros: dict[Var, Expr] = {var: build.index(0) for var in layout.unit}
        strides = {t.operand: t.type.element_strides for t in task.inputs}
        apart = [a for value in expressions(program) for a in accesses(value) if a not in layout.maps]
        for operand in dict.fromkeys(access.operand for access in apart):
            self._lowering.buffer(operand, self.pointers[operand], strides[operand])
        self._places = {access: self._place(offset) for access, offset in layout.maps.items()}
        self._targets = {
            o: (t, self._place(t, o.per_row)) for o, t in zip(program.outputs, layout.targets, strict=True)
        }

    def _place(self, offset: Affine, per_row: bool = False) -> Expr:
        """The offset in loop variables; of something that exists once a row, in groups of columns."""
        total: Expr = self.scope.size(offset.constant, "offset")
        columns = self.layout.columns
        variables = [loop.var for loop in self.layout.loops]
        if columns is not None and per_row:
            variables = [columns.group if var is columns.loop.var else var for var in variables]
        for var in variables:
            total = total + var * self.scope.size(offset.coefficient(var), "stride")
        return total

    def read(self, value: Expr, span: Span, bindings: Mapping[Var, Expr]) -> Expr | None:
        """`value` with variables bound, accesses as loads and sizes as parameters, for each element of `span`.

        None when it has more than one lane and `value` no form with SIMD vectors.
        """

        loads: dict[Var, Expr] = {}

        def load(access: Access) -> Expr | None:
            """A variable that stands for the elements of `access`, whose places need no more lowering."""
            step = self.layout.maps[access].coefficient(span.var)
            if span.lanes > 1 and step != 0 and step != 1:
                return None
            place = substitute(self._places[access], {span.var: span.start})
            lanes, mask = (1, None) if step == 0 else (span.lanes, span.mask)
            loaded = build.load(self.pointers[access.operand], place, lanes=lanes, mask=mask)
            var = Var("loaded", with_lanes(loaded.dtype, loaded.lanes))
            loads[var] = loaded
            return var

        def leaf(node: Expr) -> Expr | None:
            if isinstance(node, Var):
                return bindings.get(node, None if node is span.var else node)
            assert isinstance(node, Access)
            if node in self.layout.maps:
                return load(node)
            return None if any(span.var in walk(i) for i in node.indices) else node

        found: Expr | None
        if span.lanes > 1:
            found = lane_wise(value, span.lanes, leaf)
        else:
            found = rewrite(value, lambda n: load(n) if isinstance(n, Access) and n in self.layout.maps else None)
        if found is None:
            return None
        here = {**self._zeros, **bindings, span.var: span.start} if span.lanes == 1 else self._zeros
        return substitute(self._lowering.resolve(found, here), loads)

    def store(self, output: RowOutput, span: Span, value: Expr) -> Stmt | None:
        """Write `value` to the elements of `span`; None when these are no neighbours in the output."""
        offset, place = self._targets[output]
        if span.lanes > 1 and offset.coefficient(span.var) != 1:
            return None
        return Store(self.pointers[output.result], (substitute(place, {span.var: span.start}),), value, span.mask)
