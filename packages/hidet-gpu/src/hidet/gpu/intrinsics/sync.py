"""Waiting for other threads, and the order in which they see memory."""

from __future__ import annotations

from hidet.dtypes import boolean, i32, u32
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import Immediate, Intrinsic, Value, table

_PREDICATE = Value("predicate", (boolean,))
# Named barriers are numbered 0 to 15; 0 is the one of gpu.syncthreads.


def _block(name: str, doc: str, *, counts: bool = False) -> Intrinsic:
    return Intrinsic(
        name=name,
        family=GPU,
        group="sync",
        doc=doc,
        ptx="bar, barrier",
        parameters=(_PREDICATE,) if counts else (),
        result=i32 if counts else None,
        effect="waits",
        threads=0,
    )


def _waits(
    name: str, doc: str, ptx: str, *parameters: Value | Immediate, arch: int = 80, threads: int = 1
) -> Intrinsic:
    return Intrinsic(
        name=name,
        family=GPU,
        group="sync",
        doc=doc,
        ptx=ptx,
        parameters=parameters,
        effect="waits",
        arch=arch,
        threads=threads,
    )


SYNC = table(
    _block("gpu.syncthreads", "wait for all threads of the block; what they wrote is visible after"),
    _block("gpu.syncthreads_count", "as gpu.syncthreads; gives in how many threads predicate holds", counts=True),
    _block("gpu.syncthreads_and", "as gpu.syncthreads; gives 1 where predicate holds in all threads", counts=True),
    _block("gpu.syncthreads_or", "as gpu.syncthreads; gives 1 where predicate holds in any thread", counts=True),
    _waits(
        "gpu.syncwarp",
        "wait for the threads of the warp whose bits are set in mask",
        "bar.warp.sync",
        Value("mask", (u32,)),
        threads=32,
    ),
    _waits("gpu.threadfence_block", "order memory accesses as the block's threads see them", "fence"),
    _waits("gpu.threadfence", "order memory accesses as the device's threads see them", "fence"),
    _waits("gpu.threadfence_system", "order memory accesses as host and other devices see them", "fence"),
    Intrinsic(
        name="gpu.trap", family=GPU, group="sync", doc="abort the launch with an error", ptx="trap", effect="writes"
    ),
)
