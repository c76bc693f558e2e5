"""Barriers of parts of a block and of clusters, fences of asynchronous work, and orders to the scheduler."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import u32
from hidet.ir.intrinsic import Immediate, Intrinsic, Value, table

# Named barriers are numbered 0 to 15; 0 is the one of gpu.syncthreads.
_NAMED = (Immediate("barrier", 0, 15), Immediate("threads", 32, 1024, 32))


def _waits(
    name: str, doc: str, ptx: str, *parameters: Value | Immediate, arch: int = 80, threads: int = 1
) -> Intrinsic:
    return Intrinsic(
        name=name,
        family=CUDA,
        group="sync",
        doc=doc,
        ptx=ptx,
        parameters=parameters,
        effect="waits",
        arch=arch,
        threads=threads,
    )


SYNC = table(
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
    _waits(
        "cuda.grid_dependency_end",
        "mark where one thread of every block ends: there it waits for the kernels before, if no thread has done so at "
        "the beginning",
        "griddepcontrol",
        arch=90,
    ),
    _waits("cuda.nanosleep", "suspend the thread for about that long", "nanosleep", Value("nanoseconds", (u32,))),
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
