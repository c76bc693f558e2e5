"""Stages of a ring between producer and consumer warps: which are full and which are empty say barriers in shared
memory."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.gpu.tile.kernel import WARP
from hidet.gpu.tile.lower.fragment import ALL_LANES, Threads
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.types import BufferType

FEATURES = frozenset({"wgmma", "stmatrix"})
"""What devices have that warp-specialized kernels are for."""
GROUP = 128
"""Threads of a warp group."""

SHARED_REGISTERS: Mapping[int, tuple[int, int]] = {2: (232, 40), 3: (152, 56), 4: (112, 32)}
"""By how many warp groups compute: the registers of each of their threads, and of those of the group that copies, which
together are all that the block starts with. A group that copies for another block too has too few with 32, and spills,
where three groups compute."""
MOVED_REGISTERS = ("min_blocks", 1)
"""An attribute: the assembler has to know how many registers a thread starts with, or it ignores that they move between
producers and consumers."""


class Stages:
    """The stages of a ring as producers or consumers go through them: the one that is next, and the parity of its
    phase.

    barriers: of the same stages as another one goes through them; None makes them.
    """

    def __init__(self, count: int, barriers: Var | None = None) -> None:
        self.count = count
        made = Var("barriers", BufferType(dtypes.u64, (build.index(2 * count),), None, "shared"))
        self.barriers = made if barriers is None else barriers
        self.slot, self.phase = build.size_var("slot"), Var("phase", dtypes.u32)

    def full(self) -> Expr:
        """The barrier of bytes that come."""
        return build.address(self.barriers, self.slot)

    def empty(self, slot: Expr) -> Expr:
        """The barrier of warps that have read."""
        return build.address(self.barriers, slot + self.count)

    def declared(self) -> list[s.Stmt]:
        """Start at stage 0."""
        return [s.Declare(self.slot, build.index(0)), s.Declare(self.phase, Const(0, dtypes.u32))]

    def advanced(self) -> s.Stmt:
        """Go on to the next stage."""
        around = [
            s.Assign(self.slot, build.index(0)),
            s.Assign(self.phase, build.binary("xor", self.phase, 1)),
        ]
        return build.seq(
            [s.Assign(self.slot, self.slot + 1), s.If(build.equal(self.slot, self.count), build.seq(around))]
        )

    def give_back(self, slot: Expr, other: Expr | None = None) -> list[s.Stmt]:
        """Say, by one thread, that a warp has read a stage: to its own block, and to the one of that number in the
        cluster, where that copies to this one."""
        own = [barrier("arrive_at", self.empty(slot))]
        return own if other is None else [*own, barrier("arrive_remote_relaxed", self.empty(slot), other)]

    def made(self, readers: int, writers: int = 1) -> s.Stmt:
        """Make all barriers, by one thread. readers, writers: how many arrive when they have read, or begun to fill,
        a stage."""
        stage = build.size_var("stage")
        each = [
            barrier("init", build.address(self.barriers, stage), Const(writers, dtypes.i32)),
            barrier("init", self.empty(stage), Const(readers, dtypes.i32)),
        ]
        loop = s.For(stage, build.index(0), build.index(self.count), build.seq(each), kind="unroll")
        return build.seq([loop, s.Evaluate(intrinsic_call("cuda.fence_barrier_init"))])


def positions(threads: Threads, warp: Var) -> list[s.Stmt]:
    """Declares where a thread stands, and which warp of the block it is in."""
    of_thread = intrinsic_call("gpu.thread_idx.x")
    # Taken from lane 0, so that the compiler knows it, and what is computed from it, to be the same for the warp.
    shuffled = intrinsic_call("gpu.shuffle", Const(ALL_LANES, dtypes.u32), of_thread // 32, Const(0, dtypes.i32), 32)
    return [
        s.Declare(threads.thread, build.cast(of_thread, dtypes.i64)),
        s.Declare(threads.lane, threads.thread % WARP),
        s.Declare(warp, build.cast(shuffled, dtypes.i64)),
        s.Declare(threads.warp_row, warp // threads.warps[1]),
        s.Declare(threads.warp_column, warp % threads.warps[1]),
    ]


def registers(verb: str, count: int) -> s.Stmt:
    return s.Evaluate(intrinsic_call(f"cuda.register_{verb}", count))


def barrier(verb: str, place: Expr, *more: Expr) -> s.Stmt:
    return s.Evaluate(intrinsic_call(f"cuda.barrier_{verb}", place, *more))
