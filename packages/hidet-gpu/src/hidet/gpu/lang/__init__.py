"""Operations of every GPU for scripts: one name for each row of the table `hidet.gpu.intrinsics`.

    threadIdx.x, blockIdx.y, blockDim.x, gridDim.z      where a thread stands
    syncthreads(), syncwarp(), shfl_down_sync(...)       waiting and exchanging
    atomic_add(~a[i], value)                             memory

`dir(hidet.gpu.lang)` lists all, `doc` of each says what it does. A target's own module of names has these
as well, as `hidet.lang.cuda`.
"""

from __future__ import annotations

from typing import Any

from hidet.gpu.lang import contexts
from hidet.gpu.lang.contexts import warp_groups
from hidet.gpu.lang.library import atomic_sub, load, register_tensor, shared_tensor, store
from hidet.gpu.lang.primitives import dynamic_shared_memory
from hidet.gpu.lang.rows import ROWS, IntrinsicGroup
from hidet.gpu.lang.scripts import SCRIPTS, load_script


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return load_script(name) if name in SCRIPTS else ROWS.find_plain(name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "IntrinsicGroup",
    "atomic_sub",
    "contexts",
    "dynamic_shared_memory",
    "load",
    "register_tensor",
    "shared_tensor",
    "store",
    "warp_groups",
]
__all__ += sorted({*ROWS.names(), *SCRIPTS} - {*__all__})
