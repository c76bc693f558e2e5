"""What is known of the signs of expressions, so that divisions and shifts by them take fewer instructions."""

from __future__ import annotations

from hidet.dtypes import DType
from hidet.ir import expr as e
from hidet.ir.types import element_dtype


def is_positive(node: e.Expr) -> bool:
    """Whether a number is surely above zero."""
    if isinstance(node, e.Const):
        return not isinstance(node.value, complex) and node.value > 0
    if isinstance(node, e.Binary) and node.op == "max":
        return is_positive(node.a) or is_positive(node.b)
    return isinstance(node, e.Call) and node.callee.startswith(("gpu.block_dim.", "gpu.grid_dim."))


def is_natural(node: e.Expr, naturals: set[e.Var]) -> bool:
    """Whether a number is surely not below zero; `naturals` are variables that are known not to be."""
    if isinstance(node, e.Var) and node in naturals:
        return True
    if isinstance(node, e.Const):
        return not isinstance(node.value, complex) and node.value >= 0
    if isinstance(node, e.Cast):
        # Half of the values of an unsigned type are below zero in the signed type of as many bits.
        more = element_dtype(node.type).bits - node.a.dtype.bits
        return is_natural(node.a, naturals) and (more > 0 or (more == 0 and node.a.dtype.kind != "uint"))
    if isinstance(node, e.Call):
        return node.intrinsic is not None and node.intrinsic.group == "index"
    if isinstance(node, e.Binary):
        both = is_natural(node.a, naturals) and is_natural(node.b, naturals)
        if node.op in ("add", "mul", "floordiv", "min", "and", "shr"):
            return both
        return (node.op == "mod" and is_natural(node.b, naturals)) or (
            node.op == "max" and (is_natural(node.a, naturals) or is_natural(node.b, naturals))
        )
    return isinstance(node.type, DType) and node.type.kind == "uint"
