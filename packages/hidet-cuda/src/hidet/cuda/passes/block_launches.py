"""Launches without threads become blocks of threads, one work item a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.intrinsics import intrinsic_call
from hidet.ir.node import IRNode
from hidet.ir.stmt import Declare, If, Launch, Stmt
from hidet.ir.visit import rewrite, walk

if TYPE_CHECKING:
    from hidet.context import CompileContext

THREADS = 128
"""Threads of a block: small enough that a grid of few items still spreads over the multiprocessors."""


@dataclass(frozen=True)
class BlockLaunches:
    """Kernels that are launched over a grid alone run one index a thread.

    Their grid's extents become parameters, from which a thread finds its index; the last axis is that of neighbouring
    threads.
    """

    name: ClassVar[str] = "cuda-block-launches"

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
        threads = min(THREADS, max(32, -(-count // 32) * 32))
    else:
        threads = THREADS
    blocks = (total + (threads - 1)) // threads
    return Launch(node.kernel, (blocks,), (*node.arguments, *node.grid), block=(build.index(threads),), loc=node.loc)


def _kernel(function: Function) -> Function:
    """The kernel with its index found from thread and block, for those threads that have one."""
    extents = [build.size_var(f"extent{n}") for n in range(max(len(function.grid_vars), 1))]
    block, thread, size = (
        build.cast(intrinsic_call(f"cuda.{name}.x"), dtypes.i64) for name in ("block_idx", "thread_idx", "block_dim")
    )
    item = build.size_var("item")
    total: Expr = extents[0]
    for extent in extents[1:]:
        total = total * extent
    body = build.seq([*decode_item(function.grid_vars, extents, item), function.body])
    guarded = build.seq([Declare(item, block * size + thread), If(item < total, body)])
    return replace(function, params=(*function.params, *extents), body=guarded, grid_vars=())


def decode_item(axes: Sequence[Var], extents: Sequence[Expr], item: Var) -> list[Stmt]:
    """Each axis' index from the number of the item; indices are natural, so that division needs no rounding down."""
    stmts: list[Stmt] = []
    rest: Expr = item
    for number in range(len(axes) - 1, 0, -1):
        extent = build.cast(extents[number], dtypes.u64)
        wide = build.cast(rest, dtypes.u64)
        stmts.append(Declare(axes[number], build.cast(wide % extent, dtypes.i64)))
        above = build.size_var(f"above{number}")
        stmts.append(Declare(above, build.cast(wide // extent, dtypes.i64)))
        rest = above
    if axes:
        stmts.append(Declare(axes[0], rest))
    return stmts
