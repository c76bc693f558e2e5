"""Warp-specialized kernels, for sm_90a: a warp group copies, others compute, each as far ahead as the stages let it be.

Warp groups that compute do not meet in the ring, so that one is multiplied while another one computes on its results.
One thread has whole boxes copied by TMA where tensor maps can say where the matrices lie. Of other matrices in memory
threads ask for parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tile.box_loads import copy_stages, prefetched
from hidet.cuda.tile.machine import COPIES, machine
from hidet.cuda.tile.maps import SourceMap, box_map
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
from hidet.cuda.tile.warp_group import finish_groups, fits_warp_groups, start_together
from hidet.errors import ScheduleError
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import WARP, TileKernel
from hidet.gpu.tile.lower.copy import box_copy, is_in_background
from hidet.gpu.tile.lower.fragment import ALL_LANES, Threads, block_threads
from hidet.gpu.tile.lower.statements import Staging, TileLowering, array_bytes
from hidet.gpu.tile.tensors import RTile, STile
from hidet.gpu.tile.walk import all_stmts, tiles_of
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function

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
    maps: tuple[SourceMap, ...] = ()


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
    if not fits_warp_specialization(kernel):
        raise ScheduleError(f"kernel {kernel.name} has no ring of copies and products for a warp-specialized block")
    (ring,) = (stmt for stmt in kernel.body if isinstance(stmt, t.Ring))
    threads, stages = block_threads(kernel.warps), Stages(ring.stages)
    computing = _Computing(kernel, threads, stages)
    warp = build.size_var("warp")
    multipliers = kernel.threads // WARP
    many, few = SHARED_REGISTERS[kernel.threads // GROUP]
    maps = () if counts is None else _maps(ring, kernel, counts)
    copied = _box_copies(ring, maps, computing, stages) if maps else _copies(ring, computing, stages)
    copies = build.seq([registers("decrease", few), *copied])
    work = build.seq([registers("increase", many), *computing.stmts_of(kernel)])
    body = build.seq(
        [
            *positions(threads, warp),
            *(s.Declare(var, value) for var, value in kernel.index_values),
            *(s.Declare(var) for var in (*computing.shared_arrays(), stages.barriers)),
            s.If(
                build.equal(threads.thread, 0),
                build.seq([*prefetched(maps), stages.made(multipliers, 1 if maps else GROUP // WARP)]),
            ),
            s.Evaluate(intrinsic_call("gpu.syncthreads")),
            s.If(build.binary("ge", warp, multipliers), copies, work),
        ]
    )
    count = kernel.threads + GROUP
    attributes = (("block", (count, 1, 1)), MOVED_REGISTERS)
    params = (*kernel.params, *(described.var for described in maps))
    function = Function(kernel.name, params, body, "kernel", kernel.grid_vars, None, attributes)
    return WarpSpecializedKernel(function, count, maps)


def _maps(ring: t.Ring, kernel: TileKernel, counts: Mapping[Var, Expr]) -> tuple[SourceMap, ...]:
    """A map for each load of the ring; none where one of them has none."""
    found = [box_map(load, ring.stages, kernel, counts) for load in ring.loads]
    known = tuple([described for described in found if described is not None])
    return known if len(known) == len(found) else ()


def _box_copies(ring: t.Ring, maps: Sequence[SourceMap], computing: _Computing, stages: Stages) -> list[s.Stmt]:
    """The producer by TMA: one thread."""
    leader = build.equal(computing.threads.thread, computing.threads.count)
    boxes = copy_stages(ring, maps, computing.shared, stages)
    return [s.If(leader, build.seq([*stages.declared(), boxes]))]


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
    """The consumers: they multiply, map and store."""

    def __init__(self, kernel: TileKernel, threads: Threads, stages: Stages) -> None:
        super().__init__(kernel, threads, machine(FEATURES.__contains__))
        self._stages = stages
        self._staging = self.staging_arrays(kernel)
        needed = max(map(array_bytes, self._staging.values()), default=0)
        unread = [self.shared[tile] for tile in _unread_tiles(kernel, tuple(self._staging))]
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

    def stmts_of(self, kernel: TileKernel) -> list[s.Stmt]:
        """The body of the kernel."""
        declared = [s.Declare(fragment.buffer) for fragment in self.fragments.values()]
        return [*declared, *self._stages.declared(), self.stmts(kernel.body)]

    def _start(self, node: t.Load) -> s.Stmt:
        """A load before the ring, of which nothing was read before."""
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
        stages = self._stages
        for load in node.loads:
            self._stage[load.target] = stages.slot
        read = barrier("arrive_at", stages.empty(stages.slot))
        steps = [
            barrier("wait", stages.full(), stages.phase),
            self.stmts(node.body),
            s.If(build.equal(self.threads.lane, 0), read),
            stages.advanced(),
        ]
        for load in node.loads:
            del self._stage[load.target]
        return s.For(node.index, build.index(0), node.extent, build.seq(steps))

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
