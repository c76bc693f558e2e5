"""Operations of an NVIDIA GPU for scripts: one name for each row of the table `hidet.gpu.intrinsics`.

    threadIdx.x, blockIdx.y, blockDim.x, gridDim.z      where a thread stands
    syncthreads(), syncwarp(), shfl_down_sync(...)       waiting and exchanging
    atomic_add(~a[i], value), copy_async_16(...)         memory
    mma.m16n8k16.f32.f16.f16(d, a, b)                    matrix units
    mma_sync(MmaConfig.m16n8k16_f16_f32(), a, b, c)      the same, with mappings that say which thread holds what

`dir(hidet.lang.cuda)` lists all, `doc` of each says what it does. A name means the row "gpu.<name>" or "cuda.<name>",
or the one in `OTHER_NAMES`, which has the spellings of CUDA C++.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hidet.gpu.lang import contexts
from hidet.gpu.lang.contexts import warp_groups
from hidet.gpu.lang.library import (
    atomic_sub,
    cp_async,
    load,
    mma_sync,
    register_tensor,
    setmaxnreg,
    shared_tensor,
    store,
    this_cluster,
)
from hidet.gpu.lang.mma_config import MmaConfig
from hidet.gpu.lang.primitives import dynamic_shared_memory, ldmatrix
from hidet.gpu.lang.rows import OTHER_NAMES, IntrinsicGroup, find_plain, row_names
from hidet.gpu.lang.tensor_maps import TensorMap, tensor_map, tensor_map_im2col
from hidet.gpu.lang.wgmma_config import WgmmaConfig, make_wgmma_desc, matrix_address, wgmma_async

_LOCKS = ("acquire_lock", "release_lock", "acquire_seq_semaphore", "release_seq_semaphore")
_SCRIPTS = {"sync_grid": "grid", **dict.fromkeys(_LOCKS, "locks")}
"""Scripts themselves, which are read when somebody needs them, and the files that they are in."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _SCRIPTS:
        return getattr(import_module(f"hidet.gpu.lang.{_SCRIPTS[name]}"), name)
    return find_plain(OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "OTHER_NAMES",
    "IntrinsicGroup",
    "MmaConfig",
    "TensorMap",
    "WgmmaConfig",
    "atomic_sub",
    "contexts",
    "cp_async",
    "dynamic_shared_memory",
    "ldmatrix",
    "load",
    "make_wgmma_desc",
    "matrix_address",
    "mma_sync",
    "register_tensor",
    "setmaxnreg",
    "shared_tensor",
    "store",
    "tensor_map",
    "tensor_map_im2col",
    "this_cluster",
    "warp_groups",
    "wgmma_async",
]
__all__ += sorted({*row_names(), *_SCRIPTS} - {*__all__})
