"""Launches without threads become blocks of threads, one work item a thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet import dtypes
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.schedules.items import decode_item
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Const, Expr
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.stmt import Launch, Stmt
from hidet.ir.visit import rewrite, walk

if TYPE_CHECKING:
    from hidet.context import CompileContext

THREADS = 128
"""Threads of a block: small enough that a grid of few items still spreads over the multiprocessors."""
_LEAST_THREADS = 32
"""Threads that a block has at least, and a multiple of: fewer would leave lanes of a warp without work."""


@dataclass(frozen=True)
class BlockLaunches:
    """Kernels that are launched over a grid alone run one index a thread.

    Their grid's extents become parameters, from which a thread finds its index; the last axis is that of neighbouring
    threads.
    """

    name: ClassVar[str] = "gpu-block-launches"

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The same module when every launch has threads."""
        return block_launches(module)


def block_launches(module: Module) -> Module:
    """The pass as a function."""
    plain = {
        node.kernel
        for function in module.functions
        if function.kind == "host"
        for node in walk(function.body)
        if isinstance(node, Launch) and not node.block
    }
    if not plain:
        return module

    def change(node: IRNode) -> IRNode | None:
        return _launch(node) if isinstance(node, Launch) and not node.block else None

    functions = []
    for function in module.functions:
        if function.kind == "host":
            function = replace(function, body=rewrite(function.body, change))
        elif function.name in plain and function.kind == "kernel":
            function = _kernel(function)
        functions.append(function)
    return replace(module, functions=tuple(functions))


def _launch(node: Launch) -> Stmt:
    total: Expr = build.index(1)
    for extent in node.grid:
        total = total * extent
    if isinstance(total, Const):
        count = int(total.value)  # type: ignore[arg-type]  # an extent
        threads = min(THREADS, max(_LEAST_THREADS, -(-count // _LEAST_THREADS) * _LEAST_THREADS))
    else:
        threads = THREADS
    blocks = (total + (threads - 1)) // threads
    return Launch(node.kernel, (blocks,), (*node.arguments, *node.grid), block=(build.index(threads),), loc=node.loc)


def _kernel(function: Function) -> Function:
    """The kernel with its index found from thread and block, for those threads that have one."""
    extents = [build.size_var(f"extent{n}") for n in range(max(len(function.grid_vars), 1))]
    block, thread, size = (
        build.cast(intrinsic_call(f"gpu.{name}.x"), dtypes.i64) for name in ("block_idx", "thread_idx", "block_dim")
    )
    total: Expr = extents[0]
    for extent in extents[1:]:
        total = total * extent
    k = IRBuilder()
    item = k.let("item", block * size + thread)
    with k.if_(item < total):
        decode_item(k, build.cast(item, dtypes.u64), extents, function.grid_vars)
        k.emit(function.body)
    return replace(function, params=(*function.params, *extents), body=k.body, grid_vars=())
