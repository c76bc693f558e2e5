"""The operator: what it means, for every target. hidet derives the numpy reference and the fallback loops from it."""

from __future__ import annotations

from hidet.compute.definition import SUM, Definition, Operand, compute, reduce, single
from hidet.errors import ShapeError
from hidet.graph.operator import OperatorSpec
from hidet.ir.expr import Expr


def define_squared_distance(points: Operand, centers: Operand) -> Definition:
    """points[m, k], centers[n, k] -> result[m, n] = sum over k of (points[i, k] - centers[j, k]) ** 2."""
    if points.rank != 2 or centers.rank != 2 or points.shape[1] != centers.shape[1]:
        raise ShapeError(
            f"squared_distance: points {points.shape} and centers {centers.shape} must be [m, k] and [n, k]"
        )
    m, k = points.shape
    n = centers.shape[0]

    def value(i: Expr, j: Expr) -> Expr:
        def square(r: Expr) -> Expr:
            difference = points[i, r] - centers[j, r]
            return difference * difference

        return reduce(SUM, (k,), square)

    return single((points, centers), compute("squared_distance", (m, n), value))


SQUARED_DISTANCE = OperatorSpec(
    name="squared_distance",
    inputs=("points", "centers"),
    kind="anchor",
    define=define_squared_distance,
    doc="Squared Euclidean distance of every row of points[m, k] to every row of centers[n, k] -> [m, n].",
)
