"""Shapes: reading them, and showing the same elements under other ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims
from hidet.dims import Dim, prove_equal
from hidet.errors import ImportFailed
from hidet.frontend import Emitter, Handler
from hidet.frontend.measured import measured_shape
from hidet.graph import Value
from hidet.onnx.mapping import Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Shape", 1): lambda e, x: _shape(e, x),
        ("Shape", 15): _shape,
        ("Size", 1): lambda e, x: e.size(dims.product(x.tensor.shape)),
        ("Reshape", 1): _reshape_by_attribute,
        ("Reshape", 5): _reshape,
        ("Flatten", 1): _flatten,
        ("Squeeze", 1): lambda e, x, axes=None: _squeeze(e, x, axes),
        ("Squeeze", 13): lambda e, x, axes=None: _squeeze(e, x, _axes(e, axes)),
        ("Unsqueeze", 1): lambda e, x, axes: e.unsqueeze(x, _new_axes(x, axes)),
        ("Unsqueeze", 13): lambda e, x, axes: e.unsqueeze(x, _new_axes(x, e.ints(axes, "the axes"))),
        ("Transpose", 1): _transpose,
        ("Expand", 8): _expand,
    }


def _shape(e: Emitter, x: Value, start: int = 0, end: int | None = None) -> Value:
    """Extents start to end; both are clamped to the rank."""
    return e.size_vector(x.tensor.shape[slice(start, end)])


def _reshape_by_attribute(e: Emitter, x: Value, shape: Sequence[int]) -> Value:
    return reshape(e, x, shape, keeps_zero=False)


def _reshape(e: Emitter, x: Value, shape: Value, allowzero: int = 0) -> Value:
    if e.reads_sizes and not e.is_known(shape):
        return e.reshape(x, measured_shape(e, x, shape, bool(allowzero)))
    return reshape(e, x, e.dims(shape, "the shape"), bool(allowzero))


def reshape(e: Emitter, x: Value, shape: Sequence[Dim], keeps_zero: bool) -> Value:
    """An extent of 0 stands for that of the input at its place, unless `keeps_zero`; one may be -1.

    ImportFailed for extents that the input cannot have.
    """
    old = x.tensor.shape
    extents: list[Dim] = []
    for axis, extent in enumerate(shape):
        if extent == 0 and not keeps_zero:
            if axis >= len(old):
                raise ImportFailed(f"Reshape: extent {axis} is 0, but the input {x.type} has no such axis to copy")
            extent = old[axis]
        extents.append(extent)
    if any(isinstance(extent, int) and extent < -1 for extent in extents) or extents.count(-1) > 1:
        raise ImportFailed(f"Reshape to {list(map(str, extents))}: expected extents, and -1 once at most")
    if -1 in extents:
        place = extents.index(-1)
        rest = dims.product(extents[:place] + extents[place + 1 :])
        total = dims.product(old)
        if rest == 0:
            # ONNX Runtime and the reference take an extent of 0 here; any would hold no elements.
            extents[place] = 0
        else:
            # The operator's own checks find sizes at a call for which `rest` is no count.
            extents[place] = dims.floordiv_unchecked(total, rest)
    return e.reshape(x, tuple(extents))


def _flatten(e: Emitter, x: Value, axis: int) -> Value:
    rank = x.tensor.rank
    if not -rank <= axis <= rank:
        raise ImportFailed(f"Flatten: axis is {axis}, expected {-rank} to {rank}")
    split = axis + rank if axis < 0 else axis
    shape = x.tensor.shape
    return e.reshape(x, (dims.product(shape[:split]), dims.product(shape[split:])))


def _axes(e: Emitter, axes: Value | None) -> tuple[int, ...] | None:
    return None if axes is None else e.ints(axes, "the axes")


def _squeeze(e: Emitter, x: Value, axes: Sequence[int] | None) -> Value:
    """Without axes, all of extent 1: ValueNeeded where a size that may be 1 is not known."""
    rank = x.tensor.rank
    if axes is None:
        if any(extent != 1 and prove_equal(extent, 1) is not False for extent in x.tensor.shape):
            raise e.sizes_needed(x, f"which axes of {x.type} have extent 1 must be known before the model runs")
        gone = tuple(axis for axis, extent in enumerate(x.tensor.shape) if extent == 1)
    else:
        gone = tuple(sorted({normal_axis(e, axis, rank) for axis in axes}))
    for axis in gone:
        if prove_equal(x.tensor.shape[axis], 1) is False:
            raise ImportFailed(f"Squeeze: axis {axis} of {x.type} has an extent other than 1")
    kept = [extent for axis, extent in enumerate(x.tensor.shape) if axis not in gone]
    return e.reshape(x, kept) if gone else x


def _new_axes(x: Value, axes: Sequence[int]) -> tuple[int, ...]:
    rank = x.tensor.rank + len(axes)
    places = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(places)) < len(places) or any(not 0 <= place < rank for place in places):
        raise ImportFailed(
            f"Unsqueeze of {x.type}: the new axes are {list(axes)}, expected different ones below {rank}"
        )
    return tuple(sorted(places))


def normal_axis(e: Emitter, axis: int, rank: int) -> int:
    """An axis counted from the front. ImportFailed when it does not exist."""
    if not -rank <= axis < rank:
        raise ImportFailed(f"{e.operator}: axis is {axis}, expected {-rank} to {rank - 1}")
    return axis % rank


def _transpose(e: Emitter, x: Value, perm: Sequence[int] | None = None) -> Value:
    """Without `perm`, axes in reverse."""
    rank = x.tensor.rank
    order = tuple(reversed(range(rank))) if perm is None else tuple(perm)
    if sorted(order) != list(range(rank)):
        raise ImportFailed(f"Transpose: perm is {list(order)}, expected the axes 0 to {rank - 1} in some order")
    return e.transpose(x, order)


def _expand(e: Emitter, x: Value, shape: Value) -> Value:
    """Both ways: extents of 1 in `shape` keep those of the input."""
    target = e.sizes(shape, "the shape")
    e.require_size(target, x.tensor.dtype)
    rank = max(x.tensor.rank, len(target))
    old = (1,) * (rank - x.tensor.rank) + tuple(x.tensor.shape)
    new = (1,) * (rank - len(target)) + target
    return e.expand(x, tuple(a if b == 1 else b for a, b in zip(old, new, strict=True)))
