"""Results that lie in another order than what they are made of: tiles transposed in shared memory.

for what this block reads along one axis: into the tile        neighbours in the operand
wait for each other
for what it writes along the other axis: from the tile         neighbours in the result
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.exchange import WARP, barrier, thread_in_block
from hidet.gpu.schedules.items import decode_item
from hidet.gpu.schedules.lanes import is_aligned, paths, replaced, step_along
from hidet.gpu.schedules.pointwise_kernel import PointwiseMemory, store_lanes
from hidet.gpu.schedules.pointwise_layout import Pointwise
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Expr, Reduce, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Launch
from hidet.ir.visit import accesses
from hidet.schedule.cost import element_count, extent_estimate
from hidet.schedule.task import Task

_WORD = 4
"""Bytes that a thread moves at once: banks of shared memory are as wide."""
_LEAST = 16
"""Extents below which most of a tile would be empty."""
_MOST = 4
"""Tensors that are transposed at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Transposed:
    """Elements whose operands `reads` are neighbours along `axis`, while the result's are along its last group."""

    pointwise: Pointwise
    axis: Var
    reads: tuple[Access, ...]
    lanes: int


def transposed_of(task: Task, pointwise: Pointwise) -> Transposed | None:
    """None where nothing large lies in another order, or where it lies irregularly."""
    if len(pointwise.axes) < 2 or any(isinstance(node, Reduce) for node in paths([pointwise.value])):
        return None
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    last, count = pointwise.axes[-1], element_count(pointwise.output.type.shape)
    if step_along(pointwise.epilogue.axes, pointwise.output.type.element_strides, last, 1) != 1:
        return None
    found: dict[Var, list[Access]] = {}
    for access, reached in paths([pointwise.value]).items():
        assert isinstance(access, Access)
        own = strides[access.operand]
        is_large = element_count(access.operand.shape) * 2 > count
        if not is_large or step_along(access.indices, own, last, 1) in (0, 1):
            continue
        across = [axis for axis in pointwise.axes[:-1] if step_along(access.indices, own, axis, 1) == 1]
        if not across or () not in reached or any(accesses(index) for index in access.indices):
            return None
        found.setdefault(across[0], []).append(access)
    if len(found) != 1:
        return None
    ((axis, reads),) = found.items()
    extents = dict(zip(pointwise.axes, pointwise.extents, strict=True))
    if len(reads) > _MOST or min(extent_estimate(extents[axis]), extent_estimate(extents[last])) < _LEAST:
        return None
    return Transposed(pointwise, axis, tuple(reads), _lanes(task, pointwise, axis, reads))


def _lanes(task: Task, pointwise: Pointwise, axis: Var, reads: Sequence[Access]) -> int:
    """Neighbours that make a word, where rows of all tensors are made of whole words; else 1."""
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    sizes = {pointwise.output.type.dtype.nbytes, *(access.operand.dtype.nbytes for access in reads)}
    if len(sizes) != 1 or pointwise.output.type.dtype.nbytes >= _WORD:
        return 1
    extents = dict(zip(pointwise.axes, pointwise.extents, strict=True))
    last = pointwise.axes[-1]
    own = [
        (index, stride)
        for index, stride in zip(pointwise.epilogue.axes, pointwise.output.type.element_strides, strict=True)
    ]
    counted = [(index, stride) for index, stride in own if index in pointwise.axes]
    is_even = (
        dims.divisibility(extents[axis]) % 2 == 0
        and dims.divisibility(extents[last]) % 2 == 0
        and is_aligned([index for index, _ in counted], [stride for _, stride in counted], last, 2)
        and all(is_aligned(access.indices, strides[access.operand], axis, 2) for access in reads)
    )
    return 2 if is_even else 1


def launch_transposed(builder: ProgramBuilder, task: Task, transposed: Transposed, warps: int) -> None:
    """Compute an output: words at once if every address is a multiple of 16 bytes, element by element otherwise.

    warps: of a block, at most 32.
    """
    fast = _TileKernel(builder, task, transposed, warps).launch()
    if transposed.lanes == 1:
        builder.run(fast)
        return
    # What is not transposed is read as words as well.
    operands = [
        *(access.operand for access in accesses(transposed.pointwise.value)),
        transposed.pointwise.epilogue.result,
    ]
    single = replace(transposed, lanes=1)
    builder.run(builder.by_alignment(operands, fast, lambda: _TileKernel(builder, task, single, warps).launch()))


