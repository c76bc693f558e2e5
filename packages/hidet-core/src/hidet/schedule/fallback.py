"""The fallback nest: a loop nest for any task on any target, linear in the elements it touches.

Each stage of the anchor's definition becomes one kernel, with an item a row or an item an element as the target asks;
results of inner stages go through scratch buffers. Nothing is tiled or vectorised. Routines bring their own programs.
A matmul, convolution, attention, normalisation, softmax or pooling that ends here is a defect of the target's schedules
and is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Compute, Operand, Routine, Scan, Scatter, results_of
from hidet.compute.routine import RoutineSpec
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Assign, Declare, For, If, Launch, Seq, Stmt, Store
from hidet.ir.types import PointerType
from hidet.ir.visit import accesses
from hidet.schedule.lowering import KernelScope, Lowering, nest
from hidet.schedule.routines.site import RoutineKernel, RoutineSite
from hidet.schedule.rule import FixedRule, Match, Program
from hidet.schedule.task import Task


class FallbackRule(FixedRule[None]):
    """Schedules every task of compute, scan and scatter stages, and of the routines that have a program."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Everything. ScheduleError names a routine without a program, or that nobody offers."""
        for stage in task.definition.stages if task.anchor is not None else ():
            if isinstance(stage, Routine):
                _require_program(stage.spec, ctx)
        return Match(task)

    def build(self, match: Match[None], params: None, ctx: CompileContext) -> Program:
        """One kernel a stage, then one an output that is not an anchor output as it is."""
        return NestBuilder(match.task, ctx.target.work_item == "elements").program()


