"""Blocks of a kernel that some of its threads run: `with warp_groups([0, 1]) as thread:`."""

from __future__ import annotations

from collections.abc import Sequence

from hidet.errors import ScriptError
from hidet.gpu.intrinsics import intrinsic_call
from hidet.lang import operators
from hidet.lang.values import ThreadRange


def warp_groups(group_ids: Sequence[int], group_size: int = 4) -> ThreadRange:
    """The threads of neighbouring warp groups of a block, by threadIdx.x; the name after `as` numbers them from 0.

    group_size: warps of a group. ScriptError for groups that are not neighbours.
    """
    threads = 32 * group_size
    first = group_ids[0] if group_ids else 0
    if not group_ids or list(group_ids) != list(range(first, first + len(group_ids))) or first < 0:
        raise ScriptError(f"warp_groups takes numbers of neighbouring groups, got {list(group_ids)}")
    thread = intrinsic_call("gpu.thread_idx.x")
    begin, end = first * threads, (first + len(group_ids)) * threads
    below = operators.binary("lt", thread, end)
    condition = below if begin == 0 else operators.binary("land", operators.binary("le", begin, thread), below)
    return ThreadRange(condition, thread if begin == 0 else operators.binary("sub", thread, begin))
