"""Warp-specialized kernels, for sm_90a: one thread has the loads of a ring copied, warp groups multiply.

TMA brings whole boxes of matrices that tensor maps describe, zero outside of them and swizzled as `wgmma`
reads them. Two barriers a stage order producer and consumers: `full` completes when the bytes of the stage's boxes have
come, `empty` when all warps that multiply have read it. The kernel is persistent: blocks stay on their
multiprocessor and take tiles of the grid in turn, so that copies for the next tile run while the last one is finished
and stored; TMA brings results to memory as well, where their matrix has a map.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.schedules.tiling import resident_blocks
from hidet.cuda.tile.box_loads import begin_stages, copy_stages, prefetched
from hidet.cuda.tile.box_operands import BoxOperand, box_operand
from hidet.cuda.tile.box_stores import BoxStores, box_stores
from hidet.cuda.tile.machine import machine
from hidet.cuda.tile.maps import (
    SWIZZLED_BYTES,
    MatrixMap,
    OwnMap,
    SourceMap,
    box_map,
    own_maps,
    shared_map,
    source_map,
)
from hidet.cuda.tile.stages import (
    FEATURES,
    GROUP,
    MOVED_REGISTERS,
    SHARED_REGISTERS,
    Stages,
    barrier,
    positions,
    registers,
)
from hidet.cuda.tile.warp_group import (
    finish_groups,
    finished_loop,
    fits_warp_groups,
    start_in_groups,
    wait_for_groups,
)
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import WARP, TileKernel
from hidet.gpu.tile.layout import SharedLayout
from hidet.gpu.tile.lower.elementwise import Element, held_element
from hidet.gpu.tile.lower.fetch import part_of
from hidet.gpu.tile.lower.finish import StoredMap
from hidet.gpu.tile.lower.fragment import ALL_LANES, Fragment, Threads, block_threads
from hidet.gpu.tile.lower.order import tile_indices, tiles_of_block
from hidet.gpu.tile.lower.statements import Staging, TileLowering, array_bytes
from hidet.gpu.tile.lower.store import StagedParts, rows_layout
from hidet.gpu.tile.tensors import RTile, STile, matrices_of
from hidet.gpu.weights import with_weights
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.visit import walk
from hidet.target import GpuTarget

CLUSTER = 2
"""Blocks that share copies: a box comes once from the second-level cache for all of them."""
TILE_INDICES = 2
"""Indices of a grid that count tiles of a matrix, columns and then rows, whose order lowerings choose."""
# Statements that each warp does for itself, without meeting others.
_OF_ONE_WARP = (t.Fill, t.Fetch, t.Map, t.Store)
# Elements of tiles that leave enough of the 168 registers that all threads start with. Lanes that finish parts of
# transposed tiles have more neighbours on their way.
_MOST_HELD, _MOST_HELD_TRANSPOSED = 80, 64
_FEW_GROUPS = 2
"""Warp groups whose threads start with so many registers; those of more groups with fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A kernel whose blocks of `threads` threads walk over its grid, and the tensor maps it takes, its last parameters.

    It is launched over one index, with any number of blocks. shared_bytes: what a block needs of shared memory.
    """

    function: Function
    threads: int
    maps: tuple[OwnMap, ...]
    shared_bytes: int


def fits_pipeline(kernel: TileKernel) -> bool:
    """Whether a kernel has the shape: a known grid, loads in one ring of products of warp groups, from matrices in
    memory whose rows start at multiples of 16 bytes. That rows do not overlap is for the caller to know."""
    rings = [stmt for stmt in kernel.body if isinstance(stmt, t.Ring)]
    others = [stmt for stmt in kernel.body if not isinstance(stmt, t.Ring)]
    if len(rings) != 1 or not kernel.grid or not all(isinstance(stmt, _OF_ONE_WARP) for stmt in others):
        return False
    (ring,) = rings
    products = [stmt for stmt in ring.body if isinstance(stmt, t.Mma)]
    if not products or not all(fits_warp_groups(stmt, kernel.warps) for stmt in products):
        return False
    if not all(isinstance(stmt, (t.Mma, *_OF_ONE_WARP)) for stmt in ring.body):
        return False
    return all(box_map(load, ring.stages, kernel) is not None for load in ring.loads)


def can_share_copies(kernel: TileKernel) -> bool:
    """Whether pairs of blocks of the warp-specialized kernel can share copies."""
    (ring,) = (stmt for stmt in kernel.body if isinstance(stmt, t.Ring))
    return len(kernel.grid) >= TILE_INDICES and any(
        shared_map(load, kernel, CLUSTER, build.index(0)) is not None for load in ring.loads
    )


def lower_pipeline(
    kernel: TileKernel, target: GpuTarget, *, shares_copies: bool = False, weights: Collection[Var] = ()
) -> Pipeline:
    """The warp-specialized kernel for a device; `fits_pipeline` says whether there is one.

    shares_copies: whether blocks are launched in clusters of `CLUSTER`, which multiply tiles one below the other and
    each copy a half of what both multiply with; `can_share_copies` says whether they can. weights: parameters that
    point to weights. What a block loads of these first, it begins to copy before anything else.
    """
    (ring,) = (stmt for stmt in kernel.body if isinstance(stmt, t.Ring))
    threads = block_threads(kernel.warps)
    rank = build.size_var("rank")
    sharers = CLUSTER if shares_copies else 1
    maps = _source_maps(ring, kernel, sharers, rank)
    stages = Stages(ring.stages)
    other = build.cast(CLUSTER - 1 - rank, dtypes.i32) if shares_copies else None
    consumer = _Consumer(kernel, threads, stages, target, other)
    block = build.size_var("block")
    multipliers = kernel.threads
    warp = build.size_var("warp")
    are_weights = [_reads_one_of(load, weights) for load in ring.loads]
    turn = build.size_var("turn")
    is_begun = build.equal(turn, 0) if any(are_weights) else None
    boxes = copy_stages(ring, maps, consumer.shared, stages, are_weights, is_begun)
    copied = build.seq([boxes, *consumer.operand_copies()])
    # Where all threads went on to one place behind their roles, the compiler would take warps that multiply for split.
    end = s.Evaluate(intrinsic_call("cuda.grid_dependency_end"))
    copies: s.Stmt = build.seq([*stages.declared(), _walk_tiles(kernel, block, copied, sharers, rank, turn), end])
    copies = s.If(build.equal(threads.thread, multipliers), copies)
    tiles = _walk_tiles(kernel, block, consumer.tile(), sharers, rank, build.size_var("turn"))
    work: s.Stmt = build.seq([*stages.declared(), tiles, *consumer.finished()])
    all_maps = [*own_maps(maps), *consumer.maps()]
    copiers = WARP
    if consumer.is_alone():
        # Warps of a fourth of the multiprocessor share its registers: what the copying ones do not need, others get.
        copiers = GROUP
        many, few = SHARED_REGISTERS[multipliers // GROUP]
        copies = build.seq([registers("decrease", few), copies])
        work = build.seq([registers("increase", many), work])
    early: list[s.Stmt] = []
    if any(are_weights):
        begun = begin_stages(ring, maps, consumer.shared, stages, are_weights)
        early = [s.If(build.equal(threads.thread, multipliers), _first_tile(kernel, block, begun, sharers, rank))]
    body = build.seq(
        [
            *positions(threads, warp),
            *([s.Declare(rank, block % sharers)] if sharers > 1 else []),
            *(s.Declare(var) for var in (*consumer.shared_arrays(), stages.barriers)),
            s.If(
                build.equal(threads.thread, 0),
                build.seq([*prefetched(all_maps), stages.made(multipliers // WARP * sharers)]),
            ),
            *(_meet_in_cluster() if sharers > 1 else [s.Evaluate(intrinsic_call("gpu.syncthreads"))]),
            *early,
            s.If(build.binary("ge", warp, multipliers // WARP), copies, work),
            # Other blocks copy to a block's shared memory, and arrive at its barriers, as long as they work.
            *(_meet_in_cluster() if sharers > 1 else []),
        ]
    )
    count = multipliers + copiers
    attributes = (("block", (count, 1, 1)), *((MOVED_REGISTERS,) if copiers == GROUP else ()))
    params = (*kernel.params, *(described.var for described in all_maps))
    function = Function(kernel.name, params, body, "kernel", (block,), None, attributes)
    of_weights = own_maps([found for found, is_one in zip(maps, are_weights, strict=True) if is_one])
    function = with_weights(function, [found.var for found in of_weights])
    return Pipeline(function, count, tuple(all_maps), consumer.shared_bytes())


def _source_maps(ring: t.Ring, kernel: TileKernel, sharers: int, rank: Var) -> list[SourceMap]:
    """The map of each load of the ring, of a part of its tile where `sharers` blocks share that."""
    maps: list[SourceMap] = []
    for load in ring.loads:
        found = (shared_map(load, kernel, sharers, rank) if sharers > 1 else None) or source_map(load, kernel)
        assert found is not None
        if isinstance(found, MatrixMap) and _has_separate_rows(load, ring):
            found = replace(found, leaves_rest=True)
        maps.append(found)
    return maps


def _has_separate_rows(load: t.Load, ring: t.Ring) -> bool:
    """Whether a row of a load's tile is for one row or column of products alone: nothing else tells what is in it."""
    products = [stmt for stmt in ring.body if isinstance(stmt, t.Mma)]
    operands = [pair for mma in products for pair in ((mma.a, not mma.a_is_transposed), (mma.b, mma.b_is_transposed))]
    uses = [is_separate for tile, is_separate in operands if tile is load.target]
    return bool(uses) and all(uses)