def _require_program(spec: RoutineSpec, ctx: CompileContext) -> None:
    # Definitions are told apart by names of routines, so a name has to be of one routine.
    if ctx.registry.routines.get(spec.name) != spec:
        hint = "its plug-in returns it from `hidet_routines`; `hidet plugins -v` lists those offered"
        raise ScheduleError(f"routine {spec.name} is not the one that plug-ins offer under this name", hint=hint)
    if not spec.program:
        hint = "give its RoutineSpec a program, or the target a schedule for it"
        raise ScheduleError(f"routine {spec.name} has no program", hint=hint)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Work items: one for each index of `axes`, which has these extents, and what it does.

    lanes: threads that work on an item together; their number is the variable `lane`. 1 for items of one thread.
    """

    axes: tuple[Var, ...]
    extents: tuple[Dim, ...]
    body: Stmt
    lanes: int = 1
    lane: Var | None = None


def _single(body: Stmt) -> Items:
    return Items((build.size_var("item"),), (1,), body)


@dataclass(frozen=True, slots=True, eq=False)
class StageScope:
    """A kernel of a stage under construction, in which everything that the stage reads and writes has a place.

    pointers: of the kernel. outer: what the entry function passes for them, in their order.
    """

    scope: KernelScope
    lowering: Lowering
    pointers: dict[Operand, Var]
    outer: list[Expr]


class NestBuilder:
    """Builds the nest of a task, stage by stage. A target's own nest overrides `compute`, or `stage` where stages of a
    kind take several kernels.

    is_by_element: whether a work item is an element, not a row of them.
    """

    def __init__(self, task: Task, is_by_element: bool) -> None:
        self.task = task
        self.is_by_element = is_by_element
        self.places: dict[Operand, tuple[Var, tuple[Dim, ...]]] = {}
        self.functions: list[Function] = []
        self.launches: list[Stmt] = []
        self.arguments: list[Dim] = []
        self.argument_vars: list[Var] = []
        self.scratch_bytes: list[Dim] = []
        self.pointers: list[Var] = []
        self.scratch_pointers: list[Var] = []

    def program(self) -> Program:
        task = self.task
        for tensor in task.inputs:
            self._place(tensor.operand, tensor.type.element_strides)
        direct: dict[Operand, Operand] = {}
        for epilogue, tensor in zip(task.epilogues, task.outputs, strict=True):
            self._place(epilogue.result, tensor.type.element_strides)
            source = identity_source(epilogue)
            if source is not None and source not in direct:
                direct[source] = epilogue.result
        if task.anchor is not None:
            for operand, source_tensor in zip(_anchor_operands(task), task.anchor_inputs, strict=True):
                if operand is not None and source_tensor is not None:
                    self.places[operand] = self.places[source_tensor.operand]
            for stage in task.definition.stages:
                for result in results_of(stage):
                    if result in direct:
                        self.places[result] = self.places[direct[result]]
                    else:
                        elements = dims.product(result.shape)
                        pointer = self.scratch(f"{result.name}_scratch", result.dtype, elements)
                        self.places[result] = (pointer, contiguous_strides(result.shape))
                self.stage(stage)
        for epilogue in task.epilogues:
            if epilogue.result not in direct.values() or task.anchor is None:
                self.stage(epilogue)
        parameters = (*self.pointers, *self.scratch_pointers, *self.argument_vars)
        entry = Function("entry", parameters, build.seq(self.launches), kind="host")
        return Program(Module((*self.functions, entry), "entry"), tuple(self.arguments), tuple(self.scratch_bytes))

    def lowering(self, scope: KernelScope) -> Lowering:
        """How definitions become statements in a kernel."""
        return Lowering(scope, {})

    def _place(self, operand: Operand, strides: Sequence[Dim]) -> None:
        pointer = Var(operand.name, PointerType(operand.dtype))
        self.pointers.append(pointer)
        self.places[operand] = (pointer, tuple(strides))

    def scratch(self, name: str, dtype: DType, elements: Dim) -> Var:
        """Memory that lives while the program runs, as a pointer of the entry function."""
        pointer = Var(name, PointerType(dtype))
        self.scratch_pointers.append(pointer)
        self.scratch_bytes.append(elements * dtype.nbytes)
        return pointer

    def stage(self, stage: Compute | Scan | Scatter | Routine) -> None:
        """Add the kernels of one stage."""
        if isinstance(stage, Scatter) and self.is_by_element and not self.task.in_place:
            # Elements of the base are copied each by an item of its own, before any update.
            self.stage(Compute(stage.result, stage.base_axes, stage.base))
        opened = self.opened(stage)
        scope, lowering, pointers = opened.scope, opened.lowering, opened.pointers
        if isinstance(stage, Compute):
            items = self.compute(stage, scope, lowering, pointers)
        elif isinstance(stage, Scan):
            items = self._scan(stage, scope, lowering, pointers)
        elif isinstance(stage, Scatter):
            items = self._scatter(stage, scope, lowering, pointers)
        else:
            items = self._routine(stage, scope, lowering, pointers, opened.outer)
        self.emit(scope, opened.outer, items)

    def opened(self, stage: Compute | Scan | Scatter | Routine) -> StageScope:
        """A new kernel for a stage, or for a part of its work."""
        scope = KernelScope()
        lowering = self.lowering(scope)
        prologues = [p for p in self.task.prologues if p is not None]
        used = {
            *results_of(stage),
            *(stage.operands if isinstance(stage, Routine) else ()),
            *(a.operand for e in (*_expressions(stage), *(p.value for p in prologues)) for a in accesses(e)),
        }
        outer: list[Expr] = []
        pointers: dict[Operand, Var] = {}
        for operand, (place, strides) in self.places.items():
            if operand in used:
                pointers[operand] = scope.pointer(operand.name, operand.dtype)
                outer.append(place)
                lowering.buffer(operand, pointers[operand], strides)
        for prologue in prologues:
            lowering.inline(prologue)
        return StageScope(scope, lowering, pointers, outer)

    def argument(self, dim: Dim) -> Var:
        """A size as a parameter of the entry function."""
        self.arguments.append(dim)
        self.argument_vars.append(build.size_var(f"a{len(self.argument_vars)}"))
        return self.argument_vars[-1]

    def launch(self, function: Function, grid: tuple[Expr, ...], arguments: tuple[Expr, ...], items: Items) -> None:
        """Add a kernel whose grid indices are the items, and its launch."""
        self.functions.append(function)
        self.launches.append(Launch(function.name, grid, arguments, cost=None))

    def emit(self, scope: KernelScope, outer: Sequence[Expr], items: Items) -> None:
        """Add a kernel that runs once for each item, and its launch. outer: what is passed for its pointers."""
        name = f"kernel{len(self.functions)}"
        outside = KernelScope()
        grid = tuple(outside.size(extent, "grid") for extent in items.extents)
        sizes = [self.argument(dim) for dim in scope.arguments]
        self.arguments += outside.arguments
        self.argument_vars += outside.sizes
        function = Function(name, scope.params, items.body, kind="kernel", grid_vars=items.axes)
        self.launch(function, grid, (*outer, *sizes), items)

    def store(
        self, operand: Operand, pointers: dict[Operand, Var], scope: KernelScope, indices: Sequence[Expr], value: Expr
    ) -> Stmt:
        strides = [scope.size(s, f"{operand.name}_stride") for s in self.places[operand][1]]
        return Store(pointers[operand], (build.flatten(indices, strides),), value)

    def compute(self, stage: Compute, scope: KernelScope, lowering: Lowering, pointers: dict[Operand, Var]) -> Items:
        """One work item an element, or an index of the outermost axis with loops over the others."""
        extents = [scope.size(d, "n") for d in stage.result.shape]
        before, value = lowering.statements(lowering.resolve(stage.value, {}))
        body = build.seq([*before, self.store(stage.result, pointers, scope, stage.axes, value)])
        if not stage.axes:
            return _single(body)
        return self._items(stage.axes, stage.result.shape, extents, body)

    def _items(self, axes: Sequence[Var], shape: Sequence[Dim], extents: Sequence[Expr], body: Stmt) -> Items:
        """Axes as items: all of them, or the first with loops over the others. `extents` are `shape` in the kernel."""
        if self.is_by_element:
            return Items(tuple(axes), tuple(shape), body)
        return Items((axes[0],), (shape[0],), nest(axes[1:], extents[1:], body))

    def _scan(self, stage: Scan, scope: KernelScope, lowering: Lowering, pointers: dict[Operand, Var]) -> Items:
        """One work item runs along the scanned axis for every other index."""
        shape = stage.results[0].shape
        extents = [scope.size(d, "n") for d in shape]
        dtypes = [v.dtype for v in stage.values]
        running = [Var(f"running{n}", dtype) for n, dtype in enumerate(dtypes)]
        step = build.size_var("step")
        last = extents[stage.axis] - 1
        place = last - step if stage.reverse else step
        axes = [place if n == stage.axis else axis for n, axis in enumerate(stage.axes)]
        bindings = {stage.axes[stage.axis]: place}
        before, values = [], []
        for value in stage.values:
            stmts, expr = lowering.statements(lowering.resolve(value, bindings))
            before += stmts
            values.append(expr)
        left, right = (values, running) if stage.reverse else (running, values)
        fresh = [Var(f"next{n}", dtype) for n, dtype in enumerate(dtypes)]
        update: list[Stmt] = [Declare(v, x) for v, x in zip(fresh, stage.combiner.combine(left, right), strict=True)]
        update += [Assign(v, x) for v, x in zip(running, fresh, strict=True)]
        stores = [self.store(r, pointers, scope, axes, v) for r, v in zip(stage.results, running, strict=True)]
        ordered = [*stores, *before, *update] if stage.exclusive else [*before, *update, *stores]
        start = [Declare(v, x) for v, x in zip(running, stage.combiner.identity(dtypes), strict=True)]
        body = build.seq([*start, For(step, build.index(0), extents[stage.axis], build.seq(ordered))])
        others = [n for n in range(len(shape)) if n != stage.axis]
        if not others:
            return _single(body)
        return self._items(
            [stage.axes[n] for n in others], [shape[n] for n in others], [extents[n] for n in others], body
        )

    def _scatter(self, stage: Scatter, scope: KernelScope, lowering: Lowering, pointers: dict[Operand, Var]) -> Items:
        """Copy the base, then apply the updates in order, which keeps the result reproducible: one work item.

        By element, updates that differ in an axis which is an index of its own meet different elements, so that each
        gets an item, as all do where none meet; the base was copied before.

        A task that writes in place has its base in the result's memory already.
        """
        extents = [scope.size(d, "n") for d in stage.result.shape]
        before, base = lowering.statements(lowering.resolve(stage.base, {}))
        copy = nest(
            stage.base_axes,
            extents,
            build.seq([*before, self.store(stage.result, pointers, scope, stage.base_axes, base)]),
        )
        indices = [lowering.resolve(i, {}) for i in stage.indices]
        stmts, update = lowering.statements(lowering.resolve(stage.update, {}))
        if stage.combine is not None:
            strides = [scope.size(s, "stride") for s in self.places[stage.result][1]]
            old = build.load(pointers[stage.result], build.flatten(indices, strides))
            update = stage.combine.combine([old], [update])[0]
        body = build.seq([*stmts, self.store(stage.result, pointers, scope, indices, update)])
        if stage.condition is not None:
            body = If(lowering.resolve(stage.condition, {}), body)
        if self.is_by_element:
            apart = list(stage.axes) if stage.is_distinct else axes_apart(stage)
            rest = [n for n, axis in enumerate(stage.axes) if axis not in apart]
            loops = nest([stage.axes[n] for n in rest], [scope.size(stage.extents[n], "n") for n in rest], body)
            extents_apart = tuple(n for n, axis in zip(stage.extents, stage.axes, strict=True) if axis in apart)
            return Items(tuple(apart), extents_apart, loops) if apart else _single(loops)
        updates = nest(stage.axes, [scope.size(d, "n") for d in stage.extents], body)
        return _single(updates if self.task.in_place else Seq((copy, updates)))

    def _routine(
        self,
        stage: Routine,
        scope: KernelScope,
        lowering: Lowering,
        pointers: dict[Operand, Var],
        outer: list[Expr],
    ) -> Items:
        """The routine's own program."""

        def scratch(name: str, dtype: DType, elements: Dim) -> Var:
            outer.append(self.scratch(name, dtype, elements))
            return scope.pointer(name, dtype)

        site = RoutineSite(
            stage,
            read=lambda operand, indices: lowering.resolve(operand[tuple(indices)], {}),
            write=lambda result, indices, value: self.store(result, pointers, scope, indices, value),
            size=scope.size,
            scratch=scratch,
        )
        kernel: RoutineKernel = stage.spec.load_program()(site)
        return Items((kernel.item,), (kernel.grid,), kernel.body)


def axes_apart(stage: Scatter) -> list[Var]:
    """Axes of a scatter's updates that are indices themselves: updates that differ there meet different elements."""
    return [axis for axis in stage.axes if any(index is axis for index in stage.indices)]


def identity_source(epilogue: Compute) -> Operand | None:
    """The operand that an epilogue hands on unchanged; None when it computes something."""
    value = epilogue.value
    if isinstance(value, Access) and value.indices == epilogue.axes:
        return value.operand
    return None


def _expressions(stage: Compute | Scan | Scatter | Routine) -> tuple[Expr, ...]:
    """Every expression of a stage."""
    if isinstance(stage, Compute):
        return (stage.value,)
    if isinstance(stage, Scan):
        return stage.values
    if isinstance(stage, Scatter):
        condition = () if stage.condition is None else (stage.condition,)
        return (stage.base, *stage.indices, stage.update, *condition)
    return ()


def _anchor_operands(task: Task) -> list[Operand | None]:
    """The definition's inputs lined up with the anchor node's inputs (absent ones None)."""
    assert task.anchor is not None
    remaining = iter(task.definition.inputs)
    return [None if v is None else next(remaining) for v in task.anchor.inputs]
