"""Waiting for other threads, and the order in which they see memory."""

from __future__ import annotations

from hidet.dtypes import boolean, i32, u32
from hidet.gpu.intrinsics.family import CUDA, GPU, family_of
from hidet.ir.intrinsic import Immediate, Intrinsic, Value, table

_PREDICATE = Value("predicate", (boolean,))
# Named barriers are numbered 0 to 15; 0 is the one of gpu.syncthreads.
_NAMED = (Immediate("barrier", 0, 15), Immediate("threads", 32, 1024, 32))


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
        family=family_of(name),
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
    _waits(
        "cuda.barrier_sync",
        "wait until `threads` threads, whole warps, have come to the barrier",
        "bar, barrier",
        *_NAMED,
        threads=32,
    ),
    _waits(
        "cuda.barrier_arrive",
        "count the warp as having come to the barrier, without waiting",
        "bar, barrier",
        *_NAMED,
        threads=32,
    ),
    _waits("gpu.threadfence_block", "order memory accesses as the block's threads see them", "fence"),
    _waits("gpu.threadfence", "order memory accesses as the device's threads see them", "fence"),
    _waits("gpu.threadfence_system", "order memory accesses as host and other devices see them", "fence"),
    _waits(
        "cuda.cluster_arrive",
        "count the thread as having come to the cluster's barrier; its writes before are released",
        "barrier.cluster",
        arch=90,
    ),
    _waits(
        "cuda.cluster_arrive_relaxed",
        "as cuda.cluster_arrive, without releasing writes",
        "barrier.cluster",
        arch=90,
    ),
    _waits(
        "cuda.cluster_wait",
        "wait until all threads of the cluster have come to its barrier",
        "barrier.cluster",
        arch=90,
    ),
    _waits(
        "cuda.fence_async_shared",
        "order ordinary accesses of shared memory before those of TMA and wgmma",
        "fence.proxy.async",
        arch=90,
    ),
    _waits(
        "cuda.fence_async",
        "order ordinary accesses of any memory before those of TMA",
        "fence.proxy.async",
        arch=90,
    ),
    _waits(
        "cuda.fence_barrier_init",
        "make initialised mbarriers visible to the cluster and TMA",
        "fence.mbarrier_init",
        arch=90,
    ),
    _waits(
        "cuda.grid_dependency_wait",
        "wait until the kernels this one depends on have finished and their writes are visible",
        "griddepcontrol",
        arch=90,
    ),
    _waits(
        "cuda.grid_dependency_launch",
        "allow the dependent kernels to start",
        "griddepcontrol",
        arch=90,
    ),
    _waits("cuda.nanosleep", "suspend the thread for about that long", "nanosleep", Value("nanoseconds", (u32,))),
    Intrinsic(
        name="gpu.trap", family=GPU, group="sync", doc="abort the launch with an error", ptx="trap", effect="writes"
    ),
    *(
        Intrinsic(
            name=f"cuda.register_{verb}",
            family=CUDA,
            group="sync",
            doc=f"{verb} the registers of each thread of the warp group to `registers`",
            ptx="setmaxnreg",
            parameters=(Immediate("registers", 24, 256, 8),),
            effect="writes",
            arch=90,
            is_arch_specific=True,
            threads=128,
        )
        for verb in ("increase", "decrease")
    ),
)
