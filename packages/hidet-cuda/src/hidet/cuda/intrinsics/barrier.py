"""Barriers in shared memory that count arrivals and bytes: `mbarrier`.

A barrier is a u64. Its phase completes when all expected threads have arrived and all expected bytes have been copied;
the next phase begins at once, with the same count. `parity` is that of a phase: 0 for the first.
"""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import boolean, i32, u32, u64
from hidet.ir.intrinsic import Effect, Intrinsic, Memory, Result, Value, table

_BARRIER = Memory("barrier", ("shared",), (u64,), nbytes=8)
_BYTES = Value("bytes", (i32,))
_PARITY = Value("parity", (u32,))


def _barrier(
    name: str, doc: str, ptx: str, *parameters: Value, result: Result = None, effect: Effect = "writes", arch: int = 90
) -> Intrinsic:
    return Intrinsic(
        name=f"cuda.{name}",
        family=CUDA,
        group="barrier",
        doc=doc,
        ptx=ptx,
        parameters=(_BARRIER, *parameters),
        result=result,
        effect=effect,
        arch=arch,
    )


BARRIER = table(
    _barrier(
        "barrier_init",
        "make a barrier whose phases each expect `count` arrivals",
        "mbarrier.init",
        Value("count", (i32,)),
        arch=80,
    ),
    _barrier("barrier_invalidate", "end the use of a barrier", "mbarrier.inval", arch=80),
    _barrier("barrier_arrive_at", "arrive once", "mbarrier.arrive", effect="waits", arch=80),
    _barrier(
        "barrier_arrive_expect",
        "arrive once, and expect `bytes` more to be copied in this phase",
        "mbarrier.arrive",
        _BYTES,
        effect="waits",
    ),
    _barrier("barrier_expect", "expect `bytes` more to be copied in this phase", "mbarrier.expect_tx", _BYTES),
    _barrier("barrier_complete", "count `bytes` as copied", "mbarrier.complete_tx", _BYTES),
    _barrier(
        "barrier_try_wait",
        "whether the phase of `parity` is over; may wait for a while before it says no",
        "mbarrier.try_wait",
        _PARITY,
        result=boolean,
        effect="waits",
    ),
    _barrier(
        "barrier_wait",
        "wait until the phase of `parity` is over; what its arrivals released is visible after",
        "mbarrier.try_wait",
        _PARITY,
        effect="waits",
    ),
    _barrier(
        "barrier_arrive_remote",
        "arrive once at the barrier at the same place in block number `rank` of the cluster",
        "mbarrier.arrive",
        Value("rank", (i32,)),
        effect="waits",
    ),
    _barrier(
        "barrier_arrive_remote_relaxed",
        "as cuda.barrier_arrive_remote, of a thread that has read, and written nothing: no writes are released",
        "mbarrier.arrive",
        Value("rank", (i32,)),
        effect="waits",
    ),
)
