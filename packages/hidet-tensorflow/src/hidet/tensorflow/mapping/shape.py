"""Shapes: reading them, and showing the same elements under other ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dims, dtypes
from hidet.dims import Dim, prove_equal
from hidet.errors import ImportFailed
from hidet.frontend import Emitter, Handler
from hidet.frontend.measured import measured_shape
from hidet.graph import Value


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "BroadcastArgs": _broadcast_shapes,
        "BroadcastTo": lambda e, x, shape: e.expand(x, e.sizes(shape, "the shape")),
        "EnsureShape": _with_shape,
        "ExpandDims": _expand_dims,
        "Rank": lambda e, x: e.constant(x.tensor.rank, dtypes.i32),
        "Reshape": _reshape,
        "Shape": lambda e, x, out_type=dtypes.i32: e.size_vector(x.tensor.shape, out_type),
        "ShapeN": lambda e, *xs, out_type=dtypes.i32: tuple(e.size_vector(x.tensor.shape, out_type) for x in xs),
        "Size": lambda e, x, out_type=dtypes.i32: e.size(dims.product(x.tensor.shape), out_type),
        "Squeeze": _squeeze,
    }


def normal_axis(e: Emitter, axis: int, rank: int) -> int:
    """An axis counted from the front. ImportFailed for one that a tensor with `rank` axes does not have."""
    if not -rank <= axis < rank:
        raise ImportFailed(f"{e.operator}: axis is {axis}, expected {-rank} to {rank - 1}")
    return axis % rank


def _reshape(e: Emitter, x: Value, shape: Value) -> Value:
    if e.reads_sizes and not e.is_known(shape):
        return e.reshape(x, measured_shape(e, x, shape, keeps_zero=True))
    return reshape(e, x, e.dims(shape, "the shape"))


def reshape(e: Emitter, x: Value, shape: Sequence[Dim]) -> Value:
    """One extent may be -1: what is left. ImportFailed for extents that x cannot have."""
    extents = list(shape)
    if any(isinstance(extent, int) and extent < -1 for extent in extents) or extents.count(-1) > 1:
        raise ImportFailed(f"{e.operator} to {list(map(str, extents))}: expected extents, and -1 once at most")
    if -1 in extents:
        place = extents.index(-1)
        rest = dims.product(extents[:place] + extents[place + 1 :])
        # The operator's own checks find sizes at a call for which `rest` is no count.
        extents[place] = 0 if rest == 0 else dims.floordiv_unchecked(dims.product(x.tensor.shape), rest)
    return e.reshape(x, tuple(extents))


def _with_shape(e: Emitter, x: Value, shape: Sequence[int | None] | None) -> Value:
    """x, with extents that the model knows better: None for those that stay as they are. ImportFailed for others."""
    if shape is None:
        return x
    if len(shape) != x.tensor.rank:
        raise ImportFailed(f"{e.operator} of {x.type}: expected {len(shape)} axes")
    known = [own if given is None else given for own, given in zip(x.tensor.shape, shape, strict=True)]
    if any(prove_equal(own, given) is False for own, given in zip(x.tensor.shape, known, strict=True)):
        raise ImportFailed(f"{e.operator} of {x.type}: expected the shape {list(map(str, known))}")
    return e.reshape(x, known)


def _expand_dims(e: Emitter, x: Value, axis: Value) -> Value:
    return e.unsqueeze(x, (normal_axis(e, e.one_int(axis, "the axis"), x.tensor.rank + 1),))


def _squeeze(e: Emitter, x: Value, squeeze_dims: Sequence[int] = ()) -> Value:
    """Without axes, all of extent 1: ValueNeeded where a size that may be 1 is not known."""
    rank, shape = x.tensor.rank, x.tensor.shape
    if squeeze_dims:
        gone = sorted({normal_axis(e, axis, rank) for axis in squeeze_dims})
    else:
        if any(extent != 1 and prove_equal(extent, 1) is not False for extent in shape):
            raise e.sizes_needed(x, f"which axes of {x.type} have extent 1 must be known before the model runs")
        gone = [axis for axis, extent in enumerate(shape) if extent == 1]
    for axis in gone:
        if prove_equal(shape[axis], 1) is False:
            raise ImportFailed(f"{e.operator}: axis {axis} of {x.type} has an extent other than 1")
    return e.reshape(x, tuple(extent for axis, extent in enumerate(shape) if axis not in gone))


def _broadcast_shapes(e: Emitter, a: Value, b: Value) -> Value:
    """The shape that operands of two shapes have together."""
    left, right = e.dims(a, "a shape"), e.dims(b, "a shape")
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    joined: list[Dim] = []
    for m, n in pairs:
        if m == 1 or n == 1 or prove_equal(m, n) is True:
            joined.append(n if m == 1 else m)
        else:
            # Of two unknown sizes that differ, one is 1.
            joined.append(dims.maximum(m, n))
    return e.size_vector(joined, a.tensor.dtype)
