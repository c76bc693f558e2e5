"""Warp-specialized kernels, for sm_90a: one thread has the loads of a ring copied, warp groups multiply.

TMA brings whole boxes of matrices that tensor maps describe, zero outside of them and swizzled as `wgmma`
reads them. Two barriers a stage order producer and consumers: `full` completes when the bytes of the stage's boxes have
come, `empty` when all warps that multiply have read it. The kernel is persistent: blocks stay on their
multiprocessor and take tiles of the grid in turn, so that copies for the next tile run while the last one is finished
and stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tensor_map import MapRequest, map_type
from hidet.cuda.tile.machine import machine
from hidet.cuda.tile.stages import (
    FEATURES,
    FEW_REGISTERS,
    GROUP,
    MANY_REGISTERS,
    MOVED_REGISTERS,
    Stages,
    barrier,
    positions,
    registers,
)
from hidet.cuda.tile.warp_group import finished_loop, fits_warp_groups, start_in_groups, wait_for_groups
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import WARP, TileKernel
from hidet.gpu.tile.lower.fragment import Threads, block_threads
from hidet.gpu.tile.lower.order import tile_indices, tiles_of_block
from hidet.gpu.tile.lower.statements import Staging, TileLowering, element_count
from hidet.gpu.tile.tensors import GTensor, STile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Binary, Bitcast, Const, Expr, Var
from hidet.ir.func import Function
from hidet.ir.types import PointerType
from hidet.ir.visit import substitute, walk

_ALIGN = 16
# Statements that each warp does for itself, without meeting others.
_OF_ONE_WARP = (t.Fill, t.Fetch, t.Map, t.Store)
_MOST_BOX = 256
_MOST_OUTER = 3
"""Axes of a tensor map besides the two of a matrix."""
# Elements of tiles that leave enough of the 168 registers that all threads start with.
_MOST_HELD = 80
# Tiles from this size on start at multiples of 1024 bytes, where swizzles of 128 bytes repeat.
_SWIZZLED_BYTES = 8192


@dataclass(frozen=True, slots=True, eq=False)
class OuterAxis:
    """An axis that a kernel's matrices lie along: the place of the block's own, an expression of an index of the grid,
    a bound of it, and the elements between neighbours."""

    place: Expr
    extent: Expr
    stride: Expr


@dataclass(frozen=True, slots=True, eq=False)
class MatrixMap:
    """A kernel's parameter `var`: the tensor map of `source`, from which boxes like a panel of `tile` are copied.

    base: where `source` lies when its outer axes are at 0. All but their places are expressions over the kernel's other
    parameters.
    """

    var: Var
    source: GTensor
    tile: STile
    base: Expr
    outer: tuple[OuterAxis, ...]

    def argument(self, arguments: Mapping[Var, Expr]) -> Expr:
        """The kernel's argument, from values of its other parameters in the launch."""
        return self.request(arguments).call()

    def request(self, arguments: Mapping[Var, Expr]) -> MapRequest:
        """The map as host code makes it. arguments: values of the kernel's parameters in the launch."""
        source, layout, nbytes = self.source, self.tile.layout, self.source.dtype.nbytes
        # The stride of a matrix of one row may be anything, even 0; its map is given that of a dense one.
        dense = (source.columns + (layout.chunk - 1)) // layout.chunk * layout.chunk
        sizes, strides = [source.columns, source.rows], [build.maximum(source.row_stride, dense)]
        box = [_panel_columns(self.tile), layout.rows]
        for axis in self.outer:
            sizes.append(axis.extent)
            strides.append(axis.stride)
            box.append(1)
        base = substitute(self.base, arguments)
        if self.tile.dtype is not self.source.dtype:
            base = Bitcast(base, PointerType(self.tile.dtype))
        return MapRequest(
            base,
            tuple(substitute(size, arguments) for size in sizes),
            tuple(substitute(stride, arguments) * nbytes for stride in strides),
            tuple(box),
            layout.panel_chunks * 16,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A kernel whose blocks of `threads` threads walk over its grid, and the tensor maps it takes, its last parameters.

    It is launched over one index, with any number of blocks. shared_bytes: what a block needs of shared memory.
    """

    function: Function
    threads: int
    maps: tuple[MatrixMap, ...]
    shared_bytes: int


def fits_pipeline(kernel: TileKernel) -> bool:
    """Whether a kernel has the shape: a known grid, loads in one ring of products of warp groups, from matrices in
    memory whose rows start at multiples of 16 bytes. That rows do not overlap is for the caller to know."""
    rings = [stmt for stmt in kernel.body if isinstance(stmt, t.Ring)]
    others = [stmt for stmt in kernel.body if not isinstance(stmt, t.Ring)]
    if len(rings) != 1 or not kernel.grid or not all(isinstance(stmt, _OF_ONE_WARP) for stmt in others):
        return False
    (ring,) = rings
    products = [stmt for stmt in ring.body if isinstance(stmt, t.Mma) and fits_warp_groups(stmt, kernel.warps)]
    if not products or len(products) != len(ring.body):
        return False
    return all(_fits_map(load, ring.stages, kernel) for load in ring.loads)


def _fits_map(load: t.Load, stages: int, kernel: TileKernel) -> bool:
    layout, source = load.target.layout, load.source
    if not isinstance(source, GTensor) or source.align < _ALIGN or not layout.is_swizzled:
        return False
    if layout.rows > _MOST_BOX or stages * layout.size * layout.nbytes < _SWIZZLED_BYTES:
        return False
    sizes = (source.rows, source.columns, source.row_stride)
    return _base(source, kernel) is not None and not any(_depends(size, kernel) for size in sizes)


def _base(source: GTensor, kernel: TileKernel) -> tuple[Expr, tuple[OuterAxis, ...]] | None:
    """`base` and `outer` of a map; None where the pointer depends on the grid in another way."""
    pointer, outer = source.pointer, list[OuterAxis]()
    while _depends(pointer, kernel):
        if not (isinstance(pointer, Binary) and pointer.op == "add" and isinstance(pointer.b, Binary)):
            return None
        axis = _outer_axis(pointer.b, kernel)
        if axis is None or len(outer) == _MOST_OUTER:
            return None
        outer.insert(0, axis)
        pointer = pointer.a
    return pointer, tuple(outer)


def _outer_axis(offset: Binary, kernel: TileKernel) -> OuterAxis | None:
    """The axis along which an offset moves a pointer: an index of the grid, or a part of it, times a stride."""
    if offset.op != "mul" or _depends(offset.b, kernel):
        return None
    extents, place = dict(zip(kernel.grid_vars, kernel.grid, strict=True)), offset.a
    number, extent = place, None
    if isinstance(place, Binary) and place.op == "mod" and not _depends(place.b, kernel):
        number, extent = place.a, place.b
    # What is left of an index that counts other things as well.
    while isinstance(number, Binary) and number.op == "floordiv" and not _depends(number.b, kernel):
        number = number.a
    if not isinstance(number, Var) or number not in extents:
        return None
    return OuterAxis(place, extents[number] if extent is None else extent, offset.b)


def _depends(expr: Expr, kernel: TileKernel) -> bool:
    """Whether an expression is another one for each block."""
    own = {*kernel.grid_vars, *(var for var, _ in kernel.index_values)}
    return any(node in own for node in walk(expr) if isinstance(node, Var))


def _panel_columns(tile: STile) -> int:
    return tile.layout.panel_chunks * tile.layout.chunk


def lower_pipeline(kernel: TileKernel) -> Pipeline:
    """The warp-specialized kernel; `fits_pipeline` says whether there is one."""
    (ring,) = (stmt for stmt in kernel.body if isinstance(stmt, t.Ring))
    threads = block_threads(kernel.warps)
    maps: list[MatrixMap] = []
    for load in ring.loads:
        assert isinstance(load.source, GTensor)
        found = _base(load.source, kernel)
        assert found is not None
        maps.append(MatrixMap(Var(f"map_{load.target.name}", map_type()), load.source, load.target, *found))
    stages = Stages(ring.stages)
    consumer = _Consumer(kernel, threads, stages)
    block = build.size_var("block")
    multipliers = kernel.threads
    warp = build.size_var("warp")
    copies: s.Stmt = build.seq([*stages.declared(), _walk_tiles(kernel, block, _copies(ring, maps, consumer, stages))])
    copies = s.If(build.equal(threads.thread, multipliers), copies)
    work: s.Stmt = build.seq([*stages.declared(), _walk_tiles(kernel, block, consumer.tile())])
    copiers = WARP
    if multipliers > GROUP and consumer.held() > _MOST_HELD:
        # Warps of a fourth of the multiprocessor share its registers: what the copying ones do not need, others get.
        copiers = GROUP
        copies = build.seq([registers("decrease", FEW_REGISTERS), copies])
        work = build.seq([registers("increase", MANY_REGISTERS), work])
    body = build.seq(
        [
            *positions(threads, warp),
            *(s.Declare(var) for var in (*consumer.shared_arrays(), stages.barriers)),
            s.If(build.equal(threads.thread, 0), build.seq([*_prefetched(maps), stages.made(multipliers // WARP)])),
            s.Evaluate(intrinsic_call("gpu.syncthreads")),
            s.If(build.binary("ge", warp, multipliers // WARP), copies, work),
        ]
    )
    count = multipliers + copiers
    attributes = (("block", (count, 1, 1)), *((MOVED_REGISTERS,) if copiers == GROUP else ()))
    params = (*kernel.params, *(described.var for described in maps))
    function = Function(kernel.name, params, body, "kernel", (block,), None, attributes)
    nbytes = sum(element_count(var) * var.dtype.nbytes for var in (*consumer.shared_arrays(), stages.barriers))
    return Pipeline(function, count, tuple(maps), nbytes)


def _prefetched(maps: list[MatrixMap]) -> list[s.Stmt]:
    """Bring the maps into their cache, where the first copies would wait for them."""
    return [s.Evaluate(intrinsic_call("cuda.prefetch_tensor_map", described.var)) for described in maps]


def _walk_tiles(kernel: TileKernel, block: Var, body: s.Stmt) -> s.Stmt:
    """`body` for every tile that a block of the persistent kernel takes."""
    turn, item = build.size_var("turn"), build.size_var("item")
    blocks = build.cast(intrinsic_call("gpu.grid_dim.x"), dtypes.i64)
    total: Expr = kernel.grid[0]
    for extent in kernel.grid[1:]:
        total = total * extent
    each = [
        s.Declare(item, block + turn * blocks),
        *tile_indices(kernel.grid_vars, kernel.grid, item),
        *(s.Declare(var, value) for var, value in kernel.index_values),
        body,
    ]
    return s.For(turn, build.index(0), tiles_of_block(total, block, blocks), build.seq(each))


def _copies(ring: t.Ring, maps: list[MatrixMap], tiles: TileLowering, stages: Stages) -> s.Stmt:
    """The producer: one stage after the other as they become empty."""
    nbytes = sum(load.target.layout.size * load.target.dtype.nbytes for load in ring.loads)
    steps = [
        # A fresh barrier counts as having completed the phase before its first one.
        barrier("wait", stages.empty(stages.slot), build.binary("xor", stages.phase, 1)),
        barrier("arrive_expect", stages.full(), Const(nbytes, dtypes.i32)),
    ]
    for load, described in zip(ring.loads, maps, strict=True):
        layout, buffer = load.target.layout, tiles.shared[load.target]
        for panel in range(layout.panels):
            place = stages.slot * layout.size + panel * layout.rows * layout.pitch
            coordinates: list[Expr] = [load.column + panel * _panel_columns(load.target), load.row]
            coordinates += [axis.place for axis in described.outer]
            steps.append(
                s.Evaluate(
                    intrinsic_call(
                        f"cuda.tensor_load.{len(coordinates)}d",
                        build.address(buffer, place),
                        described.var,
                        stages.full(),
                        *(build.cast(coordinate, dtypes.i32) for coordinate in coordinates),
                    )
                )
            )
    return s.For(ring.index, build.index(0), ring.extent, build.seq([*steps, stages.advanced()]))


class _Consumer(TileLowering):
    """The consumers: they multiply, map and store."""

    def __init__(self, kernel: TileKernel, threads: Threads, stages: Stages) -> None:
        super().__init__(kernel, threads, machine(FEATURES.__contains__))
        self._body = kernel.body
        self._stages = stages
        self._staging = self.staging_arrays(kernel)

    def held(self) -> int:
        """Elements of register tiles that a thread holds."""
        return sum(math.prod(fragment.extents) for fragment in self.fragments.values())

    def shared_arrays(self) -> list[Var]:
        """What the kernel declares in shared memory, but for barriers."""
        return [*self.shared.values(), *self._staging.values()]

    def tile(self) -> s.Stmt:
        """What is done for one tile of the grid."""
        declared = [s.Declare(fragment.buffer) for fragment in self.fragments.values()]
        return build.seq([*declared, self.stmts(self._body)])

    def ring(self, node: t.Ring) -> s.Stmt:
        """The products of a stage run while those of the next one are started; then it is given back."""
        stages, before = self._stages, build.size_var("before")
        for load in node.loads:
            self._stage[load.target] = stages.slot
        steps = [
            barrier("wait", stages.full(), stages.phase),
            self.stmts(node.body),
            wait_for_groups(1),
            s.If(before >= 0, self._give_back(before)),
            s.Assign(before, stages.slot),
            stages.advanced(),
        ]
        for load in node.loads:
            del self._stage[load.target]
        sums = [self.fragments[stmt.accumulator] for stmt in node.body if isinstance(stmt, t.Mma)]
        loop = s.For(node.index, build.index(0), node.extent, build.seq(steps))
        finished = finished_loop(node.extent, loop, sums, self._give_back(before))
        return build.seq([s.Declare(before, build.index(-1)), finished])

    def _give_back(self, slot: Expr) -> s.Stmt:
        """Say that the warp has read a stage."""
        return s.If(build.equal(self.threads.lane, 0), barrier("arrive_at", self._stages.empty(slot)))

    def _staging_place(self, node: t.Store, staging: Staging) -> Expr | None:
        """Memory of its own, because stages are filled for the next tile meanwhile."""
        return self._staging[node]

    def mma(self, node: t.Mma) -> s.Stmt:
        """Start a product."""
        assert isinstance(node.a, STile)
        operands = self._operand(node.a), self._operand(node.b)
        return start_in_groups(node, self.fragments[node.accumulator], operands, self.threads)
