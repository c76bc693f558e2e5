"""Operations of an NVIDIA GPU for scripts: one name for each row of the table `hidet.cuda.intrinsics`.

    threadIdx.x, blockIdx.y, blockDim.x, gridDim.z      where a thread stands
    syncthreads(), syncwarp(), shfl_down_sync(...)       waiting and exchanging
    atomic_add(~a[i], value), copy_async_16(...)         memory
    mma.m16n8k16.f32.f16.f16(d, a, b)                    matrix units
    mma_sync(MmaConfig.m16n8k16_f16_f32(), a, b, c)      the same, with mappings that say which thread holds what

`dir(hidet.lang.cuda)` lists all, `doc` of each says what it does. A name means the row "gpu.<name>" or "cuda.<name>",
or the one in `OTHER_NAMES`, which has the spellings of CUDA C++.
"""

from __future__ import annotations

from typing import Any

from hidet.cuda.lang.library import cp_async, mma_sync, setmaxnreg, this_cluster
from hidet.cuda.lang.mma_config import MmaConfig
from hidet.cuda.lang.primitives import ldmatrix
from hidet.cuda.lang.rows import OTHER_NAMES, ROWS
from hidet.cuda.lang.tensor_maps import TensorMap, tensor_map, tensor_map_im2col
from hidet.cuda.lang.wgmma_config import WgmmaConfig, make_wgmma_desc, matrix_address, wgmma_async
from hidet.gpu.lang import contexts
from hidet.gpu.lang.contexts import warp_groups
from hidet.gpu.lang.library import atomic_sub, load, register_tensor, shared_tensor, store
from hidet.gpu.lang.primitives import dynamic_shared_memory
from hidet.gpu.lang.rows import IntrinsicGroup
from hidet.gpu.lang.scripts import SCRIPTS, load_script
from hidet.plugins.attributes import find


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in SCRIPTS:
        return load_script(name)
    try:
        return ROWS.find_plain(name)
    except AttributeError as unknown:
        # What plug-ins add, which are not loaded for names that rows have.
        try:
            return find("hidet.lang.cuda", name)
        except AttributeError:
            raise unknown from None


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
__all__ += sorted({*ROWS.names(), *SCRIPTS} - {*__all__})
