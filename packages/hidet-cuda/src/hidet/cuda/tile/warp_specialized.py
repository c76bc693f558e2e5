"""Warp-specialized kernels, for sm_90a: a warp group copies, others compute, each as far ahead as the stages let it be.

Warp groups that compute do not meet in the ring, so that one is multiplied while another one computes on its results.
One thread has whole boxes copied by TMA where tensor maps can say where the matrices lie. Of other matrices in memory
threads ask for parts. Where maps say where all lie that is loaded, a kernel may be persistent: blocks take tiles in
turn, and copies for the next one run while results are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tile.box_loads import copy_stages, copy_tiles, prefetched
from hidet.cuda.tile.machine import COPIES, machine
from hidet.cuda.tile.maps import OwnMap, SourceMap, box_map, own_maps
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
from hidet.cuda.tile.warp_group import begin_ping_pong, finish_groups, fits_warp_groups, start_together
from hidet.errors import ScheduleError
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import WARP, TileKernel
from hidet.gpu.tile.lower.copy import box_copy, is_in_background
from hidet.gpu.tile.lower.fragment import ALL_LANES, Threads, block_threads
from hidet.gpu.tile.lower.order import tiles_of_block
from hidet.gpu.tile.lower.statements import Staging, TileLowering, array_bytes
from hidet.gpu.tile.tensors import RTile, STile
from hidet.gpu.tile.walk import all_stmts, tiles_of
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.target import GpuTarget

_GROUPS = (2, 3)
"""How many warp groups compute; four would have few registers."""
_COMPUTE_BARRIER = 1
"""The named barrier of the threads that compute."""


@dataclass(frozen=True, slots=True, eq=False)
class WarpSpecializedKernel:
    """A kernel for blocks of `threads` threads, launched as the kernel in tiles would be, and the tensor maps it takes,
    its last parameters."""

    function: Function
    threads: int
    maps: tuple[OwnMap, ...] = ()


def fits_warp_specialization(kernel: TileKernel) -> bool:
    """Whether a kernel has the shape: two or three warp groups that share its rows, one ring of at least two stages, in
    which are copies in the background and products of warp groups."""
    rings = [stmt for stmt in kernel.body if isinstance(stmt, t.Ring)]
    groups, others = divmod(kernel.threads, GROUP)
    if len(rings) != 1 or kernel.grid or kernel.warps[1] != 1 or groups not in _GROUPS or others:
        return False
    (ring,) = rings
    products = [stmt for stmt in all_stmts(ring.body) if isinstance(stmt, t.Mma)]
    return (
        ring.stages >= 2
        and all(is_in_background(load.source) for load in ring.loads)
        and all(fits_warp_groups(product, kernel.warps) for product in products)
    )


def lower_warp_specialized(kernel: TileKernel, counts: Mapping[Var, Expr] | None = None) -> WarpSpecializedKernel:
    """The warp-specialized kernel. ScheduleError where `fits_warp_specialization` says that there is none.

    counts: how many matrices indices of the block count, for tensor maps; that rows do not overlap is for the caller to
    know. None for copies by threads.
    """
    ring = _ring_of(kernel)
    threads, stages = block_threads(kernel.warps), Stages(ring.stages)
    computing = _Computing(kernel, threads, stages)
    maps = () if counts is None else _maps(ring.loads, ring.stages, kernel, counts)
    copied = _box_copies(ring, maps, computing, stages) if maps else _copies(ring, computing, stages)
    multipliers = kernel.threads // WARP
    made = stages.made(multipliers, 1 if maps else GROUP // WARP)
    block = _Block(kernel, threads, build.size_var("warp"), (*computing.shared_arrays(), stages.barriers), maps)
    work = [*stages.declared(), *computing.begun(), *computing.tile(kernel)]
    function = block.function(kernel.grid_vars, kernel.index_values, [made], copied, work)
    return WarpSpecializedKernel(function, kernel.threads + GROUP, tuple(own_maps(maps)))


def lower_persistent(kernel: TileKernel, counts: Mapping[Var, Expr], target: GpuTarget) -> WarpSpecializedKernel | None:
    """The persistent kernel, launched with any number of blocks up to that of tiles; None where tensor maps do not
    describe all that it loads, or there is no room for results beside the stages. ScheduleError as of
    `lower_warp_specialized`.

    kernel: its grid has one index. counts: as of `lower_warp_specialized`.
    """
    ring = _ring_of(replace(kernel, grid=()))
    before = tuple(stmt for stmt in kernel.body if isinstance(stmt, t.Load))
    maps = _maps(ring.loads, ring.stages, kernel, counts)
    maps_before = _maps(before, 1, kernel, counts)
    if not maps or not maps_before:
        return None
    threads, stages = block_threads(kernel.warps), Stages(ring.stages)
    # Where there is room, what the next tile needs before its ring comes while this one is finished.
    for once in (Stages(2), Stages(1)):
        computing = _Computing(kernel, threads, stages, once)
        arrays = (*computing.shared_arrays(), stages.barriers, once.barriers)
        if sum(map(array_bytes, arrays)) <= target.block_shared_memory:
            break
    else:
        return None
    number, warp = build.size_var("block"), build.size_var("warp")
    multipliers = kernel.threads // WARP
    started = [*stages.declared(), *once.declared()]
    # The first stage of a tile has room before what is loaded before the ring may have it.
    behind = copy_tiles(before, maps_before, computing.shared, once)
    boxes = copy_stages(ring, maps, computing.shared, stages, behind_first=behind)
    # All of a warp walk, because values of a tile may be shuffled among its threads; one of them copies.
    walk = _walk_tiles(kernel, number, s.If(_is_copying(threads), boxes))
    copied = s.If(build.equal(warp, multipliers), build.seq([*started, walk]))
    work = [*started, *computing.begun(), _walk_tiles(kernel, number, build.seq(computing.tile(kernel)))]
    made = [stages.made(multipliers), once.made(multipliers)]
    block = _Block(kernel, threads, warp, arrays, (*maps, *maps_before))
    function = block.function((number,), (), made, [copied], work)
    return WarpSpecializedKernel(function, kernel.threads + GROUP, tuple(own_maps(block.maps)))


def _ring_of(kernel: TileKernel) -> t.Ring:
    """The ring of a kernel that fits. ScheduleError for others."""
    if not fits_warp_specialization(kernel):
        raise ScheduleError(f"kernel {kernel.name} has no ring of copies and products for a warp-specialized block")
    (ring,) = (stmt for stmt in kernel.body if isinstance(stmt, t.Ring))
    return ring


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """What all blocks have in common whose warp groups compute but for one, which copies. warp: the number of one.
    arrays: in shared memory."""

    kernel: TileKernel
    threads: Threads
    warp: Var
    arrays: tuple[Var, ...]
    maps: tuple[SourceMap, ...]

    def function(
        self,
        grid_vars: tuple[Var, ...],
        values: Sequence[tuple[Var, Expr]],
        made: Sequence[s.Stmt],
        copied: Sequence[s.Stmt],
        work: Sequence[s.Stmt],
    ) -> Function:
        """The kernel. values: what all threads compute first. made: makes barriers, in one thread. copied, work: what
        the two kinds of groups do."""
        kernel, threads, warp = self.kernel, self.threads, self.warp
        many, few = SHARED_REGISTERS[kernel.threads // GROUP]
        body = build.seq(
            [
                *positions(threads, warp),
                *(s.Declare(var, value) for var, value in values),
                *(s.Declare(var) for var in self.arrays),
                s.If(build.equal(threads.thread, 0), build.seq([*prefetched(own_maps(self.maps)), *made])),
                s.Evaluate(intrinsic_call("gpu.syncthreads")),
                s.If(
                    build.binary("ge", warp, kernel.threads // WARP),
                    build.seq([registers("decrease", few), *copied]),
                    build.seq([registers("increase", many), *work]),
                ),
            ]
        )
        attributes = (("block", (kernel.threads + GROUP, 1, 1)), MOVED_REGISTERS)
        params = (*kernel.params, *(described.var for described in own_maps(self.maps)))
        return Function(kernel.name, params, body, "kernel", grid_vars, None, attributes)


def _walk_tiles(kernel: TileKernel, block: Var, body: s.Stmt) -> s.Stmt:
    """`body` for every tile that a block takes. Rounds go through the blocks to and fro: tiles that take less time the
    later they come make blocks that take equally long."""
    (number,), (total,) = kernel.grid_vars, kernel.grid
    turn, blocks = build.size_var("turn"), build.size_var("blocks")
    goes_back = build.equal(turn % 2, 1)
    tile = [
        s.Declare(number, turn * blocks + build.select(goes_back, blocks - 1 - block, block)),
        s.If(number < total, build.seq([*(s.Declare(var, value) for var, value in kernel.index_values), body])),
    ]
    return build.seq(
        [
            s.Declare(blocks, build.cast(intrinsic_call("gpu.grid_dim.x"), dtypes.i64)),
            s.For(turn, build.index(0), tiles_of_block(total, build.index(0), blocks), build.seq(tile)),
        ]
    )


def _is_copying(threads: Threads) -> Expr:
    """Whether a thread is the one that has TMA copy."""
    return build.equal(threads.thread, threads.count)


def _maps(
    loads: Sequence[t.Load], stages: int, kernel: TileKernel, counts: Mapping[Var, Expr]
) -> tuple[SourceMap, ...]:
    """A map for each load; none where one of them has none."""
    found = [box_map(load, stages, kernel, counts) for load in loads]
    known = tuple([described for described in found if described is not None])
    return known if len(known) == len(found) else ()


def _box_copies(ring: t.Ring, maps: Sequence[SourceMap], computing: _Computing, stages: Stages) -> list[s.Stmt]:
    """The producer by TMA: one thread."""
    boxes = copy_stages(ring, maps, computing.shared, stages)
    return [s.If(_is_copying(computing.threads), build.seq([*stages.declared(), boxes]))]


def _copies(ring: t.Ring, computing: _Computing, stages: Stages) -> list[s.Stmt]:
    """The producer: one stage after the other as they become empty.

    Each warp says that a stage is full when it has started a few further ones, so that several are on their way. One
    that is read and one that is said to be full are none of these.
    """
    own, ahead = block_threads((GROUP // WARP, 1)), ring.stages - 2
    filled = Stages(ring.stages, stages.barriers)
    copies = [box_copy(load, computing.shared[load.target], own, COPIES, ring.index) for load in ring.loads]
    steps = [
        # A fresh barrier counts as having completed the phase before its first one.
        barrier("wait", stages.empty(stages.slot), build.binary("xor", stages.phase, 1)),
        *[copy.start({}, stages.slot) for copy in copies],
        COPIES.commit(),
        stages.advanced(),
        s.If(build.binary("ge", ring.index, ahead), build.seq(_said(filled, own.lane, ahead))),
    ]
    rest = build.size_var("rest")
    return [
        s.Declare(own.thread, computing.threads.thread - computing.threads.count),
        s.Declare(own.lane, own.thread % WARP),
        *stages.declared(),
        *filled.declared(),
        *[stmt for copy in copies for stmt in copy.before],
        s.For(ring.index, build.index(0), ring.extent, build.seq(steps)),
        s.For(rest, build.index(0), build.minimum(ring.extent, ahead), build.seq(_said(filled, own.lane, 0))),
    ]


def _said(stages: Stages, lane: Expr, ahead: int) -> list[s.Stmt]:
    """A warp says that the next stage is full, once all but the last `ahead` copies have arrived."""
    return [
        COPIES.wait(ahead),
        s.Evaluate(intrinsic_call("cuda.fence_async_shared")),
        s.Evaluate(intrinsic_call("gpu.syncwarp", ALL_LANES)),
        s.If(build.equal(lane, 0), barrier("arrive_at", stages.full())),
        stages.advanced(),
    ]


class _Computing(TileLowering):
    """The consumers: they multiply, map and store. once: of a persistent kernel, the stages of what is loaded before
    the ring, one a tile, which is copied like the others; None where these threads copy it."""

    def __init__(self, kernel: TileKernel, threads: Threads, stages: Stages, once: Stages | None = None) -> None:
        super().__init__(kernel, threads, machine(FEATURES.__contains__), once=once.count if once else 1)
        self._stages, self._once = stages, once
        self._before = [stmt.target for stmt in kernel.body if isinstance(stmt, t.Load)]
        self._is_ping_pong = _has_overlapped(kernel.body)
        self._staging = self.staging_arrays(kernel)
        needed = max(map(array_bytes, self._staging.values()), default=0)
        # Of a persistent kernel there is the next tile by then.
        unread = [] if once else [self.shared[tile] for tile in _unread_tiles(kernel, tuple(self._staging))]
        self._idle = [array for array in unread if array_bytes(array) >= needed]

    def shared_arrays(self) -> list[Var]:
        """What the kernel declares in shared memory, but for barriers."""
        return [*self.shared.values(), *(() if self._idle else self._staging.values())]

    def stmts(self, nodes: tuple[t.TileStmt, ...]) -> s.Stmt:
        """Statements one after the other. A product with what lies in registers, which the next one replaces, runs on
        while what comes of that is computed."""
        for at, node in enumerate(nodes):
            if _is_overlapped(node, nodes[at + 1 :]):
                return build.seq([super().stmts(nodes[:at]), self._overlapped(nodes[at:])])
        return super().stmts(nodes)

    def _overlapped(self, nodes: tuple[t.TileStmt, ...]) -> s.Stmt:
        """A product in registers, zeros and a product that replace its operand, and what follows them."""
        second, _, first, *rest = nodes
        assert isinstance(first, t.Mma) and isinstance(first.a, STile)
        assert isinstance(second, t.Mma) and isinstance(second.a, RTile)
        sums, scores = self.fragments[second.accumulator], self.fragments[first.accumulator]
        started = start_together(
            (first, second),
            (scores, sums),
            (self._operand(first.a), self._operand(first.b)),
            (self.fragments[second.a], self._operand(second.b)),
            self.threads,
        )
        reads = (n for n, stmt in enumerate(rest) if second.accumulator in tiles_of([stmt]))
        last = next(reads, len(rest))
        return build.seq(
            [
                started,
                finish_groups(scores, 1),
                self.stmts(tuple(rest[:last])),
                finish_groups(sums),
                self.stmts(tuple(rest[last:])),
            ]
        )

    def begun(self) -> list[s.Stmt]:
        """What is done before the first tile."""
        return [begin_ping_pong(self.threads)] if self._is_ping_pong else []

    def tile(self, kernel: TileKernel) -> list[s.Stmt]:
        """What is done for a tile of the grid."""
        return [*(s.Declare(fragment.buffer) for fragment in self.fragments.values()), self.stmts(kernel.body)]

    def _start(self, node: t.Load) -> s.Stmt:
        """A load before the ring, of which nothing was read before."""
        if self._once is not None:
            return s.Seq(())
        copy = box_copy(node, self.shared[node.target], self.threads, COPIES)
        return build.seq(
            [
                *copy.before,
                copy.start({}, build.index(0)),
                COPIES.wait_all(),
                *self._visible(),
                self._met(),
            ]
        )

    def ring(self, node: t.Ring) -> s.Stmt:
        """A stage is given back when all that is done with it is done."""
        stages, once = self._stages, self._once
        read = {load.target: stages.slot for load in node.loads}
        read |= dict.fromkeys(self._before, once.slot) if once else {}
        self._stage.update(read)
        steps = [
            barrier("wait", stages.full(), stages.phase),
            self.stmts(node.body),
            self._given_back(stages),
            stages.advanced(),
        ]
        for tile in read:
            del self._stage[tile]
        loop = s.For(node.index, build.index(0), node.extent, build.seq(steps))
        if once is None:
            return loop
        # It is copied behind the first stage, if there is any.
        whole = [barrier("wait", once.full(), once.phase), loop, self._given_back(once), once.advanced()]
        return s.If(node.extent > 0, build.seq(whole))

    def _given_back(self, stages: Stages) -> s.Stmt:
        """Say that the warp has read the next stage."""
        return s.If(build.equal(self.threads.lane, 0), build.seq(stages.give_back(stages.slot)))

    def store(self, node: t.Store) -> s.Stmt:
        """Through memory that all have to have read."""
        stored = super().store(node)
        return build.seq([self._met(), stored]) if self._idle and node in self._staging else stored

    def _met(self) -> s.Stmt:
        """The threads that compute meet."""
        return s.Evaluate(intrinsic_call("cuda.barrier_sync", _COMPUTE_BARRIER, self.threads.count))

    def _staging_place(self, node: t.Store, staging: Staging) -> Expr | None:
        """Memory of what was loaded before the ring, or of its own, because other warps still read the stages."""
        return super()._staging_place(node, staging) if self._idle else self._staging[node]


def _unread_tiles(kernel: TileKernel, stores: Sequence[t.Store]) -> list[STile]:
    """Shared tiles that nobody reads any more when `stores` write: those of loads before the ring, where nothing is
    stored before."""
    at = next(at for at, stmt in enumerate(kernel.body) if isinstance(stmt, t.Ring))
    before, after = kernel.body[:at], kernel.body[at + 1 :]
    if any(store in before for store in stores):
        return []
    read = tiles_of(after)
    return [stmt.target for stmt in before if isinstance(stmt, t.Load) and stmt.target not in read]


def _has_overlapped(nodes: tuple[t.TileStmt, ...]) -> bool:
    """Whether products in statements, or inside of them, are overlapped with what is computed on others."""
    inner = (node.body for node in nodes if isinstance(node, t.Ring | t.Loop | t.When))
    own = (_is_overlapped(node, nodes[at + 1 :]) for at, node in enumerate(nodes))
    return any(own) or any(map(_has_overlapped, inner))


def _is_overlapped(node: t.TileStmt, following: tuple[t.TileStmt, ...]) -> bool:
    """Whether a product reads registers that zeros and a product of shared tiles replace at once."""
    if not isinstance(node, t.Mma) or not isinstance(node.a, RTile) or len(following) < 2:
        return False
    zeros, product = following[:2]
    return (
        isinstance(zeros, t.Fill)
        and zeros.value.value == 0
        and isinstance(product, t.Mma)
        and isinstance(product.a, STile)
        and product.accumulator is zeros.target is node.a
    )
