"""Where the tensors of a row program lie: loops over merged axes, and each access as an offset in loop variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cpu.schedules.gemm_lanes import lane_wise
from hidet.cpu.schedules.rows import RowOutput, RowProgram
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.node import IRNode
from hidet.ir.stmt import Stmt, Store
from hidet.ir.visit import accesses, rewrite, substitute, walk
from hidet.ir.types import with_lanes
from hidet.schedule.affine import Affine, affine_offset, collapse_axes
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop over neighbouring axes that every tensor walks as one: the innermost one's variable counts them all."""

    var: Var
    extent: Dim


@dataclass(frozen=True, slots=True, eq=False)
class RowLayout:
    """Loops over rows (`outer`) and within a row (`inner`), outermost in memory first, at least one of each.

    maps: offsets of accesses. targets: offsets of outputs, in the program's order. unit: variables of axes of extent
    one, which have no loop.
    """

    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    maps: Mapping[Access, Affine]
    targets: tuple[Affine, ...]
    unit: frozenset[Var]

    def is_contiguous(self, loop: Loop) -> bool:
        """Whether most tensors that have one element for each element of the rows lie contiguously along `loop`."""
        full = [m for m in (*self.maps.values(), *self.targets) if len(m.coefficients) > 0]
        steps = [m.coefficient(loop.var) for m in full]
        return 2 * sum(step == 1 for step in steps) >= sum(step != 0 for step in steps)


def row_layout(task: Task, program: RowProgram) -> RowLayout | None:
    """The layout; None when an output's place is no affine function of the loop variables."""
    strides = {t.operand: t.type.element_strides for t in task.inputs}
    variables = frozenset((*program.outer, *program.inner))
    maps: dict[Access, Affine] = {}
    for value in expressions(program):
        for access in accesses(value):
            offset = affine_offset(access.indices, strides[access.operand])
            if offset is not None and set(offset.coefficients) <= variables:
                maps[access] = offset
    targets = [affine_offset(output.indices, output.strides) for output in program.outputs]
    known = tuple(target for target in targets if target is not None)
    if len(known) < len(targets):
        return None
    pinned = frozenset(v for value in expressions(program) for v in _used_outside(value, maps))
    everything = [*maps.values(), *known]
    lead = next((t for t, o in zip(known, program.outputs, strict=True) if not o.per_row), everything[0])
    outer, outer_unit = _merge(program.outer, program.outer_extents, lead, everything, pinned)
    inner, inner_unit = _merge(program.inner, program.inner_extents, lead, everything, pinned)
    return RowLayout(
        outer or (Loop(build.size_var("row"), 1),),
        inner or (Loop(build.size_var("column"), 1),),
        maps,
        known,
        outer_unit | inner_unit,
    )


def expressions(program: RowProgram) -> tuple[Expr, ...]:
    """Every expression of the program that may access tensors."""
    return (program.element, *(s.value for s in program.statistics), *(o.value for o in program.outputs))


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


def _used_outside(value: Expr, maps: Mapping[Access, Affine]) -> set[Var]:
    """Variables that occur other than in the indices of the accesses in `maps`."""
    found: set[Var] = set()
    stack: list[IRNode] = [value]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen or (isinstance(node, Access) and node in maps):
            continue
        seen.add(id(node))
        if isinstance(node, Var):
            found.add(node)
        stack.extend(node.children())
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Neighbouring values of a loop variable: `lanes` of them from `start` on.

    mask: a bool vector that says which lanes count; None when all do.
    """

    var: Var
    start: Expr
    lanes: int = 1
    mask: Expr | None = None


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
        self._targets = {o: (t, self._place(t)) for o, t in zip(program.outputs, layout.targets, strict=True)}

    def _place(self, offset: Affine) -> Expr:
        total: Expr = self.scope.size(offset.constant, "offset")
        for loop in (*self.layout.outer, *self.layout.inner):
            total = total + loop.var * self.scope.size(offset.coefficient(loop.var), "stride")
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
