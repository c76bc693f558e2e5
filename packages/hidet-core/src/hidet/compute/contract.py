"""Sums of products of two arrays, as matrix products: matmul and convolution without materialising the products."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.ir.expr import Binary, Expr, Reduce

Array = np.ndarray[Any, Any]

# numpy multiplies matrices of these types; below f32 the accumulator would be too narrow to match the definition.
_CONTRACTED = frozenset({dtypes.f32, dtypes.f64, dtypes.i32, dtypes.i64, dtypes.u32, dtypes.u64})


def factors(reduction: Reduce) -> tuple[Expr, Expr] | None:
    """The two factors when `reduction` sums one product, None otherwise."""
    value = reduction.values[0]
    if reduction.combiner.name != "sum" or not isinstance(value, Binary) or value.op != "mul":
        return None
    return (value.a, value.b) if value.dtype in _CONTRACTED else None


def sum_of_products(a: Array, b: Array, reduced: dict[int, int]) -> Array:
    """sum(a * b) over the axes `reduced` (axis number -> extent), kept with extent 1.

    a and b broadcast against each other and have the same rank; either may have extent 1 along a reduced axis.
    """
    rank = max(a.ndim, b.ndim)
    a, b = (x.reshape((1,) * rank) if x.ndim == 0 else x for x in (a, b))
    scale = 1
    kinds: dict[str, list[int]] = {"batch": [], "left": [], "right": [], "summed": []}
    for axis in range(rank):
        in_a, in_b = a.shape[axis] != 1, b.shape[axis] != 1
        if axis not in reduced:
            kinds["batch" if in_a and in_b else "left" if in_a else "right"].append(axis)
        elif in_a and in_b:
            kinds["summed"].append(axis)
        elif in_a:
            a = a.sum(axis=axis, keepdims=True, dtype=a.dtype)
        elif in_b:
            b = b.sum(axis=axis, keepdims=True, dtype=b.dtype)
        else:
            scale *= reduced[axis]
    batch, left, right, summed = kinds["batch"], kinds["left"], kinds["right"], kinds["summed"]
    shape = np.broadcast_shapes(*(x.shape for x in (a, b)))
    product = np.matmul(_matrices(a, batch, left, summed), _matrices(b, batch, summed, right))
    order = [*batch, *left, *right]
    unpacked = product.reshape([shape[axis] for axis in order])
    result = np.expand_dims(unpacked.transpose(np.argsort(order)), sorted(set(range(rank)) - set(order)))
    return result if scale == 1 else result * result.dtype.type(scale)


def _matrices(x: Array, batch: list[int], rows: list[int], columns: list[int]) -> Array:
    """`x` as a stack of matrices; along the axes in none of the lists it has extent 1."""
    listed = [*batch, *rows, *columns]
    dropped = [axis for axis in range(x.ndim) if axis not in listed]
    sizes = [prod(x.shape[axis] for axis in group) for group in (batch, rows, columns)]
    return np.squeeze(x, tuple(dropped)).transpose(np.argsort(np.argsort(listed))).reshape(sizes)
