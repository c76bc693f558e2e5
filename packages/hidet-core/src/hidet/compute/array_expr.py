"""Evaluates an expression of a compute definition for all indices of a space at once.

Every array has either rank 0 or the rank of the space, with extent 1 along the axes it does not depend on. Reductions
own further axes of the same space, so that all arrays of one evaluation broadcast against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet import dims
from hidet.compute import contract, reduction
from hidet.compute.gather import Index, read
from hidet.compute.space import Space, box, linear
from hidet.errors import UnsupportedOp, VerifyError
from hidet.ir.expr import (
    Access,
    Binary,
    Bitcast,
    Broadcast,
    Cast,
    Const,
    Expr,
    Extract,
    Reduce,
    Select,
    Size,
    Unary,
    Var,
)
from hidet.ir.scalar_numpy import apply_binary, apply_unary, convert

if TYPE_CHECKING:
    from hidet.compute.definition import Operand

Array = np.ndarray[Any, Any]


class ArrayExpr:
    """Evaluation of expressions over `space`, reading `tensors`, with symbolic sizes bound by name.

    `variables` gives values to variables that are no axes of the space. Results are remembered per node.
    """

    def __init__(
        self,
        space: Space,
        tensors: Mapping[Operand, Array],
        bindings: Mapping[str, int],
        variables: Mapping[Var, Array] | None = None,
    ) -> None:
        self.space = space
        self.tensors = tensors
        self.bindings = bindings
        self.variables = variables or {}
        self._known: dict[tuple[int, bool], Array] = {}
        self._reductions: dict[tuple[object, ...], list[Array]] = {}

    def __call__(self, expr: Expr, guarded: bool = False) -> Array:
        """The value of `expr`; under a Select (`guarded`) operands may be read out of range."""
        key = (id(expr), guarded)
        known = self._known.get(key)
        if known is None:
            case = _CASES.get(type(expr))
            if case is None:
                raise UnsupportedOp(f"{type(expr).__name__} has no meaning in a compute definition")
            known = self._known[key] = case(self, expr, guarded)
        return known

    def var(self, expr: Var, guarded: bool) -> Array:
        axis = self.space.positions.get(expr)
        if axis is None:
            if expr not in self.variables:
                raise VerifyError(f"variable {expr.name} is bound by no axis of the definition")
            return self.variables[expr]
        start, extent = self.space.starts[axis], self.space.extents[axis]
        shape = [extent if n == axis else 1 for n in range(self.space.rank)]
        return np.arange(start, start + extent, dtype=expr.dtype.numpy()).reshape(shape)

    def const(self, expr: Const, guarded: bool) -> Array:
        return np.asarray(np.asarray(expr.value).astype(expr.dtype.numpy()))

    def size(self, expr: Size, guarded: bool) -> Array:
        return np.asarray(dims.evaluate(expr.dim, self.bindings), expr.dtype.numpy())

    def unary(self, expr: Unary, guarded: bool) -> Array:
        return apply_unary(expr.op, self(expr.a, guarded), expr.dtype)

    def binary(self, expr: Binary, guarded: bool) -> Array:
        return apply_binary(expr.op, self(expr.a, guarded), self(expr.b, guarded), expr.dtype)

    def select(self, expr: Select, guarded: bool) -> Array:
        condition = self(expr.condition, guarded)
        if condition.all():
            return self(expr.a, guarded)
        if not condition.any():
            return self(expr.b, guarded)
        return np.where(condition, self(expr.a, True), self(expr.b, True))

    def cast(self, expr: Cast, guarded: bool) -> Array:
        return convert(self(expr.a, guarded), expr.a.dtype, expr.dtype)

    def bitcast(self, expr: Bitcast, guarded: bool) -> Array:
        value = self(expr.a, guarded)
        return np.ascontiguousarray(value).view(expr.dtype.numpy()).reshape(value.shape)

    def access(self, expr: Access, guarded: bool) -> Array:
        tensor = self.tensors.get(expr.operand)
        if tensor is None:
            raise VerifyError(f"operand {expr.operand.name} is read before it is defined")
        if not expr.indices or self._is_all(tensor, expr.indices):
            return tensor
        indices: list[Index] = []
        for index in expr.indices:
            form = linear(index, self.space, self.bindings)
            indices.append(self(index, guarded) if form is None else form)
        return read(expr.operand.name, tensor, indices, self.space, guarded)

    def _is_all(self, tensor: Array, indices: Sequence[Expr]) -> bool:
        """Whether a tensor is read at every index of the space, each element at its own."""
        space = self.space
        return (
            tensor.shape == space.extents
            and not any(space.starts)
            and [space.positions.get(index) for index in indices] == [*range(space.rank)]  # type: ignore[call-overload]  # other expressions are no positions
        )

    def reduce(self, expr: Reduce, guarded: bool) -> Array:
        key = (id(expr.combiner), guarded, *map(id, expr.axes), *map(id, expr.values))
        if key not in self._reductions:
            self._reductions[key] = self._reduce(expr, guarded)
        return self._reductions[key][expr.result]

    def _reduce(self, expr: Reduce, guarded: bool) -> list[Array]:
        limits = [self(extent, guarded) for extent in expr.extents]
        axes = {self.space.positions[var]: self.space.extents[self.space.positions[var]] for var in expr.axes}
        types = [value.dtype for value in expr.values]
        neutral = [constant(e) for e in expr.combiner.identity(types)]
        if 0 in axes.values():
            return [n.reshape((1,) * self.space.rank) for n in neutral]
        ragged = any(limit.size != 1 for limit in limits)
        product = None if ragged else contract.factors(expr)
        if product is not None:
            return [contract.sum_of_products(self(product[0], guarded), self(product[1], guarded), axes)]
        values = [self(value, guarded or ragged) for value in expr.values]
        if ragged:
            inside = np.asarray(True)
            for var, limit in zip(expr.axes, limits, strict=True):
                inside = inside & (self(var) < limit)
            values = [np.where(inside, value, n) for value, n in zip(values, neutral, strict=True)]
        return reduction.reduce(expr.combiner, values, axes, self.space.rank)


_CASES: dict[type[Expr], Callable[[Any, Any, bool], Array]] = {
    Var: ArrayExpr.var,
    Const: ArrayExpr.const,
    Size: ArrayExpr.size,
    Unary: ArrayExpr.unary,
    Binary: ArrayExpr.binary,
    Select: ArrayExpr.select,
    Cast: ArrayExpr.cast,
    Bitcast: ArrayExpr.bitcast,
    Access: ArrayExpr.access,
    Reduce: ArrayExpr.reduce,
    Broadcast: lambda self, expr, guarded: self(expr.a, guarded),
    Extract: lambda self, expr, guarded: self(expr.a, guarded),
}


def constant(expr: Expr) -> Array:
    """The value of an expression without variables, as an array of rank 0."""
    return ArrayExpr(box((), ()), {}, {})(expr)


def with_variables(exprs: Sequence[Expr], variables: Mapping[Var, Array]) -> list[Array]:
    """Values of expressions over `variables` alone, whose arrays broadcast against each other."""
    evaluate = ArrayExpr(box((), ()), {}, {}, variables)
    return [evaluate(expr) for expr in exprs]
