"""Evaluates an expression of a compute definition for all indices of a space at once.

Every array has either rank 0 or the rank of the space, with extent 1 along the axes it does not depend on. Reductions
own further axes of the same space, so that all arrays of one evaluation broadcast against each other. Combiners, which
are expressions themselves, reduce, scan and scatter whole arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet import dims
from hidet.compute import contract
from hidet.compute.gather import Index, read
from hidet.compute.space import Space, box, linear
from hidet.dtypes import from_numpy
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
    from hidet.compute.definition import Combiner, Operand

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
        return reduce(expr.combiner, values, axes, self.space.rank)


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


def combine(combiner: Combiner, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    """The combination of two tuples of arrays of equal shapes."""
    left_vars, right_vars = (
        [Var(f"{side}{n}", from_numpy(array.dtype)) for n, array in enumerate(arrays)]
        for side, arrays in (("left", left), ("right", right))
    )
    values = dict(zip([*left_vars, *right_vars], [*left, *right], strict=True))
    return with_variables(combiner.combine(left_vars, right_vars), values)


def reduce(combiner: Combiner, values: Sequence[Array], axes: Mapping[int, int], rank: int) -> list[Array]:
    """Reduce tuples of arrays of rank 0 or `rank` over `axes` (axis number -> extent, none zero), kept with extent
    1."""
    full = []
    for value in values:
        value = value.reshape((1,) * rank) if value.ndim == 0 else value
        full.append(np.broadcast_to(value, [axes.get(n, extent) for n, extent in enumerate(value.shape)]))
    if combiner.numpy is not None:
        ufunc = getattr(np, combiner.numpy)
        if combiner.numpy == "add" and full[0].dtype.kind == "f":
            # numpy adds up in pairs along the last axis of a contiguous array only, one by one elsewhere.
            kept = [1 if n in axes else extent for n, extent in enumerate(full[0].shape)]
            reduced_last = np.ascontiguousarray(_axes_last(full[0], sorted(axes)))
            return [ufunc.reduce(reduced_last, axis=-1, dtype=reduced_last.dtype).reshape(kept)]
        return [ufunc.reduce(full[0], axis=tuple(axes), keepdims=True, dtype=full[0].dtype)]
    common = np.broadcast_shapes(*(value.shape for value in full))
    ordered = sorted(axes)
    rows = [_axes_last(np.broadcast_to(value, common), ordered) for value in full]
    reduced = _reduce_rows(combiner, rows)
    kept = [1 if n in axes else extent for n, extent in enumerate(common)]
    return [value.reshape(kept) for value in reduced]


def _axes_last(array: Array, axes: Sequence[int]) -> Array:
    """The axes `axes` moved to the end, in order, and merged into one."""
    others = [n for n in range(array.ndim) if n not in axes]
    moved = array.transpose([*others, *axes])
    return moved.reshape([*(array.shape[n] for n in others), math.prod(array.shape[n] for n in axes)])


def _reduce_rows(combiner: Combiner, rows: list[Array]) -> list[Array]:
    """Reduce the last axis by pairs of neighbours, so that the left operand always comes earlier."""
    while rows[0].shape[-1] > 1:
        even = rows[0].shape[-1] // 2 * 2
        paired = combine(combiner, [r[..., 0:even:2] for r in rows], [r[..., 1:even:2] for r in rows])
        if even < rows[0].shape[-1]:
            paired = [np.concatenate([p, r[..., even:]], axis=-1) for p, r in zip(paired, rows, strict=True)]
        rows = paired
    return [r[..., 0] for r in rows]


def scan(
    combiner: Combiner, values: Sequence[Array], axis: int, neutral: Sequence[Array], exclusive: bool, reverse: bool
) -> list[Array]:
    """Scans along `axis` of full arrays of one shape; `neutral` is the combiner's identity."""
    moved = [np.moveaxis(v, axis, -1) for v in values]
    if reverse:
        moved = [v[..., ::-1] for v in moved]
    if moved[0].size == 0:
        results = moved
    elif combiner.numpy is not None and moved[0].dtype.kind != "V":
        results = [getattr(np, combiner.numpy).accumulate(moved[0], axis=-1, dtype=moved[0].dtype)]
    else:
        results = _doubling(combiner, moved, reverse)
    if exclusive and moved[0].size:
        results = [
            np.concatenate([np.broadcast_to(n, (*r.shape[:-1], 1)).astype(r.dtype), r[..., :-1]], axis=-1)
            for r, n in zip(results, neutral, strict=True)
        ]
    if reverse:
        results = [r[..., ::-1] for r in results]
    return [np.ascontiguousarray(np.moveaxis(r, -1, axis)) for r in results]


def _doubling(combiner: Combiner, values: list[Array], reverse: bool) -> list[Array]:
    """Hillis and Steele's parallel prefix: after step k every element is the reduction of its 2^k predecessors.

    With `reverse` the arrays are mirrored, so that the predecessors come later along the axis and stand on the right.
    """
    distance = 1
    while distance < values[0].shape[-1]:
        before, after = [v[..., :-distance] for v in values], [v[..., distance:] for v in values]
        reduced = combine(combiner, after, before) if reverse else combine(combiner, before, after)
        values = [np.concatenate([v[..., :distance], f], axis=-1) for v, f in zip(values, reduced, strict=True)]
        distance *= 2
    return values


def scatter(combiner: Combiner | None, target: Array, places: Array, updates: Array) -> None:
    """Apply `updates` in order to the flat array `target` at `places`; without a combiner the last one stays."""
    if combiner is None:
        target[places] = updates
    elif combiner.numpy is not None and target.dtype.kind != "V":
        getattr(np, combiner.numpy).at(target, places, updates)
    else:
        for chosen in _rounds(places):
            target[places[chosen]] = combine(combiner, [target[places[chosen]]], [updates[chosen]])[0]


def _rounds(places: Array) -> list[Array]:
    """Positions of the updates, in rounds that hit no place twice, each place's updates in order over the rounds."""
    order = np.argsort(places, kind="stable")
    ranked = places[order]
    is_first = np.ones(len(ranked), bool)
    is_first[1:] = ranked[1:] != ranked[:-1]
    starts = np.flatnonzero(is_first)
    turn = np.arange(len(ranked)) - np.repeat(starts, np.diff([*starts, len(ranked)]))
    by_turn = np.argsort(turn, kind="stable")
    return [order[part] for part in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1) if len(part)]
