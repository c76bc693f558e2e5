"""A kernel starts while the one before it ends: programmatic dependent launch, from sm_90 on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir.expr import Call
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Evaluate
from hidet.ir.visit import walk
from hidet.target import gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext

OVERLAPPED = ("overlapped", True)
"""Attribute of a kernel whose launches need not wait for the kernel before: it waits itself."""

_WAIT, _ALLOW = "cuda.grid_dependency_wait", "cuda.grid_dependency_launch"


@dataclass(frozen=True)
class OverlappedLaunches:
    """Kernels begin by waiting for what was launched before them, so that the device may make them ready meanwhile.

    They wait before they touch memory, and each kernel's end implies the end of all before it, so that the order of
    everything they read and write stays that of their launches. Kernels that say themselves what they wait for are left
    alone.
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
    body = build.seq([Evaluate(intrinsic_call(_WAIT)), Evaluate(intrinsic_call(_ALLOW)), function.body])
    return replace(function, body=body, attributes=(*function.attributes, OVERLAPPED))


def _waits_itself(function: Function) -> bool:
    return any(isinstance(node, Call) and node.callee in (_WAIT, _ALLOW) for node in walk(function.body))
