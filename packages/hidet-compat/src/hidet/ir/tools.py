"""Questions about expressions and programs, and what is changed in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.compat.expressions import infer_type
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.visit import refold, substitute, walk
from hidet.ir.visit import rewrite as rewrite_nodes
from hidet.lang.operand import unwrapped, wrapped


def collect(node: Any, node_types: Any) -> list[Any]:
    """The nodes of some classes in an expression, a statement, a function or a module."""
    return [found for root in roots(node) for found in walk(root) if isinstance(found, node_types)]


def roots(node: Any) -> list[IRNode]:
    """What there is to walk over: the bodies of a module's functions, or the node itself."""
    plain = unwrapped(node)
    functions = plain.functions if isinstance(plain, Module) else (plain,) if isinstance(plain, Function) else ()
    return [function.body for function in functions] if functions else [plain]


def rewrite(node: Any, rewrite_map: Mapping[Any, Any]) -> Any:
    """An expression or a statement with other expressions in the places of variables."""
    changes = {unwrapped(old): unwrapped(new) for old, new in rewrite_map.items() if isinstance(unwrapped(old), Var)}
    return wrapped(substitute(unwrapped(node), changes))


def simplify(node: Any) -> Any:
    """An expression or a statement with constants folded."""
    return wrapped(rewrite_nodes(unwrapped(node), refold))


__all__ = ["collect", "infer_type", "rewrite", "roots", "simplify"]
