"""Which names of a script get values where: what is assigned once stands for its value, the others are variables."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cached_property

from hidet.ir.expr import Var


class Bindings:
    """How the names of a script, and of functions inside of it, get values."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self._tree = tree

    @cached_property
    def _counts(self) -> Counter[str]:
        return _count_bindings(self._tree)

    @cached_property
    def _parameters(self) -> set[str]:
        """Parameters to which the function that has them, the script or one inside of it, gives further values."""
        functions = [node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)]
        counted = [(_count_bindings(function), ast.walk(function.args)) for function in functions]
        return {
            node.arg for counts, nodes in counted for node in nodes if isinstance(node, ast.arg) and counts[node.arg]
        }

    @cached_property
    def _loop_targets(self) -> set[str]:
        loops = (node.target for node in ast.walk(self._tree) if isinstance(node, ast.For))
        return {part.id for target in loops for part in ast.walk(target) if isinstance(part, ast.Name)}

    @cached_property
    def addressed(self) -> set[str]:
        """Names of which the script takes the address: `~x` or `address(x)`."""
        found: list[ast.expr] = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                found.append(node.operand)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "address":
                found += node.args[:1]
        return {node.id for node in found if isinstance(node, ast.Name)}

    def is_assigned(self, name: str) -> bool:
        """Whether an assignment somewhere in the function gives the name a value."""
        return self._counts[name] > 0

    def is_rebound(self, name: str, besides: int = 0) -> bool:
        """Whether the name gets a value somewhere in the function, by more than `besides` assignments or a loop, or its
        address is taken."""
        return self._counts[name] > besides or name in self._loop_targets or name in self.addressed

    def may_change(self, variable: Var) -> bool:
        """Whether a variable that a name stands for gets another value than its first."""
        values = self._counts[variable.name] + (variable.name in self._parameters)
        return values > 1 or variable.name in self._loop_targets


def _count_bindings(tree: ast.FunctionDef) -> Counter[str]:
    """How often each name is assigned a value; what `+=` changes counts twice, so that it becomes a variable."""
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                counts.update(name.id for name in ast.walk(target) if _is_stored(name))  # type: ignore[attr-defined]  # names
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Name):
            counts[node.target.id] += 2
        elif isinstance(node, ast.keyword) and node.arg in ("outputs", "output_inputs"):
            # What assembly writes.
            counts.update(2 * [name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)])
    return counts


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
