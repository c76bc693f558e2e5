"""A kernel starts while the one before it ends: programmatic dependent launch, from sm_90 on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir.expr import Call, Load
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Seq, Stmt
from hidet.ir.visit import walk
from hidet.target import gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext

OVERLAPPED = ("overlapped", True)
"""Attribute of a kernel whose launches need not wait for the kernel before: it waits itself."""

_WAIT, _ALLOW = "cuda.grid_dependency_wait", "cuda.grid_dependency_launch"
_PREPARATIONS = frozenset(
    {
        *("cuda.barrier_init", "cuda.fence_barrier_init", "cuda.prefetch_tensor_map"),
        *("gpu.syncthreads", "cuda.cluster_arrive", "cuda.cluster_wait"),
    }
)
"""Of a block: of its barriers in shared memory, and of maps, which are arguments."""
_AMONG_LANES = frozenset({"gpu.shuffle", "gpu.syncwarp"})
"""Calls by which lanes of a warp meet, and touch no memory."""
_QUIET = (Seq, Declare, Assign, For, If, Evaluate)
"""Statements that access memory by expressions alone."""


@dataclass(frozen=True)
class OverlappedLaunches:
    """Kernels begin by waiting for what was launched before them, so that the device may make them ready meanwhile.

    They wait before they touch memory, but for what makes their blocks ready: barriers in shared memory, and maps of
    tensors, which are arguments. Each kernel's end implies the end of all before it, so that the order of everything
    they read and write stays that of their launches. Kernels that say themselves what they wait for are left alone.
    """

    name: ClassVar[str] = "cuda-overlapped-launches"

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The same module for devices that do not have it."""
        has_them = gpu_target(ctx.target).has("programmatic-dependent-launch")
        return overlapped_launches(module) if has_them else module


def overlapped_launches(module: Module) -> Module:
    """The pass as a function."""
    return replace(module, functions=tuple(map(_overlapped, module.functions)))


def _overlapped(function: Function) -> Function:
    if function.kind != "kernel" or OVERLAPPED in function.attributes or _waits_itself(function):
        return function
    stmts = function.body.stmts if isinstance(function.body, Seq) else (function.body,)
    count = _count_of_preparation(stmts)
    waits = [Evaluate(intrinsic_call(_WAIT)), Evaluate(intrinsic_call(_ALLOW))]
    body = build.seq([*stmts[:count], *waits, *stmts[count:]])
    return replace(function, body=body, attributes=(*function.attributes, OVERLAPPED))


def _count_of_preparation(stmts: tuple[Stmt, ...]) -> int:
    """How many statements at the beginning make a block ready; 0 where they only compute."""
    count = sum(1 for _ in takewhile(_touches_no_memory, stmts))
    calls = [node for stmt in stmts[:count] for node in walk(stmt) if isinstance(node, Call)]
    return count if any(call.callee in _PREPARATIONS for call in calls) else 0


def _touches_no_memory(stmt: Stmt) -> bool:
    """Whether a statement neither reads nor writes what the kernel before may write or read."""
    for node in walk(stmt):
        if isinstance(node, Call):
            is_pure = node.intrinsic is not None and node.intrinsic.effect == "pure"
            if not is_pure and node.callee not in _PREPARATIONS | _AMONG_LANES:
                return False
        elif isinstance(node, Load) or (isinstance(node, Stmt) and not isinstance(node, _QUIET)):
            return False
    return True


def _waits_itself(function: Function) -> bool:
    return any(isinstance(node, Call) and node.callee in (_WAIT, _ALLOW) for node in walk(function.body))
