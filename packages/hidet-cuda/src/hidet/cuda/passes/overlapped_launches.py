"""A kernel starts while the one before it ends: programmatic dependent launch, from sm_90 on (CUDA C++ Programming
Guide, "Programmatic Dependent Launch and Synchronization")."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.launch_flags import independent_flag
from hidet.gpu.weights import weights_of
from hidet.ir import build
from hidet.ir.expr import Call, Expr, Load, Var
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Launch, Return, Seq, Stmt, Store
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import rewrite, walk
from hidet.target import gpu_target

if TYPE_CHECKING:
    from hidet.context import CompileContext

OVERLAPPED = ("overlapped", True)
"""Attribute of a kernel whose launches need not wait for the kernel before: it waits itself."""

_WAIT, _ALLOW, _END = (f"cuda.grid_dependency_{name}" for name in ("wait", "launch", "end"))
_IN_BLOCK = frozenset(
    {
        *("cuda.barrier_init", "cuda.fence_barrier_init", "cuda.prefetch_tensor_map", "cuda.barrier_arrive_expect"),
        *("gpu.syncthreads", "gpu.syncwarp", "gpu.shuffle", "cuda.cluster_arrive", "cuda.cluster_wait"),
        "cuda.copy_async_commit",
    }
)
"""Calls that make a block ready, or by which its threads meet or count: of memory they touch barriers in shared memory,
and maps, which are arguments."""
_COPIES = ("cuda.tensor_load", "cuda.copy_async_", "cuda.bulk_prefetch")
"""Begin the names of copies to memory of the block, and to caches."""
_QUIET = (Seq, Declare, Assign, For, If, Evaluate)
"""Statements that access memory by expressions alone."""
_OF_BLOCK = ("register", "shared")
"""Spaces of memory that no other kernel sees."""


@dataclass(frozen=True)
class OverlappedLaunches:
    """Kernels begin by waiting for what was launched before them, so that the device may make them ready meanwhile.

    They wait before they touch memory, but for what makes their blocks ready: barriers in shared memory, and maps of
    tensors, which are arguments; and but for weights (`hidet.gpu.weights`), of which they read what stands first. Each
    kernel's end implies the end of all before it, so that the order of everything they read and write stays that of
    their launches; and since a kernel lets the next one start when it has waited itself, what that reads early was
    written before the first kernel of the call started, which host code launches in order where it reads early itself.
    Kernels that say themselves what they wait for are left alone.

    A kernel that is told that it is independent (`Invoke.is_independent`) waits at its end instead: it runs beside
    those before it, and lets the next one start at once.
    """

    name: ClassVar[str] = "cuda-overlapped-launches"

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The same module for devices that do not have it."""
        has_them = gpu_target(ctx.target).has("programmatic-dependent-launch")
        return overlapped_launches(module) if has_them else module


def overlapped_launches(module: Module) -> Module:
    """The pass as a function."""
    kernels = {f.name for f in module.functions if f.kind == "kernel" and _may_overlap(f)}
    launches = [node for f in module.functions if f.kind == "host" for node in walk(f.body) if isinstance(node, Launch)]
    told = kernels & {node.kernel for node in launches}
    told -= {f.name for f in module.functions if any(isinstance(node, Return) for node in walk(f.body))}

    def tell(node: IRNode) -> IRNode | None:
        if isinstance(node, Launch) and node.kernel in told:
            return replace(node, arguments=(*node.arguments, independent_flag()))
        return None

    def changed(function: Function) -> Function:
        if function.name in kernels:
            return _overlapped(function, is_told=function.name in told)
        return replace(function, body=rewrite(function.body, tell)) if told and function.kind == "host" else function

    return replace(module, functions=tuple(map(changed, module.functions)))


def _may_overlap(function: Function) -> bool:
    return OVERLAPPED not in function.attributes and not _waits_itself(function)


def _overlapped(function: Function, *, is_told: bool) -> Function:
    """is_told: whether launches say by a last argument if the kernel is independent of what was launched before."""
    stmts = function.body.stmts if isinstance(function.body, Seq) else (function.body,)
    count = _count_of_preparation(stmts, weights_of(function))
    wait, allow = (Evaluate(intrinsic_call(name)) for name in (_WAIT, _ALLOW))
    params, attributes = function.params, (*function.attributes, OVERLAPPED)
    first: Stmt = wait
    last: Stmt = build.seq([])
    if is_told:
        flag = Var("is_independent", dtypes.i32)
        params = (*params, flag)
        # Its end has to imply that of what was launched before, whatever it waits for.
        first, last = (If(build.binary(op, flag, 0), wait) for op in ("eq", "ne"))
    given = build.seq(stmts[count:])
    # One thread of each block that waits is enough; where none is marked, all do.
    rest = rewrite(given, lambda node: last if _is_end(node) else None)
    body = build.seq([*stmts[:count], first, allow, rest, *([last] if rest is given else [])])
    return replace(function, params=params, body=body, attributes=attributes)


def _is_end(node: IRNode) -> bool:
    return isinstance(node, Evaluate) and isinstance(node.expr, Call) and node.expr.callee == _END


def _count_of_preparation(stmts: tuple[Stmt, ...], weights: frozenset[Var]) -> int:
    """How many statements at the beginning make a block ready or read weights; 0 where they only compute."""
    early = _EarlyStatements(weights)
    count = sum(1 for _ in takewhile(early.may_be, stmts))
    nodes = (node for stmt in stmts[:count] for node in walk(stmt))
    is_any = any(isinstance(node, Load) or (isinstance(node, Call) and node.callee in _IN_BLOCK) for node in nodes)
    return count if is_any else 0


class _EarlyStatements:
    """Which statements neither read nor write what the kernel before may write or read. They are asked in order."""

    def __init__(self, weights: frozenset[Var]) -> None:
        self._weights = set(weights)

    def may_be(self, stmt: Stmt) -> bool:
        """Whether a statement may stand before the wait."""
        return all(self._is_quiet(node) for node in walk(stmt))

    def _is_quiet(self, node: IRNode) -> bool:
        if isinstance(node, Declare) and isinstance(node.var.type, PointerType):
            # A pointer into weights is one of them.
            if node.init is not None and _is_in(self._weights, node.init):
                self._weights.add(node.var)
            return True
        if isinstance(node, Call):
            return self._is_quiet_call(node)
        if isinstance(node, Load):
            return _is_in(self._weights, node.buffer)
        if isinstance(node, Store):
            return _is_in((), node.buffer)
        if isinstance(node, Assign):
            return not isinstance(node.var.type, PointerType)
        return not isinstance(node, Stmt) or isinstance(node, _QUIET)

    def _is_quiet_call(self, call: Call) -> bool:
        if call.callee in _IN_BLOCK:
            return True
        if call.callee.startswith(_COPIES):
            addresses = (a for a in call.arguments if isinstance(a.type, (PointerType, BufferType)))
            return all(_is_in(self._weights, address) for address in addresses)
        return call.intrinsic is not None and call.intrinsic.effect == "pure"


def _is_in(tensors: Collection[Var], address: Expr) -> bool:
    """Whether an address is known to be in some tensors, or in memory of the block: one that is a number may be any."""
    found = [node for node in walk(address) if isinstance(node, Var)]
    spaces = {var: var.type.space for var in found if isinstance(var.type, (PointerType, BufferType))}
    return bool(spaces) and all(var in tensors or space in _OF_BLOCK for var, space in spaces.items())


def _waits_itself(function: Function) -> bool:
    return any(isinstance(node, Call) and node.callee in (_WAIT, _ALLOW) for node in walk(function.body))