def _reads_one_of(load: t.Load, params: Collection[Var]) -> bool:
    """Whether a load is of matrices that parameters among these point to."""
    matrices = matrices_of(load.source)
    return bool(matrices) and all(any(node in params for node in walk(matrix.pointer)) for matrix in matrices)


def _meet_in_cluster() -> list[s.Stmt]:
    """All threads of the cluster meet. One lane of the warp that copies comes later than the others."""
    return [
        s.Evaluate(intrinsic_call("gpu.syncwarp", ALL_LANES)),
        s.Evaluate(intrinsic_call("cuda.cluster_arrive")),
        s.Evaluate(intrinsic_call("cuda.cluster_wait")),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Tiles:
    """The tiles of a persistent kernel: how many there are, of which a block takes number `first` and then every
    `blocks`-th one, and what declares the indices of tile number `item`."""

    total: Expr
    first: Expr
    blocks: Expr
    item: Var
    placed: tuple[s.Stmt, ...]


def _tiles(kernel: TileKernel, block: Var, sharers: int, rank: Var) -> _Tiles:
    """`sharers` blocks that share copies, each with its `rank`, take tiles one below the other, of which the last ones
    may lie below the matrix."""
    item = build.size_var("item")
    blocks = build.cast(intrinsic_call("gpu.grid_dim.x"), dtypes.i64)
    first: Expr = block
    grid, grid_vars, placed = kernel.grid, kernel.grid_vars, list[s.Stmt]()
    if sharers > 1:
        columns, rows, *outer = kernel.grid
        column, row, *others = kernel.grid_vars
        group = build.size_var("group_of_rows")
        first, blocks = block // sharers, blocks // sharers
        grid = (columns, (rows + (sharers - 1)) // sharers, *outer)
        grid_vars, placed = (column, group, *others), [s.Declare(row, group * sharers + rank)]
    total: Expr = grid[0]
    for extent in grid[1:]:
        total = total * extent
    indices = (*tile_indices(grid_vars, grid, item), *placed)
    return _Tiles(total, first, blocks, item, (*indices, *(s.Declare(*pair) for pair in kernel.index_values)))


def _first_tile(kernel: TileKernel, block: Var, body: s.Stmt, sharers: int, rank: Var) -> s.Stmt:
    """`body` for the first tile that a block takes, if it takes any."""
    tiles = _tiles(kernel, block, sharers, rank)
    return s.If(tiles.first < tiles.total, build.seq([s.Declare(tiles.item, tiles.first), *tiles.placed, body]))


def _walk_tiles(kernel: TileKernel, block: Var, body: s.Stmt, sharers: int, rank: Var, turn: Var) -> s.Stmt:
    """`body` for every tile that a block of the persistent kernel takes, of which it is number `turn`."""
    tiles = _tiles(kernel, block, sharers, rank)
    each = [s.Declare(tiles.item, tiles.first + turn * tiles.blocks), *tiles.placed, body]
    count = tiles_of_block(tiles.total, tiles.first, tiles.blocks)
    return s.For(turn, build.index(0), count, build.seq(each))


class _Consumer(TileLowering):
    """The consumers: they multiply, map and store."""

    def __init__(
        self, kernel: TileKernel, threads: Threads, stages: Stages, target: GpuTarget, other: Expr | None
    ) -> None:
        super().__init__(kernel, threads, machine(FEATURES.__contains__))
        self._body = kernel.body
        self._stages = stages
        self._other = other
        self._operands = self._box_operands(kernel)
        self._boxes: dict[t.Store, BoxStores] = {}
        self._staging = self.staging_arrays(kernel)
        for node in self._staging:
            staging = self._staging_of(node)
            assert staging is not None
            boxes = None if staging.is_mapped_after else self._box_stores(node, staging, kernel, target)
            if boxes is not None:
                self._boxes[node] = boxes
                self._staging = self.staging_arrays(kernel)

    def _box_operands(self, kernel: TileKernel) -> dict[RTile, BoxOperand]:
        """What comes through the ring for tiles that are stored."""
        (ring,) = (stmt for stmt in kernel.body if isinstance(stmt, t.Ring))
        found: dict[RTile, BoxOperand] = {}
        for node in kernel.body:
            stored = self._stored_map(node.source) if isinstance(node, t.Store) else None
            if isinstance(node, t.Store) and stored is not None:
                operand = box_operand(node, stored, ring, kernel, self.shared)
                if operand is not None and rows_layout(node, kernel.warps, 1) is not None:
                    found[node.source] = operand
        return found

    def _finish_layout(self, node: t.Store, stored: StoredMap, together: int) -> SharedLayout | None:
        """None where what is added to products comes through the ring."""
        return None if node.source in self._operands else super()._finish_layout(node, stored, together)

    def _part(self, tile: RTile, first: tuple[Expr, Expr], pieces: int) -> tuple[list[s.Stmt], Element]:
        """With what comes through the ring."""
        operand, stored = self._operands.get(tile), self._stored_map(tile)
        if operand is None or stored is None:
            return super()._part(tile, first, pieces)
        part = part_of(operand.fetch, pieces)
        given_back = self._give_back(self._stages.slot)
        read = operand.read(first[1] // pieces, part, self.threads, self._stages, given_back)
        others = [fetch for fetch in stored.fetches if fetch is not operand.fetch]
        fetched, parts = self._fetched_parts(others, first, pieces)
        element = self._mapped(stored.map, {**parts, part.tile: held_element(part, first)})
        return [s.Declare(part.buffer), *read, *fetched], element

    def operand_copies(self) -> list[s.Stmt]:
        """What the producer copies behind the last step of a tile."""
        return [operand.copied(self._stages) for operand in self._operands.values()]

    def _box_stores(self, node: t.Store, staging: Staging, kernel: TileKernel, target: GpuTarget) -> BoxStores | None:
        """How TMA writes what is staged of a store, without room for it keeping a block out of the multiprocessor."""
        part = staging.parts.size * staging.parts.tile.dtype.nbytes
        if part < SWIZZLED_BYTES:
            return None
        nbytes, threads = self.shared_bytes(), kernel.threads + WARP
        resident = 1 if self.is_alone() else resident_blocks(nbytes, threads, target)

        def fits(more: int) -> bool:
            needed = nbytes + more * part
            return needed <= target.block_shared_memory and resident_blocks(needed, threads, target) >= resident

        return box_stores(node, staging.parts, kernel, fits)

    def _staged_parts(self, node: t.Store) -> StagedParts | None:
        return self._boxes.get(node)

    def maps(self) -> list[MatrixMap]:
        """The tensor maps of what is stored, and of what comes for that."""
        read = [operand.described for operand in self._operands.values()]
        return [*read, *(boxes.described for boxes in self._boxes.values())]

    def finished(self) -> list[s.Stmt]:
        """What is waited for behind the last tile."""
        return [boxes.finish() for boxes in self._boxes.values()]

    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        arrays = (*self.shared_arrays(), self._stages.barriers)
        return sum(map(array_bytes, arrays))

    def is_alone(self) -> bool:
        """Whether threads hold so many elements that a block has all registers of a multiprocessor."""
        held = sum(math.prod(fragment.extents) for fragment in self.fragments.values())
        is_transposed = any(tile.is_transposed for tile in self.fragments)
        most, groups = _MOST_HELD_TRANSPOSED if is_transposed else _MOST_HELD, self.threads.count // GROUP
        return groups in SHARED_REGISTERS and held > (most if groups <= _FEW_GROUPS else most // 2)

    def shared_arrays(self) -> list[Var]:
        """What the kernel declares in shared memory, but for barriers."""
        return [*self.shared.values(), *self._staging.values()]

    def tile(self) -> s.Stmt:
        """What is done for one tile of the grid."""
        declared = [s.Declare(fragment.buffer) for fragment in self.fragments.values()]
        return build.seq([*declared, self.stmts(self._body)])

    def ring(self, node: t.Ring) -> s.Stmt:
        """A loop over stages, which are given back when they are read."""
        for load in node.loads:
            self._stage[load.target] = self._stages.slot
        products = [stmt for stmt in node.body if isinstance(stmt, t.Mma)]
        sums = [self.fragments[product.accumulator] for product in products]
        runs_on = len(products) == len(node.body)
        loop = self._loop_that_runs_on(node, sums) if runs_on else self._loop_that_waits(node, sums)
        for load in node.loads:
            del self._stage[load.target]
        return loop

    def _loop_that_runs_on(self, node: t.Ring, sums: Sequence[Fragment]) -> s.Stmt:
        """The products of a stage run while those of the next one are started; then it is given back."""
        stages, before = self._stages, build.size_var("before")
        steps = [
            barrier("wait", stages.full(), stages.phase),
            self.stmts(node.body),
            wait_for_groups(len(sums)),
            s.If(before >= 0, self._give_back(before)),
            s.Assign(before, stages.slot),
            stages.advanced(),
        ]
        loop = s.For(node.index, build.index(0), node.extent, build.seq(steps))
        finished = finished_loop(node.extent, loop, sums, self._give_back(before))
        return build.seq([s.Declare(before, build.index(-1)), finished])

    def _loop_that_waits(self, node: t.Ring, sums: Sequence[Fragment]) -> s.Stmt:
        """The products of a stage are waited for, before what is computed on them; another warp group multiplies
        meanwhile."""
        last = max(at for at, stmt in enumerate(node.body) if isinstance(stmt, t.Mma)) + 1
        steps = [
            barrier("wait", self._stages.full(), self._stages.phase),
            self.stmts(node.body[:last]),
            *map(finish_groups, sums),
            self._give_back(self._stages.slot),
            self.stmts(node.body[last:]),
            self._stages.advanced(),
        ]
        return s.For(node.index, build.index(0), node.extent, build.seq(steps))

    def _give_back(self, slot: Expr) -> s.Stmt:
        """Say that the warp has read a stage."""
        said = self._stages.give_back(slot, self._other)
        return s.If(build.equal(self.threads.lane, 0), build.seq(said))

    def _staging_place(self, node: t.Store, staging: Staging) -> Expr | None:
        """Memory of its own, because stages are filled for the next tile meanwhile."""
        return self._staging[node]

    def mma(self, node: t.Mma) -> s.Stmt:
        """Start a product."""
        assert isinstance(node.a, STile)
        operands, is_added = (self._operand(node.a), self._operand(node.b)), node.accumulator not in self._fresh
        self._fresh.discard(node.accumulator)
        return start_in_groups(node, self.fragments[node.accumulator], operands, self.threads, is_added=is_added)
