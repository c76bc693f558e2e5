"""Blocks of a kernel that starts early spread over all multiprocessors: shared memory that they ask for besides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.cuda.arch import BLOCK_RESERVED_SHARED, fitting_blocks
from hidet.cuda.launch_flags import independent_flag, is_independent_flag
from hidet.cuda.passes.overlapped_launches import OVERLAPPED
from hidet.gpu.codegen.function import array_bytes, shared_arrays
from hidet.gpu.schedules.amounts import ceil_ratio
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.stmt import Launch
from hidet.ir.types import BufferType
from hidet.ir.visit import rewrite
from hidet.target import GpuTarget, gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext

_UNIT = 128
"""Bytes in which shared memory is given out (CUDA occupancy calculator, compute capability 9.0)."""
_LEAST_DECLARED = 4096
"""Bytes from which on a kernel keeps tiles in shared memory, on which its blocks compute for long. Blocks of others,
such as of rows, are over soon; where two of them are kept apart, the weights of the next kernel have no room to come
early."""


@dataclass(frozen=True)
class SpreadBlocks:
    """No multiprocessor is given more blocks of a kernel than its share.

    The device gives blocks to multiprocessors that have room. While the kernel before is running, only some have: a
    kernel that starts early (`cuda-overlapped-launches`) would have its blocks heaped there, and the others idle once
    that kernel is over. So that its blocks ask for as much shared memory as leaves no room for one more than a
    multiprocessor's share of the grid. Kernels that run beside others (`Invoke.is_independent`) leave them room.
    """

    name: ClassVar[str] = "cuda-spread-blocks"

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The same module where no kernel starts early."""
        return spread_blocks(module, gpu_target(ctx.target))


def spread_blocks(module: Module, target: GpuTarget) -> Module:
    """The pass as a function."""
    early = {f.name: _declared(f) for f in module.functions if f.kind == "kernel" and OVERLAPPED in f.attributes}
    if not early:
        return module

    def ask(node: IRNode) -> IRNode | None:
        return _asking(node, early, target) if isinstance(node, Launch) else None

    functions = (replace(f, body=rewrite(f.body, ask)) if f.kind == "host" else f for f in module.functions)
    return replace(module, functions=tuple(functions))


def _declared(kernel: Function) -> int:
    types = (var.type for var in shared_arrays(kernel.body))
    return sum(array_bytes(type_) for type_ in types if isinstance(type_, BufferType))


def _asking(node: Launch, early: Mapping[str, int], target: GpuTarget) -> Launch | None:
    """The launch with what its blocks ask for; None where they are placed as the device likes."""
    declared = early.get(node.kernel)
    if declared is None or node.cluster or node.is_cooperative:
        return None
    if declared < _LEAST_DECLARED and node.shared_bytes is None:
        return None
    if fitting_blocks(declared, target) < 2:
        return None
    own = build.index(0) if node.shared_bytes is None else node.shared_bytes
    asked = build.maximum(_least_bytes(node, target) - declared, own)
    if any(is_independent_flag(argument) for argument in node.arguments):
        asked = build.select(build.equal(independent_flag(), 0), asked, own)
    return replace(node, shared_bytes=asked)


def _least_bytes(node: Launch, target: GpuTarget) -> Expr:
    """Shared memory of a block, of which a multiprocessor has not enough for one block more than its share."""
    whole = target.multiprocessor_shared_memory // _UNIT
    reserved = BLOCK_RESERVED_SHARED // _UNIT
    share = ceil_ratio(math.prod(node.grid, start=build.index(1)), target.multiprocessors)
    return (build.index(whole) // (share + 1) + (1 - reserved)) * _UNIT
