"""Element-wise tasks: any fused chain of injective operators, with strided, broadcast and gathered reads.

Each output is cut into regions whose formula has no conditions on the index (`elementwise_region`), and each region
becomes a kernel: loops in the result's memory order (`elementwise_nest`), or squares where inputs lie along another
axis than the result (`transpose_nest`). Sizes and strides are run-time parameters, so that regions which differ only in
those share a kernel.
"""

from __future__ import annotations

from dataclasses import replace

from hidet import dims
from hidet.compute.definition import Compute
from hidet.context import CompileContext
from hidet.cpu.schedules.elementwise_access import RegionAccess
from hidet.cpu.schedules.elementwise_nest import ElementwiseKernel, plain_kernel
from hidet.cpu.schedules.elementwise_region import Region, cut_regions
from hidet.cpu.schedules.gemm_program import ProgramBuilder
from hidet.cpu.schedules.transpose_nest import transposed_kernel, turned_axis
from hidet.dims import Dim
from hidet.graph.types import TensorType, order_of_strides
from hidet.ir.expr import Access, Binary, Unary
from hidet.ir.func import Function
from hidet.ir.structural import structural_hash
from hidet.ir.visit import walk
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.space import Knob, Space
from hidet.schedule.task import Task
from hidet.target import Target

# Elements of one work item: 16 Ki elements of f32 are 64 KiB, some microseconds of streaming work.
ITEM_ELEMENTS = 16384

# Picoseconds that one core takes for an element, an access and an operation of it, when data come from its caches.
_ELEMENT_PICOSECONDS = 50
_ACCESS_PICOSECONDS = 50
_OPERATION_PICOSECONDS = 15
_FUNCTION_PICOSECONDS = 250
_SIMPLE = frozenset(
    {"neg", "abs", "not", "lnot", "isnan", "isinf", "isfinite", "sqrt", "floor", "ceil", "round", "trunc"}
)


class ElementwiseRule(ScheduleRule[None, int]):
    """Schedules tasks without an anchor."""

    def match(self, task: Task, ctx: CompileContext) -> Match[None] | None:
        """Every task whose nodes are all injective."""
        return Match(task) if task.anchor is None else None

    def space(self, match: Match[None], ctx: CompileContext) -> Space[int]:
        """How many elements one work item computes."""
        return Space.of_knob(Knob("item_elements", (4096, 16384, 65536), "elements that a work item computes"))

    def default(self, match: Match[None], ctx: CompileContext) -> int:
        """64 KiB of f32 a work item."""
        return ITEM_ELEMENTS

    def build(self, match: Match[None], params: int, ctx: CompileContext) -> Program:
        """A kernel for every region of every output."""
        task = match.task
        program = ProgramBuilder(task)
        shared: dict[str, Function] = {}
        called: dict[str, Function] = {}
        for epilogue, tensor in zip(task.epilogues, task.outputs, strict=True):
            regions = cut_regions(whole_region(epilogue, tensor.type))
            strides = {t.operand: t.type.element_strides for t in task.inputs}
            for region in regions:
                access = RegionAccess(region, strides, tensor.operand.dtype, is_part=len(regions) > 1)
                kernel = _kernel(access, params, ctx.target)
                function = kernel.function
                called.update((each.name, each) for each in kernel.called)
                if len(regions) > 1 or len(task.outputs) > 1:
                    alike = structural_hash(function)
                    function = shared.setdefault(alike, replace(function, name=f"kernel{len(shared)}"))
                operands = (*kernel.operands, tensor.operand)
                pointers = [program.pointers[operand] for operand in operands]
                program.launch(function, pointers, kernel.scope, kernel.grid, _cost(region, kernel))
        program.add(called.values())
        return program.program()


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


def _kernel(access: RegionAccess, item_elements: int, target: Target) -> ElementwiseKernel:
    turned = turned_axis(access)
    kernel = None if turned is None else transposed_kernel(access, turned, target.vector_bits)
    return plain_kernel(access, item_elements) if kernel is None else kernel


def _cost(region: Region, kernel: ElementwiseKernel) -> Dim:
    """Nanoseconds of one grid index: what the elements take, shared evenly."""
    picoseconds = _ELEMENT_PICOSECONDS
    for node in walk(region.value):
        if isinstance(node, Access):
            picoseconds += _ACCESS_PICOSECONDS
        elif isinstance(node, Binary | Unary):
            simple = isinstance(node, Binary) or node.op in _SIMPLE
            picoseconds += _OPERATION_PICOSECONDS if simple else _FUNCTION_PICOSECONDS
    count = dims.maximum(1, dims.product(kernel.grid))
    return dims.floordiv(kernel.elements * picoseconds, count * 1000) + 1
