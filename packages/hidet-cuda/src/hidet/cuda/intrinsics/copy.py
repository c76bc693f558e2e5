"""Reads and writes with cache hints, asynchronous copies into shared memory, and loads of matrix fragments."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import bf16, f16, i32, u32, u64
from hidet.ir.intrinsic import ElementsOf, Immediate, Intrinsic, Memory, SameAs, Value, table

_GLOBAL = Memory("source", ("global",))
_LANES = (1, 2, 4, 8, 16)

_READ_HINTS = (
    ("load_constant", "ld.global.nc", "read memory that no thread writes while the kernel runs"),
    ("load_streaming", "ld", "read memory that is unlikely to be read again"),
    ("load_l2", "ld", "read past the first-level cache"),
    ("load_constant_streaming", "ld.global.nc", "read once memory that no thread writes, keeping it out of L1"),
)
_WRITE_HINTS = (
    ("store_streaming", "write memory that is unlikely to be read again"),
    ("store_l2", "write past the first-level cache"),
)

COPY = table(
    *(
        Intrinsic(
            name=f"cuda.{name}",
            family=CUDA,
            group="copy",
            doc=doc,
            ptx=ptx,
            parameters=(_GLOBAL,),
            result=ElementsOf("source"),
            effect="reads",
        )
        for name, ptx, doc in _READ_HINTS
    ),
    *(
        Intrinsic(
            name=f"cuda.{name}",
            family=CUDA,
            group="copy",
            doc=doc,
            ptx="st",
            parameters=(Memory("target", ("global",), group="value"), Value("value", (), _LANES, group="value")),
            effect="writes",
        )
        for name, doc in _WRITE_HINTS
    ),
    *(
        Intrinsic(
            name=f"cuda.copy_async_{nbytes}",
            family=CUDA,
            group="copy",
            doc=f"copy {nbytes} bytes to shared memory in the background; those from the i32 `valid` on become zero",
            ptx="cp.async",
            parameters=(
                Memory("target", ("shared",), align=nbytes, nbytes=nbytes),
                Memory("source", ("global",), align=nbytes, nbytes=nbytes),
                Value("valid", (i32,)),
            ),
            effect="writes",
        )
        for nbytes in (4, 8, 16)
    ),
    Intrinsic(
        name="cuda.copy_async_commit",
        family=CUDA,
        group="copy",
        doc="the copies this thread has started since the last commit become a group",
        ptx="cp.async.commit_group",
        effect="writes",
    ),
    Intrinsic(
        name="cuda.copy_async_wait",
        family=CUDA,
        group="copy",
        doc="wait until at most `groups` of this thread's latest groups are unfinished; the others are visible to it",
        ptx="cp.async.wait_group",
        parameters=(Immediate("groups", 0, 63),),
        effect="waits",
    ),
    Intrinsic(
        name="cuda.copy_async_wait_all",
        family=CUDA,
        group="copy",
        doc="wait until all copies of this thread are finished and visible to it",
        ptx="cp.async.wait_all",
        effect="waits",
    ),
    Intrinsic(
        name="cuda.copy_async_arrive",
        family=CUDA,
        group="copy",
        doc="arrive at the mbarrier once the copies this thread has started are finished; the count expects it",
        ptx="cp.async.mbarrier.arrive",
        parameters=(Memory("barrier", ("shared",), (u64,), nbytes=8),),
        effect="writes",
    ),
    *(
        Intrinsic(
            name=f"cuda.load_matrix_x{count}{'_transposed' if transposed else ''}",
            family=CUDA,
            group="copy",
            doc=f"{count} 8x8 matrices of 2-byte elements, row r of matrix i at the address of lane 8 i + r"
            f"{', transposed' if transposed else ''}",
            ptx="ldmatrix",
            parameters=(
                Memory("target", ("register", "local"), (u32, i32, f16, bf16), align=4, nbytes=4 * count),
                Memory("row", ("shared",), align=16, nbytes=16),
            ),
            effect="reads",
            threads=32,
        )
        for count in (1, 2, 4)
        for transposed in (False, True)
    ),
    *(
        Intrinsic(
            name=f"cuda.store_matrix_x{count}{'_transposed' if transposed else ''}",
            family=CUDA,
            group="copy",
            doc=f"write {count} 8x8 matrices of 2-byte elements, row r of matrix i to the address of lane 8 i + r"
            f"{', transposed' if transposed else ''}",
            ptx="stmatrix",
            parameters=(
                Memory("row", ("shared",), align=16, nbytes=16),
                Memory("source", ("register", "local"), (u32, i32, f16, bf16), align=4, nbytes=4 * count),
            ),
            effect="writes",
            arch=90,
            threads=32,
        )
        for count in (1, 2, 4)
        for transposed in (False, True)
    ),
    Intrinsic(
        name="cuda.prefetch_l2",
        family=CUDA,
        group="copy",
        doc="bring a cache line into the second-level cache",
        ptx="prefetch",
        parameters=(Memory("source", ("global",)),),
        effect="writes",
    ),
    *(
        Intrinsic(
            name=f"cuda.cache_policy_{name}",
            family=CUDA,
            group="copy",
            doc=doc,
            ptx="createpolicy",
            result=u64,
        )
        for name, doc in (
            ("evict_first", "a cache policy for data that is not read again"),
            ("evict_last", "a cache policy for data that should stay in the second-level cache"),
        )
    ),
    Intrinsic(
        name="cuda.shared_address",
        family=CUDA,
        group="copy",
        doc="the address in the window of shared memory, in bytes, as descriptors hold it",
        ptx="cvta",
        parameters=(Memory("place", ("shared",)),),
        result=u32,
    ),
    Intrinsic(
        name="cuda.map_to_block",
        family=CUDA,
        group="copy",
        doc="the address of the same place in the shared memory of the cluster's block number `rank`",
        ptx="mapa",
        parameters=(Memory("place", ("shared",)), Value("rank", (i32,))),
        result=SameAs("place"),
        arch=90,
    ),
    Intrinsic(
        name="cuda.load_cluster",
        family=CUDA,
        group="copy",
        doc="read shared memory of a block of the cluster, at an address that cuda.map_to_block gave",
        ptx="ld",
        parameters=(Memory("source", ("shared",)),),
        result=ElementsOf("source"),
        effect="reads",
        arch=90,
    ),
    Intrinsic(
        name="cuda.store_cluster",
        family=CUDA,
        group="copy",
        doc="write shared memory of a block of the cluster, at an address that cuda.map_to_block gave",
        ptx="st",
        parameters=(Memory("target", ("shared",), group="value"), Value("value", (), _LANES, group="value")),
        effect="writes",
        arch=90,
    ),
)
