"""Common divisors and multiples of integers."""

from __future__ import annotations

from hidet.compute.definition import Definition, Operand, Routine, compute, single
from hidet.compute.routines import COMMON_DIVISOR
from hidet.graph.operator import OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import broadcast_shapes, read_broadcast, require_dtype, require_same_dtype


def _divisors(name: str, a: Operand, b: Operand) -> Routine:
    require_dtype(name, a, "int")
    dtype = require_same_dtype(name, (a, b))
    found = Operand("divisors", dtype, broadcast_shapes(name, (a.shape, b.shape)))
    return Routine(COMMON_DIVISOR, (a, b), (found,))


def _gcd(a: Operand, b: Operand) -> Definition:
    return single((a, b), _divisors("gcd", a, b))


def _lcm(a: Operand, b: Operand) -> Definition:
    routine = _divisors("lcm", a, b)
    (divisors,) = routine.results

    def multiple(*axes: Expr) -> Expr:
        x, y = (read_broadcast(operand, axes, divisors.shape) for operand in (a, b))
        # Dividing first keeps the product within the type wherever the result is.
        product = build.binary("truncdiv", x, build.maximum(divisors[axes], 1)) * y
        return build.select(product < 0, -product, product) if product.dtype.is_signed else product

    stage = compute("lcm", divisors.shape, multiple)
    return Definition((a, b), (routine, stage), (stage.result,))


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="gcd",
        inputs=("a", "b"),
        kind="routine",
        define=_gcd,
        doc="Greatest common divisors, not negative, 0 of two zeros; numpy broadcasting, one integer type. torch.gcd.",
    ),
    OperatorSpec(
        name="lcm",
        inputs=("a", "b"),
        kind="routine",
        define=_lcm,
        doc="Least common multiples, not negative, 0 where one is 0; numpy broadcasting, one integer type. torch.lcm.",
    ),
)
