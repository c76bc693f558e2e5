"""Walks over expressions, statements and functions, to be derived from.

    class CountLoops(IRVisitor):
        def visit_For(self, loop):
            self.loops += 1
            super().visit_For(loop)

A method `visit_<class of the node>` gets each node of that class; classes are those of `hidet.ir.expr` and
`hidet.ir.stmt`. What a class has no method for is walked over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.lang.operand import unwrapped, wrapped


class IRFunctor:
    """What visitors and rewriters have in common."""

    def __call__(self, node: Any) -> Any:
        return self.visit(node)

    def visit(self, node: Any) -> Any:
        """The method for the class of a node, or for all others."""
        plain = unwrapped(node)
        return getattr(self, f"visit_{type(plain).__name__}")(plain)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("visit_"):
            return self.visit_others
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def visit_others(self, node: Any) -> Any:
        """What has no method of its own."""
        raise NotImplementedError


class IRVisitor(IRFunctor):
    """Looks at nodes; methods return nothing."""

    def visit_others(self, node: Any) -> Any:
        """Look at what a node is made of."""
        if isinstance(node, Module):
            for function in node.functions:
                self.visit(function)
        elif isinstance(node, Function):
            for part in (*node.params, node.body):
                self.visit(part)
        elif isinstance(node, IRNode):
            for child in node.children():
                self.visit(child)


class IRRewriter(IRFunctor):
    """Makes other nodes; methods return what stands for a node. Unchanged parts are shared."""

    def __call__(self, node: Any) -> Any:
        return wrapped(self.visit(node)) if unwrapped(node) is not node else self.visit(node)

    def visit_others(self, node: Any) -> Any:
        """A node made of what stands for its parts."""
        if isinstance(node, Module):
            functions = tuple(self.visit(function) for function in node.functions)
            is_same = all(new is old for new, old in zip(functions, node.functions, strict=True))
            return node if is_same else replace(node, functions=functions)
        if isinstance(node, Function):
            body = self.visit(node.body)
            return node if body is node.body else replace(node, body=body)
        return node.rebuild(self.visit) if isinstance(node, IRNode) and node.child_fields else node


ExprVisitor = StmtVisitor = ModuleVisitor = IRVisitor
ExprRewriter = StmtRewriter = ModuleRewriter = IRRewriter

__all__ = [
    "ExprRewriter",
    "ExprVisitor",
    "IRFunctor",
    "IRRewriter",
    "IRVisitor",
    "ModuleRewriter",
    "ModuleVisitor",
    "StmtRewriter",
    "StmtVisitor",
]
