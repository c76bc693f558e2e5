"""The numpy reference: evaluates a compute definition on whole arrays, never element by element.

Expressions say their element types themselves, so everything is computed in exactly the stated types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hidet import dims
from hidet.compute import array_expr
from hidet.compute.array_expr import ArrayExpr, constant
from hidet.compute.bindings import bind_shape, check_shape
from hidet.compute.definition import Compute, Definition, Operand, Routine, Scan, Scatter, Stage, results_of
from hidet.compute.footprint import footprint, reductions
from hidet.compute.space import Space, blocks, box
from hidet.dims import Dim
from hidet.dtypes import from_numpy
from hidet.errors import DTypeError, ShapeError, UnsupportedOp
from hidet.ir.expr import Expr, Var

Array = np.ndarray[Any, Any]

# Elements of the largest intermediate array of one block; 2^25 f32 values are 128 MiB.
BLOCK_ELEMENTS = 1 << 25


def evaluate(
    definition: Definition, arrays: Sequence[Array | None], bindings: Mapping[str, int] | None = None
) -> list[Array]:
    """The outputs of `definition` on `arrays`, as fresh arrays.

    arrays: one an input of the definition, in order; entries that are None (absent inputs, sizes) are skipped.
    bindings: values of symbolic sizes by name; those that are extents of inputs need not be given.
    Raises ShapeError or DTypeError when an array does not fit its operand, or an index is out of range.
    """
    state = _State(dict(bindings or {}))
    present = [array for array in arrays if array is not None]
    if len(present) != len(definition.inputs):
        names = ", ".join(operand.name for operand in definition.inputs)
        raise ShapeError(f"the definition reads {len(definition.inputs)} arrays ({names}), got {len(present)}")
    for operand, array in zip(definition.inputs, present, strict=True):
        bind_shape(state.bindings, operand.shape, array.shape, f"input {operand.name}")
    for operand, array in zip(definition.inputs, present, strict=True):
        check_shape(state.bindings, operand.shape, array.shape, f"input {operand.name}")
        if array.dtype != operand.dtype.numpy():
            raise DTypeError(f"input {operand.name} has dtype {from_numpy(array.dtype)}, expected {operand.dtype}")
        state.tensors[operand] = array
    with np.errstate(all="ignore"):
        for stage in definition.stages:
            for operand, result in zip(results_of(stage), _STAGES[type(stage)](stage, state), strict=True):
                bind_shape(state.bindings, operand.shape, result.shape, f"result {operand.name}")
                state.tensors[operand] = result
    return [_fresh(state.tensors[operand], present) for operand in definition.outputs]


class _State:
    """Operands computed so far, and the sizes known."""

    def __init__(self, bindings: dict[str, int]) -> None:
        self.bindings = bindings
        self.tensors: dict[Operand, Array] = {}

    def shape(self, extents: Sequence[Dim]) -> tuple[int, ...]:
        """Extents as numbers."""
        return tuple(dims.evaluate(extent, self.bindings) for extent in extents)

    def values(self, exprs: Sequence[Expr], axes: Sequence[Var], extents: Sequence[int]) -> list[Array]:
        """Full arrays of `exprs` over `axes`, computed in blocks that bound the memory of intermediate arrays."""
        whole = self._space(exprs, axes, extents)
        if prod(whole.extents) <= BLOCK_ELEMENTS:
            return self._block(exprs, whole, len(axes))
        parts = list(blocks(whole, footprint(exprs, whole), len(axes), BLOCK_ELEMENTS))
        if len(parts) == 1:
            return self._block(exprs, whole, len(axes))
        results = [np.empty(tuple(extents), expr.dtype.numpy()) for expr in exprs]
        for part in parts:
            place = tuple(
                slice(start, start + extent)
                for start, extent in zip(part.starts[: len(axes)], part.extents[: len(axes)], strict=True)
            )
            for result, block in zip(results, self._block(exprs, part, len(axes)), strict=True):
                result[place] = block
        return results

    def _block(self, exprs: Sequence[Expr], space: Space, rank: int) -> list[Array]:
        evaluate_expr = ArrayExpr(space, self.tensors, self.bindings)
        results = []
        for expr in exprs:
            value = evaluate_expr(expr)
            if value.ndim:
                value = value.reshape(value.shape[:rank])
            extents = space.extents[:rank]
            results.append(value if value.shape == extents else np.broadcast_to(value, extents))
        return results

    def _space(self, exprs: Sequence[Expr], axes: Sequence[Var], extents: Sequence[int]) -> Space:
        """The space of `axes`, followed by the axes of all reductions in `exprs`."""
        all_axes, all_extents = list(axes), list(extents)
        for found in reductions(exprs):
            for var, extent in zip(found.axes, found.extents, strict=True):
                if var not in all_axes:
                    all_extents.append(self._largest(extent, all_axes, all_extents))
                    all_axes.append(var)
        if len(all_axes) > 64:
            raise ShapeError(
                f"a stage has {len(all_axes)} axes with those of its reductions; numpy arrays have up to 64"
            )
        return box(all_axes, all_extents)

    def _largest(self, extent: Expr, axes: Sequence[Var], extents: Sequence[int]) -> int:
        """The largest value of an extent that may depend on `axes`."""
        value = ArrayExpr(box(axes, extents), self.tensors, self.bindings)(extent)
        return max(int(value.max()), 0) if value.size else 0


def _compute(stage: Compute, state: _State) -> list[Array]:
    return state.values([stage.value], stage.axes, state.shape(stage.result.shape))


def _scan(stage: Scan, state: _State) -> list[Array]:
    values = state.values(stage.values, stage.axes, state.shape(stage.results[0].shape))
    neutral = [constant(e) for e in stage.combiner.identity([value.dtype for value in stage.values])]
    return array_expr.scan(stage.combiner, values, stage.axis, neutral, stage.exclusive, stage.reverse)


def _scatter(stage: Scatter, state: _State) -> list[Array]:
    shape = state.shape(stage.result.shape)
    result = np.array(state.values([stage.base], stage.base_axes, shape)[0])
    condition = () if stage.condition is None else (stage.condition,)
    exprs = [stage.update, *stage.indices, *condition]
    update, *rest = (np.ravel(a) for a in state.values(exprs, stage.axes, state.shape(stage.extents)))
    places = rest[: len(shape)]
    if stage.condition is not None:
        update, *places = (a[rest[-1]] for a in (update, *places))
    for axis, (place, extent) in enumerate(zip(places, shape, strict=True)):
        if place.size and (place.min() < 0 or place.max() >= extent):
            raise ShapeError(
                f"scatter into {stage.result.name} writes at {place.min()}..{place.max()} along axis {axis}, "
                f"which has {extent} elements"
            )
    if update.size:
        flat = np.ravel_multi_index(places, shape) if shape else np.zeros(update.size, np.int64)
        array_expr.scatter(stage.combine, result.reshape(-1), np.asarray(flat), update)
    return [result]


def _routine(stage: Routine, state: _State) -> list[Array]:
    reference = stage.spec.load_reference()
    if reference is None:
        raise UnsupportedOp(f"routine {stage.spec.name} has no reference, so numpy does not evaluate it")
    found = reference([state.tensors[operand] for operand in stage.operands], stage.attribute_values())
    return [
        np.asarray(result).astype(operand.dtype.numpy(), copy=False)
        for result, operand in zip(found, stage.results, strict=True)
    ]


_STAGES: dict[type[Stage], Callable[[Any, _State], list[Array]]] = {
    Compute: _compute,
    Scan: _scan,
    Scatter: _scatter,
    Routine: _routine,
}


def _fresh(array: Array, given: Sequence[Array]) -> Array:
    """`array` in row-major memory of its own."""
    is_own = array.flags.owndata and array.flags.c_contiguous and not any(array is other for other in given)
    return array if is_own else np.array(array, order="C", copy=True)
