"""Element-wise tasks: any fused chain of injective operators, with strided, broadcast and gathered reads.

    for block of the outer axes            one work item each
      for the axes between
        vectorised loop over the innermost axis of the output

Axes are visited in the output's memory order and neighbours that every operand walks as one are merged, so that a
contiguous chain is a single loop whatever its rank. Sizes and strides are run-time parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Compute
from hidet.dims import Dim
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.stmt import For, Launch, Stmt, Store
from hidet.ir.types import PointerType
from hidet.ir.visit import accesses, rewrite, walk
from hidet.schedule.affine import Affine, affine_offset, collapse_axes
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task
from hidet.target import Target

# Elements of one work item: 16 Ki elements of f32 are 64 KiB, a few microseconds of streaming work.
ITEM_ELEMENTS = 16384


class ElementwiseRule:
    """Schedules tasks without an anchor."""

    def match(self, task: Task, target: Target) -> Match | None:
        """Every task whose nodes are all injective."""
        return Match(task) if task.anchor is None else None

    def space(self, match: Match, target: Target) -> SearchSpace:
        """How many elements one work item computes."""
        return SearchSpace({"item_elements": (4096, 16384, 65536)})

    def default(self, match: Match, target: Target) -> Params:
        """64 KiB of f32 a work item."""
        return {"item_elements": ITEM_ELEMENTS}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """One kernel an output."""
        task = match.task
        kernels = [
            elementwise_kernel(f"kernel{n}", task, epilogue, tensor.type, params["item_elements"])
            for n, (epilogue, tensor) in enumerate(zip(task.epilogues, task.outputs, strict=True))
        ]
        return assemble(task, kernels)


@dataclass(frozen=True, slots=True, eq=False)
class ElementwiseKernel:
    """A kernel of (input pointers, output pointer, sizes) and how it is launched."""

    function: Function
    grid: tuple[Dim, ...]
    arguments: tuple[Dim, ...]
    cost: int


def assemble(task: Task, kernels: Sequence[ElementwiseKernel]) -> Program:
    """The entry function that launches one kernel an output."""
    inputs = [Var(t.operand.name, PointerType(t.operand.dtype)) for t in task.inputs]
    outputs = [Var(t.operand.name, PointerType(t.operand.dtype)) for t in task.outputs]
    arguments: list[Dim] = []
    sizes: list[Var] = []

    def parameter(dim: Dim) -> Expr:
        sizes.append(build.size_var(f"a{len(sizes)}"))
        arguments.append(dim)
        return sizes[-1]

    launches = [
        Launch(
            kernel.function.name,
            tuple(parameter(extent) for extent in kernel.grid),
            (*inputs, output, *(parameter(dim) for dim in kernel.arguments)),
            cost=parameter(kernel.cost),
        )
        for kernel, output in zip(kernels, outputs, strict=True)
    ]
    entry = Function("entry", (*inputs, *outputs, *sizes), build.seq(launches), kind="host")
    return Program(Module((*(k.function for k in kernels), entry), "entry"), tuple(arguments))


def elementwise_kernel(
    name: str, task: Task, epilogue: Compute, output: TensorType, item_elements: int
) -> ElementwiseKernel:
    """The kernel that computes one output of a task."""
    axes, extents, output_strides = _memory_order(epilogue.axes, output)
    by_operand = {t.operand: t.type.element_strides for t in task.inputs}
    maps: dict[Access, Affine] = {}
    pinned: set[Var] = set()
    for access in accesses(epilogue.value):
        offset = affine_offset(access.indices, by_operand[access.operand])
        if offset is not None and set(offset.coefficients) <= set(axes):
            maps[access] = offset
    _pin_other_uses(epilogue.value, maps, pinned)
    target_map = Affine(dict(zip(axes, output_strides, strict=True)), 0)
    groups = collapse_axes(axes, extents, [*maps.values(), target_map], frozenset(pinned))
    loops = [axes[group[-1]] for group in groups]
    sizes = [dims.product([extents[position] for position in group]) for group in groups]

    scope = KernelScope()
    lowering = Lowering(scope, {})
    pointers = {t.operand: scope.pointer(t.operand.name, t.operand.dtype) for t in task.inputs}
    result = scope.pointer(epilogue.result.name, epilogue.result.dtype)
    for operand, strides in by_operand.items():
        lowering.buffer(operand, pointers[operand], strides)

    def place(offset: Affine) -> Expr:
        total: Expr = scope.size(offset.constant, "offset")
        for axis in loops:
            total = total + axis * scope.size(offset.coefficient(axis), "stride")
        return total

    def read(n: IRNode) -> IRNode | None:
        if isinstance(n, Access) and n in maps:
            return build.load(pointers[n.operand], place(maps[n]))
        return None

    zeros = {axis: build.index(0) for axis in axes if axis not in loops}
    value = lowering.resolve(rewrite(epilogue.value, read), zeros)
    before, value = lowering.statements(value)
    body = build.seq([*before, Store(result, (place(target_map),), value)])
    element_cost = 1 + sum(4 for n in walk(epilogue.value) if isinstance(n, Unary))
    return _loops(name, scope, loops, sizes, body, item_elements, element_cost)


def _memory_order(axes: Sequence[Var], output: TensorType) -> tuple[list[Var], list[Dim], list[Dim]]:
    """Axes, extents and strides of the output from the largest stride to the smallest."""
    strides = output.element_strides
    positions = list(range(len(axes)))
    if all(isinstance(s, int) for s in strides):
        positions.sort(key=lambda p: -int(strides[p]))  # type: ignore[arg-type]  # all are ints here
    return [axes[p] for p in positions], [output.shape[p] for p in positions], [strides[p] for p in positions]


def _pin_other_uses(value: Expr, maps: dict[Access, Affine], pinned: set[Var]) -> None:
    """Axes used outside affine accesses cannot be merged with others."""
    stack: list[IRNode] = [value]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in seen or (isinstance(current, Access) and current in maps):
            continue
        seen.add(id(current))
        if isinstance(current, Var):
            pinned.add(current)
        stack.extend(current.children())


def _loops(
    name: str,
    scope: KernelScope,
    axes: Sequence[Var],
    extents: Sequence[Dim],
    body: Stmt,
    item_elements: int,
    element_cost: int,
) -> ElementwiseKernel:
    """Loops over merged axes, the outermost one (or two) cut into work items."""
    if not axes:
        function = Function(name, scope.params, body, kind="kernel", grid_vars=(build.size_var("item"),))
        return ElementwiseKernel(function, (1,), tuple(scope.arguments), element_cost)
    grid_vars: list[Var] = []
    grid: list[Dim] = []
    rest = list(range(len(axes)))
    if len(axes) >= 3:
        grid_vars.append(axes[0])
        grid.append(extents[0])
        rest.pop(0)
    first, inner = rest[0], rest[1:]
    inner_elements = dims.product([extents[n] for n in inner])
    block: Dim = dims.maximum(1, dims.floordiv(item_elements, dims.maximum(1, inner_elements)))
    for n in reversed(inner):
        kind = "vectorize" if n == inner[-1] else "serial"
        body = For(axes[n], build.index(0), scope.size(extents[n], "n"), body, kind=kind)  # type: ignore[arg-type]  # a LoopKind
    item = build.size_var("item")
    step = scope.size(block, "block")
    start = item * step
    count = build.minimum(step, scope.size(extents[first], "n") - start)
    body = For(axes[first], start, count, body, kind="serial" if inner else "vectorize")
    grid_vars.append(item)
    grid.append(dims.ceildiv(extents[first], block))
    function = Function(name, scope.params, body, kind="kernel", grid_vars=tuple(grid_vars))
    nanoseconds = max(1, item_elements * element_cost // 8)
    return ElementwiseKernel(function, tuple(grid), tuple(scope.arguments), nanoseconds)
