"""Rows of the table `hidet.gpu.intrinsics` as functions of scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hidet.errors import DTypeError, suggestion
from hidet.gpu.intrinsics import GPU_INTRINSICS, INTRINSICS
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.lang.intrinsics import IntrinsicFunction

OTHER_NAMES = {
    "threadIdx": "thread_idx",
    "blockIdx": "block_idx",
    "blockDim": "block_dim",
    "gridDim": "grid_dim",
    "shfl_sync": "shuffle",
    "shfl_up_sync": "shuffle_up",
    "shfl_down_sync": "shuffle_down",
    "shfl_xor_sync": "shuffle_xor",
    "all_sync": "vote_all",
    "any_sync": "vote_any",
    "ballot_sync": "vote_ballot",
    "activemask": "active_mask",
    "atomic_exch": "atomic_exchange",
    "bar_sync": "barrier_sync",
    "fence": "threadfence",
    "nano_sleep": "nanosleep",
    "prmt": "byte_permute",
    "wgmma_commit_group": "wgmma_commit",
    "wgmma_wait_group": "wgmma_wait",
    "atomic_cas": "atomic_compare_exchange",
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

_PARAMETER_NAMES = {"src_lane": ("lane",), "var": ("value",), "addr": ("place", "target", "source")}
"""Names of arguments as earlier versions have them, and what rows call them."""

_DEFAULTS: dict[str, dict[str, int]] = {
    "gpu.syncwarp": {"mask": 0xFFFFFFFF},
    **{f"gpu.shuffle{way}": {"width": 32} for way in ("", "_up", "_down", "_xor")},
}


@dataclass(frozen=True, slots=True)
class IntrinsicGroup:
    """Rows whose names share a beginning: attributes lead to them."""

    name: str

    @property
    def doc(self) -> str:
        """What each row takes and does, a line a row."""
        rows = [row for name, row in INTRINSICS.items() if name.startswith(f"{self.name}.")]
        return "\n".join(_function(row).doc for row in rows)

    def __getattr__(self, name: str) -> Any:
        return find_row(f"{self.name}.{name}")

    def __call__(self, *arguments: Any) -> Any:
        """The call of the row for as many coordinates as are given, `tensor_load.2d` for two. DTypeError where rows are
        not told apart by that."""
        ranks = [row for rank in range(1, 6) if (row := INTRINSICS.get(f"{self.name}.{rank}d")) is not None]
        if not ranks:
            raise DTypeError(f"{self.name} is several operations", hint=suggestion("", dir(self)))
        found = [row for row in ranks if len(row.parameters) == len(arguments)]
        if not found:
            names = ", ".join(parameter.name for parameter in ranks[0].parameters)
            least, most = (len(row.parameters) for row in (ranks[0], ranks[-1]))
            raise DTypeError(f"{self.name} got {len(arguments)} arguments, expected {least} ({names}) to {most}")
        return _function(found[0])(*arguments)

    def __dir__(self) -> list[str]:
        rows = [row[len(self.name) + 1 :] for row in INTRINSICS if row.startswith(f"{self.name}.")]
        return sorted({row.split(".")[0] for row in rows})


def _function(row: Intrinsic) -> IntrinsicFunction:
    return IntrinsicFunction(row, _DEFAULTS.get(row.name, {}), _PARAMETER_NAMES)


def find_row(name: str) -> Any:
    """The row called `name`, or the rows that begin with it. AttributeError where there is none."""
    row = INTRINSICS.get(name)
    if row is not None:
        is_register = row.group == "index" and name.count(".") == 2
        return call_intrinsic(row) if is_register else _function(row)
    if any(known.startswith(f"{name}.") for known in INTRINSICS):
        return IntrinsicGroup(name)
    plain = name.partition(".")[2]
    raise AttributeError(f"hidet.lang.cuda has no {plain!r}; {suggestion(plain, row_names())}")


def find_plain(name: str) -> Any:
    """As `find_row`, by the name without that of the family."""
    first = name.partition(".")[0]
    family = "gpu" if any(row.split(".")[1] == first for row in GPU_INTRINSICS) else "cuda"
    return find_row(f"{family}.{name}")


def row_names() -> set[str]:
    """What `hidet.lang.cuda` has from the table, with the spellings of CUDA C++."""
    return {*(name.split(".")[1] for name in INTRINSICS), *OTHER_NAMES}
