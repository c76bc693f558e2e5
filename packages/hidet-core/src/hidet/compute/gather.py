"""Reading an operand at index expressions over a whole index space: strided views where possible, gathers elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hidet.compute.space import Linear, Space
from hidet.errors import ShapeError

Array = np.ndarray[Any, Any]
Index = Linear | Array


def read(name: str, tensor: Array, indices: Sequence[Index], space: Space, guarded: bool) -> Array:
    """Elements of `tensor` at `indices`, one an axis of it: linear in the space, or arrays that broadcast over it.

    The result has rank 0 or `space.rank`, with extent 1 along axes it does not depend on. Indices out of range raise
    ShapeError naming the operand; where `guarded` (under a Select, which drops such elements) the nearest are read.
    """
    used = {axis for index in indices for axis in _axes_of(index)}
    if any(space.extents[axis] == 0 for axis in used) or (guarded and tensor.size == 0):
        return np.zeros([n if axis in used else 1 for axis, n in enumerate(space.extents)], tensor.dtype)
    linear: dict[int, Linear] = {}
    arrays: dict[int, Array] = {}
    for axis, index in enumerate(indices):
        if not isinstance(index, Linear):
            arrays[axis] = _in_range(name, index, tensor.shape[axis], axis, guarded)
            continue
        low, high = index.bounds(space)
        if low >= 0 and high < tensor.shape[axis]:
            linear[axis] = index
        elif not guarded:
            raise _out_of_range(name, low, high, tensor.shape[axis], axis)
        elif high - low <= 4 * tensor.shape[axis] + 64:
            tensor = _edge_padded(tensor, axis, low, high)
            linear[axis] = Linear(index.constant - low, index.coefficients)
        else:
            arrays[axis] = _in_range(name, _as_array(index, space), tensor.shape[axis], axis, guarded)
    if not arrays:
        view, axes = _strided(tensor, linear, (), space)
        return _placed(view, axes, space.rank)
    linear_axes = {axis for index in linear.values() for axis in index.coefficients}
    gathered_axes = sorted({axis for array in arrays.values() for axis in _axes_of(array)})
    if linear_axes.isdisjoint(gathered_axes):
        view, axes = _strided(tensor, linear, tuple(arrays), space)
        keep = gathered_axes
        picked = [a.reshape([a.shape[axis] if a.ndim else 1 for axis in keep]) for a in arrays.values()]
        return _placed(view[tuple(picked)], [*keep, *axes], space.rank)
    everything = [arrays[n] if n in arrays else _as_array(linear[n], space) for n in range(tensor.ndim)]
    return np.asarray(tensor[tuple(everything)])


def _axes_of(index: Index) -> list[int]:
    if isinstance(index, Linear):
        return list(index.coefficients)
    return [axis for axis, extent in enumerate(index.shape) if extent != 1]


def _as_array(index: Linear, space: Space) -> Array:
    total: Array = np.full((1,) * space.rank, index.constant, np.int64)
    for axis, coefficient in index.coefficients.items():
        shape = [space.extents[axis] if n == axis else 1 for n in range(space.rank)]
        total = total + (np.arange(space.extents[axis]) * coefficient).reshape(shape)
    return total


def _in_range(name: str, index: Array, size: int, axis: int, guarded: bool) -> Array:
    if index.size == 0:
        return index
    low, high = int(index.min()), int(index.max())
    if low >= 0 and high < size:
        return index
    if not guarded:
        raise _out_of_range(name, low, high, size, axis)
    return np.clip(index, 0, size - 1)


def _out_of_range(name: str, low: int, high: int, size: int, axis: int) -> ShapeError:
    return ShapeError(f"operand {name} is read at {low}..{high} along axis {axis}, which has {size} elements")


def _edge_padded(tensor: Array, axis: int, low: int, high: int) -> Array:
    """The elements low..high along `axis`, the outermost ones repeated outside."""
    size = tensor.shape[axis]
    first, last = min(max(low, 0), size - 1), min(max(high, 0), size - 1)
    inside = tensor[(slice(None),) * axis + (slice(first, last + 1),)]
    before, after = max(first - low, 0), max(high - last, 0)
    width = [(before, after) if n == axis else (0, 0) for n in range(tensor.ndim)]
    padded: Array = np.pad(inside, width, mode="edge")
    return padded[(slice(None),) * axis + (slice(0, high - low + 1),)]


def _strided(tensor: Array, linear: dict[int, Linear], kept: tuple[int, ...], space: Space) -> tuple[Array, list[int]]:
    """A view with the axes `kept` of the tensor first, then one axis for each space axis in `linear`."""
    steps: dict[int, int] = {}
    corner: list[slice] = [slice(None)] * tensor.ndim
    for axis, index in linear.items():
        corner[axis] = slice(index.constant, None)
        for space_axis, coefficient in index.coefficients.items():
            steps[space_axis] = steps.get(space_axis, 0) + coefficient * tensor.strides[axis]
    axes = sorted(steps)
    shape = [*(tensor.shape[n] for n in kept), *(space.extents[a] for a in axes)]
    strides = [*(tensor.strides[n] for n in kept), *(steps[a] for a in axes)]
    # numpy cannot describe the types of ml_dtypes to itself, so the view is made of integers as wide.
    whole = tensor[tuple(corner)]
    words = whole if tensor.dtype.isbuiltin == 1 else whole.view(f"u{tensor.itemsize}")
    return as_strided(words, shape, strides, writeable=False).view(tensor.dtype), axes


def _placed(array: Array, axes: Sequence[int], rank: int) -> Array:
    """`array`, whose axes are the space axes `axes`, as an array of the space's rank."""
    order = sorted(range(len(axes)), key=lambda n: axes[n])
    return np.expand_dims(array.transpose(order), [axis for axis in range(rank) if axis not in axes])
