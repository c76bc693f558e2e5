"""Expressions as text in which what is used several times is written once.

Expressions share their parts. As trees, those of a chain of operators that read their arguments twice would double with
each of them.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from hidet.ir.expr import Expr, Var
from hidet.ir.expr_text import Names, expr_text
from hidet.ir.node import IRNode
from hidet.ir.visit import walk

_SMALL = 4
"""Parts of fewer nodes are as short as a name for them."""

_LONG = 250
"""Nodes of a tree that nobody reads as one line."""


def value_text(expr: Expr, names: Names) -> str:
    """The text of an expression; where as a tree it is long, `let_text`."""
    if not expr.child_fields or _tree_size(expr) < _LONG:
        return expr_text(expr, names)
    return let_text(expr, names.inner())


def let_text(expr: Expr, names: Names) -> str:
    """`let(t0 := part, t1 := part, expression)`, the text alone where nothing is used several times.

    names: of the scope in which this stands alone.
    """
    parts, text = parted_text(expr, names)
    return f"let({''.join(f'{name} := {part}, ' for name, part in parts)}{text})" if parts else text


def parted_text(expr: Expr, names: Names) -> tuple[list[tuple[str, str]], str]:
    """Names and texts of the parts that are used several times, each over those before it; and the text over all.

    names: of the scope in which this stands alone, where the parts get theirs.
    """
    nodes = list(walk(expr))
    uses = Counter(id(child) for node in nodes for child in node.children())
    parts: list[tuple[str, str]] = []
    sizes: dict[int, int] = {}
    memo: dict[int, IRNode] = {}

    def visit(node: IRNode) -> IRNode:
        known = memo.get(id(node))
        if known is not None:
            return known
        made: IRNode = node.rebuild(visit) if node.child_fields else node
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in node.children())
        if uses[id(node)] > 1 and sizes[id(node)] >= _SMALL:
            part = cast(Expr, made)
            text = expr_text(part, names)
            made = Var(f"t{len(parts)}", part.type)
            parts.append((names(made), text))
        memo[id(node)] = made
        return made

    return parts, expr_text(cast(Expr, visit(expr)), names)


def _tree_size(expr: Expr) -> int:
    """How many nodes an expression has as a tree, found in a visit of each node that it has."""
    return _count(expr, {})


def _count(node: IRNode, sizes: dict[int, int]) -> int:
    known = sizes.get(id(node))
    if known is None:
        known = sizes[id(node)] = 1 + sum(_count(child, sizes) for child in node.children())
    return known