class _TileKernel:
    def __init__(self, builder: ProgramBuilder, task: Task, transposed: Transposed, warps: int) -> None:
        self.builder, self.transposed, self.pointwise = builder, transposed, transposed.pointwise
        self.warps = warps
        self.memory = PointwiseMemory(builder, task, transposed.pointwise)
        self.lanes, self.side = transposed.lanes, WARP * transposed.lanes
        # Rows of an odd number of words: neighbours along either axis lie in different banks.
        self.row = self.side + self.lanes
        self.axis, self.last = transposed.axis, transposed.pointwise.axes[-1]
        self.column, self.warp = build.size_var("column"), build.size_var("warp")
        self.starts = {axis: build.size_var(f"{axis.name}_start") for axis in (self.axis, self.last)}
        scope = self.memory.scope
        extents = zip(self.pointwise.axes, self.pointwise.extents, strict=True)
        self.extents = {axis: scope.size(extent, "extent") for axis, extent in extents}

    def launch(self) -> Launch:
        """The kernel, and its launch."""
        pointwise, scope = self.pointwise, self.memory.scope
        others = [axis for axis in pointwise.axes if axis not in (self.axis, self.last)]
        sizes = dict(zip(pointwise.axes, pointwise.extents, strict=True))
        counts = [
            *(sizes[axis] for axis in others),
            *(dims.ceildiv(sizes[axis], self.side) for axis in (self.axis, self.last)),
        ]
        k, numbers = IRBuilder(), [build.size_var("row_tile"), build.size_var("column_tile")]
        # No grid has more than 2^31 blocks.
        block = k.let("block", build.cast(intrinsic_call("gpu.block_idx.x"), dtypes.u32))
        decode_item(k, block, [scope.size(count, "count") for count in counts], [*others, *numbers])
        for axis, number in zip((self.axis, self.last), numbers, strict=True):
            k.declare(self.starts[axis], number * self.side)
        thread = k.let("thread", thread_in_block())
        k.declare(self.column, (thread % WARP) * self.lanes)
        k.declare(self.warp, thread // WARP)
        tiles = [
            k.array(f"tile{n}", access.dtype, self.side * self.row, space="shared")
            for n, access in enumerate(self.transposed.reads)
        ]
        for access, tile in zip(self.transposed.reads, tiles, strict=True):
            self._fill(k, access, tile)
        k.emit(barrier())
        self._write(k, tiles)
        function = Function(self.builder.name(), scope.params, k.body, kind="kernel")
        blocks = self.builder.size(dims.product(counts))
        return self.builder.launch(function, self.memory.outer, scope.arguments, (blocks,), WARP * self.warps)

    @contextmanager
    def _sweep(self, k: IRBuilder, along: Var, across: Var) -> Iterator[Var]:
        """Go through the tile, a warp along one axis, the warps across the other; gives the number of the latter."""
        with k.for_range("step", self.side // self.warps, kind="unroll") as step:
            row = k.let("row", self.warp + step * self.warps)
            k.declare(across, self.starts[across] + row)
            k.declare(along, self.starts[along] + self.column)
            with k.if_(build.logical_and(across < self.extents[across], along < self.extents[along])):
                yield row

    def _fill(self, k: IRBuilder, access: Access, tile: Var) -> None:
        """Read along the operand's neighbours."""
        reader = self.memory.reader(self.axis, self.lanes)
        with self._sweep(k, self.axis, self.last) as row:
            reads = reader.read([access], self.axis, self.memory.fixed)
            k.emit(reads.declarations, reads.loads)
            with reader.each_lane(k):
                k.store(tile, (self.column + reader.lane) * self.row + row, reads.values[0])

    def _write(self, k: IRBuilder, tiles: Sequence[Var]) -> None:
        """Compute along the result's neighbours."""
        reader = self.memory.reader(self.last, self.lanes)
        transposed: dict[Expr, Var] = {access: Var("transposed", access.dtype) for access in self.transposed.reads}
        value, bindings = replaced(self.pointwise.value, transposed), dict(self.memory.fixed)
        with self._sweep(k, self.last, self.axis) as row:
            for variable, tile in zip(transposed.values(), tiles, strict=True):
                bindings[variable] = build.load(tile, row * self.row + self.column + reader.lane)
            reads = reader.read([value], self.last, bindings)
            k.emit(reads.declarations, reads.loads)
            store_lanes(k, reader, self.memory.result, self.memory.place(self.last, self.last), reads.values[0])
