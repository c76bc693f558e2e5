"""Walking and rewriting IR: pre-order iteration, bottom-up rewriting with sharing, substitution."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar, cast

from hidet.ir import build
from hidet.ir.expr import Access, Binary, Call, Cast, Expr, Reduce, Select, Unary, Var
from hidet.ir.func import Module
from hidet.ir.node import IRNode
from hidet.ir.stmt import Assert, Stmt
from hidet.loc import Loc

AnyNode = TypeVar("AnyNode", bound=IRNode)
Leaf = TypeVar("Leaf", bound=IRNode)


def walk(root: IRNode, leave_out: Collection[IRNode] = ()) -> Iterator[IRNode]:
    """Every distinct node below and including `root`, parents first; shared nodes once.

    leave_out: nodes that are passed over, with what is below them.
    """
    stack: list[IRNode] = [root]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        number = id(current)
        if number in seen or (leave_out and current in leave_out):
            continue
        seen.add(number)
        yield current
        if current.child_fields:
            stack += current.children()[::-1]


def statements(root: Stmt) -> Iterator[Stmt]:
    """`root` and every statement below it, parents first."""
    stack = [root]
    while stack:
        current = stack.pop()
        yield current
        if current.holds_statements:
            stack += [child for child in current.children()[::-1] if isinstance(child, Stmt)]


def located_calls(root: Stmt) -> Iterator[tuple[Call, Loc | None]]:
    """Every call below `root`, with the place in the user's script of the statement that it stands in."""
    loc: Loc | None = None
    for node in walk(root):
        if isinstance(node, Stmt):
            loc = getattr(node, "loc", None) or loc
        elif isinstance(node, Call):
            yield node, loc


def has_statement(root: Stmt, kind: type[Stmt]) -> bool:
    """Whether `root` or a statement below it is of exactly this class. Sooner told than by going through `statements`:
    compilations ask it of every function."""
    stack: list[Any] = [root]
    while stack:
        current = stack.pop()
        if type(current) is kind:
            return True
        if current.holds_statements:
            stack += current.children()
    return False


def asserts_reach_host(module: Module, kernel_asserts_reach_host: bool) -> bool:
    """Whether assertions of a module that fail are reported to host code. kernel_asserts_reach_host: whether those in
    kernels are, too."""
    functions = (function for function in module.functions if kernel_asserts_reach_host or function.kind != "kernel")
    return any(has_statement(function.body, Assert) for function in functions)


def rewrite(
    root: AnyNode, change: Callable[[IRNode], IRNode | None], given: Mapping[Any, IRNode] | None = None
) -> AnyNode:
    """Rebuild `root` bottom-up; `change(node)` returns a replacement or None to keep it. Unchanged parts are shared.

    given: what stands for nodes below `root`, and is not looked into.
    """
    memo: dict[int, IRNode] = {} if given is None else {id(node): new for node, new in given.items()}

    def visit(current: IRNode) -> IRNode:
        known = memo.get(id(current))
        if known is not None:
            return known
        rebuilt: IRNode = current.rebuild(visit) if current.child_fields else current
        changed = change(rebuilt)
        memo[id(current)] = result = rebuilt if changed is None else changed
        return result

    return cast(AnyNode, visit(root))


def _replace(root: AnyNode, kind: type[Leaf], replacement: Callable[[Leaf], Expr | None]) -> AnyNode:
    """Replace nodes of a kind, bottom-up, and fold the arithmetic above what was replaced."""
    memo: dict[int, IRNode] = {}

    def visit(current: IRNode) -> IRNode:
        known = memo.get(id(current))
        if known is not None:
            return known
        rebuilt: IRNode = current.rebuild(visit) if current.child_fields else current
        if isinstance(rebuilt, kind):
            changed: IRNode | None = replacement(rebuilt)
        else:
            changed = None if rebuilt is current else refold(rebuilt)
        memo[id(current)] = result = rebuilt if changed is None else changed
        return result

    return cast(AnyNode, visit(root))


def substitute(root: AnyNode, mapping: Mapping[Var, Expr]) -> AnyNode:
    """Replace variables by expressions, folding index arithmetic on the way up."""
    if not mapping:
        return root
    return _replace(root, Var, mapping.get)


def refold(node: IRNode) -> IRNode | None:
    """Rebuild an arithmetic node through its folding constructor; None for other nodes or when nothing folds."""
    folded: Expr
    if isinstance(node, Binary):
        folded = build.binary(node.op, node.a, node.b)
    elif isinstance(node, Select):
        folded = build.select(node.condition, node.a, node.b)
    elif isinstance(node, Unary):
        folded = build.unary(node.op, node.a)
    elif isinstance(node, Cast):
        folded = build.cast(node.a, node.dtype)
    else:
        return None
    return None if type(folded) is type(node) and folded.children() == node.children() else folded


def replace_accesses(root: Expr, replacement: Callable[[Access], Expr | None]) -> Expr:
    """Replace operand accesses bottom-up: this is how a producer is inlined into its consumer."""
    return _replace(root, Access, replacement)


def accesses(root: Expr) -> list[Access]:
    """All operand accesses of an expression, in first-visit order."""
    return [n for n in walk(root) if isinstance(n, Access)]


def has_reduce(root: Expr) -> bool:
    """Whether an expression contains a reduction."""
    return any(isinstance(n, Reduce) for n in walk(root))
