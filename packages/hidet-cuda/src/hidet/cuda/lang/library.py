"""Functions of scripts that are made of rows of NVIDIA's: what earlier versions call otherwise, or in fewer words."""

from __future__ import annotations

from typing import Any

from hidet.cuda.lang.mma_config import MmaConfig
from hidet.cuda.lang.rows import find_row
from hidet.errors import ScriptError
from hidet.lang.intrinsics import IntrinsicFunction

_CACHE_LEVELS = ("always", "global")
_EVICTION = ("evict_normal", "evict_first")


def cp_async(
    dst: Any,
    src: Any,
    cp_size: int,
    src_size: Any = None,
    cache_level: str = "always",
    prefetch_bytes: int = 0,
    evict_policy: str = "evict_normal",
) -> Any:
    """Copy `cp_size` (4, 8 or 16) bytes from global to shared memory without waiting; see `copy_async_wait`.

    src_size: bytes that are read, the others become zero; None for all. cache_level, prefetch_bytes, evict_policy:
    advice of earlier versions, which is checked and not needed: copies of 16 bytes pass by the first-level cache.
    ScriptError for other values.
    """
    known = cache_level in _CACHE_LEVELS and prefetch_bytes in (0, 64, 128, 256) and evict_policy in _EVICTION
    if cp_size not in (4, 8, 16) or not known:
        given = f"{cp_size} bytes, {cache_level!r}, {prefetch_bytes}, {evict_policy!r}"
        raise ScriptError(
            f"cp_async got {given}",
            hint="it copies 4, 8 or 16 bytes; cache_level is 'always' or 'global', prefetch_bytes 0, 64, 128 or 256, "
            "evict_policy 'evict_normal' or 'evict_first'",
        )
    copy: IntrinsicFunction = find_row(f"cuda.copy_async_{cp_size}")
    return copy(dst, src, cp_size if src_size is None else src_size)


def mma_sync(config: MmaConfig, reg_a: Any, reg_b: Any, reg_c: Any) -> Any:
    """The product of a warp, reg_c += reg_a reg_b; the arguments are what each thread holds, as `config` has it."""
    product: IntrinsicFunction = find_row(config.intrinsic)
    return product(reg_c, reg_a, reg_b)


def setmaxnreg(num: int, action: str) -> Any:
    """Let the threads of a warp group have more (action "inc") or fewer ("dec") registers from here on."""
    names = {"inc": "cuda.register_increase", "dec": "cuda.register_decrease"}
    if action not in names:
        raise ScriptError(f"setmaxnreg got action {action!r}", hint="'inc' or 'dec'")
    return find_row(names[action])(num)


class ThisCluster:
    """`this_cluster`: the blocks that run beside this one and see its shared memory."""

    @property
    def block_rank(self) -> Any:
        """The number of this block in the cluster."""
        return find_row("cuda.block_rank_in_cluster")()

    @property
    def dim_blocks(self) -> Any:
        """How many blocks the cluster has."""
        return find_row("cuda.cluster_size")()

    def arrive(self) -> Any:
        """Tell the others that this thread has come here."""
        return find_row("cuda.cluster_arrive")()

    def wait(self) -> Any:
        """Wait until all threads of the cluster have arrived."""
        return find_row("cuda.cluster_wait")()

    def sync(self) -> tuple[Any, Any]:
        """Arrive and wait."""
        return self.arrive(), self.wait()

    def map_shared_rank(self, addr: Any, rank: Any) -> Any:
        """The address of the same place in the shared memory of block `rank`; `load_cluster` reads there."""
        function: IntrinsicFunction = find_row("cuda.map_to_block")
        return function(addr, rank)


this_cluster = ThisCluster()
