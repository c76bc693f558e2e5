"""Element-wise tasks: any fused chain of injective operators, with strided, broadcast and gathered reads.

Each output is cut into regions whose formula has no conditions on the index (`elementwise_region`), and each region
becomes a kernel: loops in the result's memory order (`elementwise_nest`), or squares where inputs lie along another
axis than the result (`transpose_nest`). Sizes and strides are run-time parameters, so that regions which differ only in
those share a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Compute
from hidet.context import CompileContext
from hidet.cpu.schedules.cost_items import Work, items_seconds, task_bytes
from hidet.cpu.schedules.elementwise_access import RegionAccess
from hidet.cpu.schedules.elementwise_nest import ElementwiseKernel, plain_kernel
from hidet.cpu.schedules.elementwise_region import Region, cut_regions
from hidet.cpu.schedules.gemm_program import ProgramBuilder
from hidet.cpu.schedules.transpose_nest import transposed_kernel, turned_axis
from hidet.dims import Dim
from hidet.graph.types import TensorType, order_of_strides
from hidet.ir.expr import Access, Binary, Expr, Unary
from hidet.ir.func import Function
from hidet.ir.structural import structural_hash
from hidet.ir.visit import walk
from hidet.schedule.cost import element_count
from hidet.schedule.device_constants import known_constants
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task, TaskTensor
from hidet.target import Target

_ITEM_ELEMENTS = (4096, 16384, 65536)
_ITEM_COLUMNS = (256, 1024, 4096)

# Picoseconds that one core takes for an element, an access and an operation of it, when data come from its caches.
_ELEMENT_PICOSECONDS = 50
_ACCESS_PICOSECONDS = 50
_OPERATION_PICOSECONDS = 15
_FUNCTION_PICOSECONDS = 250
_SIMPLE = frozenset(
    {"neg", "abs", "not", "lnot", "isnan", "isinf", "isfinite", "sqrt", "floor", "ceil", "round", "trunc"}
)


@dataclass(frozen=True, slots=True)
class ElementwiseParams:
    """Elements of a work item, and how many of them lie along the result, where inputs lie along another axis."""

    item_elements: int = 16384
    item_columns: int = 1024


class ElementwiseRule(ScheduleRule[None, ElementwiseParams]):
    """Schedules tasks without an anchor."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Every task whose nodes are all injective."""
        return Match(task) if task.anchor is None else None

    def space(self, match: Match[None], ctx: CompileContext) -> Space[ElementwiseParams]:
        """Elements of a work item, and its columns where something is transposed."""
        elements = Knob("item_elements", _ITEM_ELEMENTS, "elements that a work item computes")
        if all(turned_axis(access) is None for _, access in _accesses(match.task)):
            return Space((elements,), ElementwiseParams)
        columns = Knob("item_columns", _ITEM_COLUMNS, "those along the result, where inputs lie along another axis")
        return Space((elements, columns), ElementwiseParams)

    def default(self, match: Match[None], ctx: CompileContext) -> ElementwiseParams:
        """64 KiB of f32 a work item, some microseconds of streaming work."""
        return ElementwiseParams()

    def predict(self, match: Match[None], params: ElementwiseParams, ctx: CompileContext) -> float | None:
        """By the model of `cost_items`."""
        task, constants = match.task, known_constants(ctx)
        assert constants is not None
        elements = max(element_count(tensor.type.shape) for tensor in task.outputs)
        each = sum(_picoseconds(epilogue.value) for epilogue in task.epilogues)
        work = Work(elements, params.item_elements, each, task_bytes(task))
        return items_seconds(work, constants, ctx.options.threads or constants.cores)

    def build(self, match: Match[None], params: ElementwiseParams, ctx: CompileContext) -> Program:
        """A kernel for every region of every output."""
        task = match.task
        program = ProgramBuilder(task)
        shared: dict[str, Function] = {}
        called: dict[str, Function] = {}
        for tensor, access in _accesses(task):
            kernel = _kernel(access, params, ctx.target)
            function = kernel.function
            called.update((each.name, each) for each in kernel.called)
            if access.is_part or len(task.outputs) > 1:
                alike = structural_hash(function)
                function = shared.setdefault(alike, replace(function, name=f"kernel{len(shared)}"))
            operands = (*kernel.operands, tensor.operand)
            pointers = [program.pointers[operand] for operand in operands]
            program.launch(function, pointers, kernel.scope, kernel.grid, _cost(access.region, kernel))
        program.add(called.values())
        return program.program()


def _accesses(task: Task) -> Iterator[tuple[TaskTensor, RegionAccess]]:
    """The regions of every output."""
    strides = {t.operand: t.type.element_strides for t in task.inputs}
    for epilogue, tensor in zip(task.epilogues, task.outputs, strict=True):
        regions = cut_regions(whole_region(epilogue, tensor.type))
        for region in regions:
            yield tensor, RegionAccess(region, strides, tensor.operand.dtype, is_part=len(regions) > 1)


def whole_region(stage: Compute, output: TensorType) -> Region:
    """All elements of an output, axes from the largest stride to the smallest where these are known to be that."""
    strides = output.element_strides
    order = order_of_strides(strides) or range(output.rank)
    return Region(
        tuple(stage.axes[axis] for axis in order),
        tuple(output.shape[axis] for axis in order),
        tuple(strides[axis] for axis in order),
        0,
        stage.value,
    )


def _kernel(access: RegionAccess, params: ElementwiseParams, target: Target) -> ElementwiseKernel:
    turned, kernel = turned_axis(access), None
    if turned is not None:
        kernel = transposed_kernel(access, turned, target.vector_bits, params.item_elements, params.item_columns)
    return plain_kernel(access, params.item_elements) if kernel is None else kernel


def _cost(region: Region, kernel: ElementwiseKernel) -> Dim:
    """Nanoseconds of one grid index: what the elements take, shared evenly."""
    count = dims.maximum(1, dims.product(kernel.grid))
    return dims.floordiv(kernel.elements * _picoseconds(region.value), count * 1000) + 1


def _picoseconds(value: Expr) -> int:
    """Of an element, on a core with vectors of 512 bits."""
    picoseconds = _ELEMENT_PICOSECONDS
    for node in walk(value):
        if isinstance(node, Access):
            picoseconds += _ACCESS_PICOSECONDS
        elif isinstance(node, Binary | Unary):
            simple = isinstance(node, Binary) or node.op in _SIMPLE
            picoseconds += _OPERATION_PICOSECONDS if simple else _FUNCTION_PICOSECONDS
    return picoseconds
