"""Which scalar operation each operator of Python's syntax tree means, read off the spellings in `scalar_ops`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS


def _operators() -> Iterator[tuple[type[ast.AST], str]]:
    for row in (*UNARY_OPS.values(), *BINARY_OPS.values()):
        if row.symbol is not None:
            text = f"{row.symbol}a" if row.arity == 1 else f"a {row.symbol} b"
            node = ast.parse(text, mode="eval").body
            assert isinstance(node, ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.Compare)
            yield type(node.ops[0] if isinstance(node, ast.Compare) else node.op), row.name


PYTHON_OPERATORS: dict[type[ast.AST], str] = dict(_operators())
"""Class of an operator, such as `ast.Add` -> name of its row."""
