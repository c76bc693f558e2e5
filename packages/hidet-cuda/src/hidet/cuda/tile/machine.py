"""What NVIDIA's GPUs copy and multiply tiles with, by what a device has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tile.product import multiply
from hidet.cuda.tile.warp_group import (
    GROUP_WARPS,
    finished_loop,
    fits_warp_groups,
    meet_in_group,
    multiply_in_groups,
    start_in_groups,
    wait_for_groups,
)
from hidet.gpu.tile.lower.fragment import Fragment, Threads
from hidet.gpu.tile.lower.machine import BackgroundCopies, Machine, Operand
from hidet.gpu.tile.statements import Mma
from hidet.ir import stmt as s
from hidet.ir.expr import Expr

COPIES = BackgroundCopies(
    part=lambda nbytes, target, source, valid: s.Evaluate(
        intrinsic_call(f"cuda.copy_async_{nbytes}", target, source, valid)
    ),
    commit=lambda: s.Evaluate(intrinsic_call("cuda.copy_async_commit")),
    wait=lambda groups: s.Evaluate(intrinsic_call("cuda.copy_async_wait", groups)),
    wait_all=lambda: s.Evaluate(intrinsic_call("cuda.copy_async_wait_all")),
)
"""`cp.async`."""


class WarpGroups:
    """`hidet.gpu.tile.lower.machine.BackgroundProducts` by `wgmma`."""

    group_warps = GROUP_WARPS

    def meet(self, threads: Threads) -> s.Stmt:
        """At a barrier of the group, behind those that kernels use for all that multiply."""
        return meet_in_group(threads)

    def fits(self, node: Mma, warps: tuple[int, int]) -> bool:
        """They read shared memory as it is: f32 has to be rounded to tf32 on its way there, which threads do not."""
        return node.b.dtype is not dtypes.tf32 and fits_warp_groups(node, warps)

    def visible(self) -> s.Stmt:
        """They read shared memory past the threads' own path to it."""
        return s.Evaluate(intrinsic_call("cuda.fence_async_shared"))

    def multiply(
        self,
        node: Mma,
        accumulator: Fragment,
        operands: tuple[Operand | Fragment, Operand],
        threads: Threads,
        *,
        is_added: bool,
    ) -> s.Stmt:
        """See `multiply_in_groups`."""
        return multiply_in_groups(node, accumulator, operands, threads, is_added=is_added)

    def start(self, node: Mma, accumulator: Fragment, operands: tuple[Operand, Operand], threads: Threads) -> s.Stmt:
        """See `start_in_groups`."""
        return start_in_groups(node, accumulator, operands, threads)

    def wait(self, count: int) -> s.Stmt:
        """See `wait_for_groups`."""
        return wait_for_groups(count)

    def finished_loop(self, extent: Expr, loop: s.Stmt, sums: Iterable[Fragment]) -> s.Stmt:
        """See `finished_loop`."""
        return finished_loop(extent, loop, sums)


def machine(has: Callable[[str], bool] = frozenset[str]().__contains__) -> Machine:
    """A device from sm_80 on.

    has: whether it has a feature, as `hidet.target.GpuTarget.has`. With "wgmma", products that fit are those of warp
    groups; with "stmatrix", results are staged by it.
    """
    return Machine(
        multiply,
        COPIES,
        WarpGroups() if has("wgmma") else None,
        _store_matrix if has("stmatrix") else None,
    )


def _store_matrix(to: Expr, words: Expr, is_transposed: bool) -> s.Stmt:
    return s.Evaluate(intrinsic_call(f"cuda.store_matrix_x4{'_transposed' if is_transposed else ''}", to, words))
