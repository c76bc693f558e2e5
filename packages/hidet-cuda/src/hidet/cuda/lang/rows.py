"""Intrinsics of NVIDIA's GPUs as functions of scripts, with those of every GPU."""

from __future__ import annotations

from hidet.cuda.intrinsics import INTRINSICS
from hidet.gpu.lang.rows import OTHER_NAMES as NAMES_OF_EVERY_GPU
from hidet.gpu.lang.rows import ScriptRows

OTHER_NAMES = {
    **NAMES_OF_EVERY_GPU,
    "bar_sync": "barrier_sync",
    "nano_sleep": "nanosleep",
    "prmt": "byte_permute",
    "wgmma_commit_group": "wgmma_commit",
    "wgmma_wait_group": "wgmma_wait",
    "cp_async_commit_group": "copy_async_commit",
    "cp_async_wait_group": "copy_async_wait",
    "cp_async_wait_all": "copy_async_wait_all",
    "cvta_generic_to_shared": "shared_address",
    "mbarrier_init": "barrier_init",
    "mbarrier_wait": "barrier_wait",
    "mbarrier_arrive": "barrier_arrive_at",
    "mbarrier_arrive_and_expect_tx": "barrier_arrive_expect",
    "mbarrier_try_wait": "barrier_try_wait",
    "mbarrier_test_wait": "barrier_try_wait",
    "mbarrier_expect_transaction": "barrier_expect",
    "mbarrier_complete_transaction": "barrier_complete",
    "mbarrier_invalidate": "barrier_invalidate",
    "cp_async_barrier_arrive": "copy_async_arrive",
    "fence_view_async_shared": "fence_async_shared",
    "ldg": "load_constant",
}
"""Names as CUDA C++ and earlier versions spell them, and the rows they mean."""

ROWS = ScriptRows("hidet.lang.cuda", INTRINSICS, OTHER_NAMES)
find_row = ROWS.find
