"""Mathematical functions as code: no CPU has an instruction for exp, and generated code calls no library.

Every float operation that LLVM would turn into a library call becomes a call of a device function of the same module,
which LLVM inlines, so that loops over it are vectorised. Powers with small constant exponents become products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet.cpu.math.functions import BINARY_NAMES, math_functions, needs_function
from hidet.ir import build
from hidet.ir.expr import Binary, Broadcast, Const, Expr, Unary
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.visit import rewrite

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True, slots=True)
class ExpandMath:
    """Replaces Unary and Binary nodes by calls, and adds the functions they call to the module."""

    name: ClassVar[str] = "expand-math"

    def run(self, module: Module, ctx: CompileContext | None = None) -> Module:
        """The module without operations that code generation cannot emit."""
        return expand_math(module)


def expand_math(module: Module) -> Module:
    """See `ExpandMath`; the same object when there is nothing to replace."""
    added: dict[str, Function] = {}

    def change(n: IRNode) -> IRNode | None:
        if isinstance(n, Unary):
            return _call(n.op, (n.a,), added)
        if isinstance(n, Binary):
            power = _constant_power(n)
            return _call(n.op, (n.a, n.b), added) if power is None else power
        return None

    functions = []
    for function in module.functions:
        # Most functions have no such operation, and looking is cheaper than rebuilding.
        arithmetic = (node for node in inner_nodes(function.body) if type(node) in _ARITHMETIC)
        body = rewrite(function.body, change) if any(map(_is_expanded, arithmetic)) else function.body
        functions.append(function if body is function.body else replace(function, body=body))
    if all(new is old for new, old in zip(functions, module.functions, strict=True)):
        return module
    return replace(module, functions=(*added.values(), *functions))


def inner_nodes(root: IRNode) -> Iterator[IRNode]:
    """The nodes of `hidet.ir.visit.walk` that have children: most nodes have none."""
    stack: list[IRNode] = [root]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            stack += [child for child in current.children()[::-1] if child.child_fields]


_ARITHMETIC = frozenset({Unary, Binary})


def _is_expanded(n: IRNode) -> bool:
    if isinstance(n, Binary):
        return n.op in BINARY_NAMES and (n.op == "pow" or needs_function(n.op, 2, n.a.dtype))
    return isinstance(n, Unary) and needs_function(n.op, 1, n.a.dtype)


def _call(op: str, operands: tuple[Expr, ...], added: dict[str, Function]) -> Expr | None:
    dtype, lanes = operands[0].dtype, operands[0].lanes
    if not needs_function(op, len(operands), dtype):
        return None
    needed = math_functions(op, len(operands), dtype, lanes)
    for function in needed:
        added.setdefault(function.name, function)
    return build.call(needed[0].name, *operands, type=operands[0].type)


def _constant_power(n: Binary) -> Expr | None:
    """x ** c for the exponents that need no logarithm; half types are left to the general function."""
    if n.op != "pow" or n.a.dtype.name in ("float16", "bfloat16"):
        return None
    literal = n.b.a if isinstance(n.b, Broadcast) else n.b
    if not isinstance(literal, Const) or isinstance(literal.value, complex):
        return None
    x, exponent = n.a, float(literal.value)
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == 3.0:
        return x * x * x
    if not x.dtype.is_float:
        return None
    if exponent == -1.0:
        return 1.0 / x
    if exponent == 0.5:
        # Of -0 this is -0 and of -inf NaN, where IEEE has 0 and inf; numpy and torch take the root too.
        return build.unary("sqrt", x)
    return None
