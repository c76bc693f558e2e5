"""Elements at other places: joining, cutting, picking, writing, padding, repeating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.mapping.shape import normal_axis
from hidet.tensorflow.mapping.windows import layout_of


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "BatchToSpace": lambda e, x, crops, block_size: _batch_to_space(e, x, _square(e, block_size), crops),
        "BatchToSpaceND": _batch_to_space,
        "ConjugateTranspose": lambda e, x, perm: e.transpose(x, e.ints(perm, "the order")),
        "Concat": lambda e, axis, *tensors: _concat(e, tensors, axis),
        "ConcatV2": lambda e, *operands, **_: _concat(e, operands[:-1], operands[-1]),
        "DepthToSpace": _depth_to_space,
        "GatherNd": lambda e, x, index, **_: e.emit("gather_nd", x, index),
        "InvertPermutation": lambda e, x: e.cast(e.emit("argsort", x), x.tensor.dtype),
        "MatrixBandPart": _band,
        "MirrorPad": _mirror_pad,
        "Pack": lambda e, *tensors, axis=0: e.emit("stack", *tensors, axis=axis),
        "Pad": lambda e, x, pads: _pad(e, x, pads, 0),
        "PadV2": lambda e, x, pads, value: _pad(e, x, pads, e.number(value, "the constant")),
        "ReverseSequence": _reverse_sequence,
        "ReverseV2": lambda e, x, axes: e.emit(
            "flip", x, axes=tuple(normal_axis(e, axis, x.tensor.rank) for axis in e.ints(axes, "the axes"))
        ),
        "Roll": lambda e, x, shift, axis: e.emit(
            "roll", x, shifts=e.dims(shift, "the shifts"), axes=e.ints(axis, "the axes")
        ),
        "ScatterNd": _scatter_nd,
        "SpaceToBatch": lambda e, x, pads, block_size: _space_to_batch(e, x, _square(e, block_size), pads),
        "SpaceToBatchND": _space_to_batch,
        "SpaceToDepth": _space_to_depth,
        "Split": _split,
        "SplitV": _split_at,
        "TensorScatterAdd": _scattered("sum"),
        "TensorScatterMax": _scattered("amax"),
        "TensorScatterMin": _scattered("amin"),
        "TensorScatterSub": lambda e, x, index, updates, **_: e.emit(
            "scatter_nd", x, index, e.emit("neg", updates), reduce="sum"
        ),
        "TensorScatterUpdate": _scattered(None),
        "Tile": _tile,
        "TopK": lambda e, x, k, sorted=True: _top_k(e, x, k, dtypes.i32),
        "TopKV2": lambda e, x, k, sorted=True, index_type=dtypes.i32: _top_k(e, x, e.one_size(k, "k"), index_type),
        "Transpose": lambda e, x, perm: e.transpose(x, e.ints(perm, "the order")),
        "Unpack": _unpack,
    }


def _concat(e: Emitter, tensors: Sequence[Value], axis: Value) -> Value:
    place = normal_axis(e, e.one_int(axis, "the axis"), tensors[0].tensor.rank)
    return tensors[0] if len(tensors) == 1 else e.emit("concat", *tensors, axis=place)


def _unpack(e: Emitter, x: Value, num: int, axis: int = 0) -> tuple[Value, ...]:
    place = normal_axis(e, axis, x.tensor.rank)
    return tuple(e.emit("select", x, axis=place, index=number) for number in range(num))


def _split(e: Emitter, axis: Value, x: Value, num_split: int) -> tuple[Value, ...]:
    place = normal_axis(e, e.one_int(axis, "the axis"), x.tensor.rank)
    extent = x.tensor.shape[place]
    if isinstance(extent, int) and extent % num_split:
        raise ImportFailed(f"{e.operator}: an axis of extent {extent} has no {num_split} equal parts")
    return _parts(e, x, place, [dims.floordiv(extent, num_split)] * num_split)


def _split_at(e: Emitter, x: Value, sizes: Value, axis: Value, num_split: int) -> tuple[Value, ...]:
    """One size may be -1: what is left."""
    place = normal_axis(e, e.one_int(axis, "the axis"), x.tensor.rank)
    parts = list(e.dims(sizes, "the sizes"))
    if len(parts) != num_split or parts.count(-1) > 1:
        raise ImportFailed(
            f"{e.operator}: sizes are {list(map(str, parts))}, expected {num_split}, and -1 once at most"
        )
    if -1 in parts:
        rest: Dim = x.tensor.shape[place]
        for part in parts:
            rest = rest if part == -1 else rest - part
        parts[parts.index(-1)] = rest
    return _parts(e, x, place, parts)


def _parts(e: Emitter, x: Value, axis: int, sizes: Sequence[Dim]) -> tuple[Value, ...]:
    made: list[Value] = []
    first: Dim = 0
    for size in sizes:
        starts: list[Dim] = [0] * x.tensor.rank
        stops: list[Dim | None] = [None] * x.tensor.rank
        starts[axis], stops[axis] = first, first + size
        made.append(e.emit("slice", x, starts=tuple(starts), stops=tuple(stops)))
        first = first + size
    return tuple(made)


def _scatter_nd(e: Emitter, index: Value, updates: Value, shape: Value, **_: Any) -> Value:
    """Updates of one place are added."""
    dtype = updates.tensor.dtype
    empty = e.emit("full", shape=e.sizes(shape, "the shape"), value=0, dtype=dtype)
    return e.emit("scatter_nd", empty, index, updates, reduce="sum")


def _scattered(reduce: str | None) -> Handler:
    return lambda e, x, index, updates, **_: e.emit("scatter_nd", x, index, updates, reduce=reduce)


def _top_k(e: Emitter, x: Value, k: Dim, index_type: DType) -> tuple[Value, Value]:
    """The order is that of `sorted`, which is right without it, too."""
    values, places = e.emit_all("topk", (x,), {"k": k, "axis": -1})
    return values, e.cast(places, index_type)


def _tile(e: Emitter, x: Value, repeats: Value) -> Value:
    counts = e.sizes(repeats, "the repeats")
    e.require_size(tuple(n * m for n, m in zip(x.tensor.shape, counts, strict=True)), x.tensor.dtype)
    return x if all(count == 1 for count in counts) else e.emit("tile", x, repeats=counts)


# --- padding ---------------------------------------------------------------------------------------------------------


def _amounts(e: Emitter, x: Value, pads: Value) -> list[tuple[Dim, Dim]]:
    numbers = e.sizes(e.reshape(pads, (2 * x.tensor.rank,)), "the paddings")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _pad(e: Emitter, x: Value, pads: Value, value: float) -> Value:
    amounts = _amounts(e, x, pads)
    if all(pair == (0, 0) for pair in amounts):
        return x
    shape = tuple(extent + a + b for extent, (a, b) in zip(x.tensor.shape, amounts, strict=True))
    e.require_size(shape, x.tensor.dtype)
    return e.emit("pad", x, pads=tuple(amounts), mode="constant", value=value)


def _mirror_pad(e: Emitter, x: Value, pads: Value, mode: str) -> Value:
    """SYMMETRIC repeats the outermost element, REFLECT does not."""
    amounts = _amounts(e, x, pads)
    if mode == "REFLECT":
        return e.emit("pad", x, pads=tuple(amounts), mode="reflect")
    if mode != "SYMMETRIC":
        raise UnsupportedOp(f"{e.operator}: mode is {mode!r}, expected REFLECT or SYMMETRIC")
    for axis, (before, after) in enumerate(amounts):
        extent = x.tensor.shape[axis]
        edges = [e.emit("flip", _cut(e, x, axis, 0, before), axes=(axis,))] if before != 0 else []
        ends = [e.emit("flip", _cut(e, x, axis, extent - after, extent), axes=(axis,))] if after != 0 else []
        if edges or ends:
            x = e.emit("concat", *edges, x, *ends, axis=axis)
    return x


def _cut(e: Emitter, x: Value, axis: int, start: Dim, stop: Dim) -> Value:
    starts: list[Dim] = [0] * x.tensor.rank
    stops: list[Dim | None] = [None] * x.tensor.rank
    starts[axis], stops[axis] = start, stop
    return e.emit("slice", x, starts=tuple(starts), stops=tuple(stops))


def _band(e: Emitter, x: Value, lower: Value, upper: Value) -> Value:
    """That many diagonals below and above the middle one; all of them for a negative number."""
    below, above = e.one_int(lower, "the number of lower diagonals"), e.one_int(upper, "the number of upper diagonals")
    if above >= 0:
        x = e.emit("tril", x, offset=above)
    return e.emit("triu", x, offset=-below) if below >= 0 else x


# --- blocks ----------------------------------------------------------------------------------------------------------


def _depth_to_space(e: Emitter, x: Value, block_size: int, data_format: str = "NHWC") -> Value:
    layout = layout_of(e, data_format)
    images = layout.from_images(e, x)
    n, c, h, w = images.tensor.shape
    depth = dims.floordiv(c, block_size * block_size)
    parts = e.reshape(images, (n, block_size, block_size, depth, h, w))
    ordered = e.transpose(parts, (0, 3, 4, 1, 5, 2))
    return layout.to_images(e, e.reshape(ordered, (n, depth, h * block_size, w * block_size)))


def _space_to_depth(e: Emitter, x: Value, block_size: int, data_format: str = "NHWC") -> Value:
    layout = layout_of(e, data_format)
    images = layout.from_images(e, x)
    n, c, h, w = images.tensor.shape
    rows, columns = dims.floordiv(h, block_size), dims.floordiv(w, block_size)
    parts = e.reshape(images, (n, c, rows, block_size, columns, block_size))
    ordered = e.transpose(parts, (0, 3, 5, 1, 2, 4))
    return layout.to_images(e, e.reshape(ordered, (n, c * block_size * block_size, rows, columns)))


def _square(e: Emitter, block_size: int) -> Value:
    return e.array(numpy.array([block_size] * 2))


def _space_to_batch(e: Emitter, x: Value, block_shape: Value, paddings: Value) -> Value:
    """[n, *space, rest]: every block-th element of the padded space, one batch after the other."""
    blocks = e.ints(block_shape, "the block")
    axes = len(blocks)
    numbers = e.dims(e.reshape(paddings, (2 * axes,)), "the paddings")
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    if any(pair != (0, 0) for pair in pairs):
        rest = ((0, 0),) * (x.tensor.rank - 1 - axes)
        x = e.emit("pad", x, pads=((0, 0), *pairs, *rest), mode="constant", value=0)
    n, *shape = x.tensor.shape
    space, rest_shape = shape[:axes], shape[axes:]
    counts = [dims.floordiv(extent, block) for extent, block in zip(space, blocks, strict=True)]
    split = [part for count, block in zip(counts, blocks, strict=True) for part in (count, block)]
    parts = e.reshape(x, (n, *split, *rest_shape))
    places, inner = [2 * axis + 2 for axis in range(axes)], [2 * axis + 1 for axis in range(axes)]
    ordered = e.transpose(parts, (*places, 0, *inner, *range(2 * axes + 1, parts.tensor.rank)))
    return e.reshape(ordered, (dims.product([*blocks, n]), *counts, *rest_shape))


def _batch_to_space(e: Emitter, x: Value, block_shape: Value, crops: Value) -> Value:
    """The inverse of `_space_to_batch`."""
    blocks = e.ints(block_shape, "the block")
    axes = len(blocks)
    numbers = e.dims(e.reshape(crops, (2 * axes,)), "the crops")
    n, *shape = x.tensor.shape
    space, rest = shape[:axes], shape[axes:]
    batch = dims.floordiv(n, dims.product(blocks))
    parts = e.reshape(x, (*blocks, batch, *space, *rest))
    order = [axes, *(place for axis in range(axes) for place in (axes + 1 + axis, axis))]
    ordered = e.transpose(parts, (*order, *range(2 * axes + 1, parts.tensor.rank)))
    whole = e.reshape(ordered, (batch, *(count * block for count, block in zip(space, blocks, strict=True)), *rest))
    starts: list[Dim] = [0, *numbers[::2], *(0 for _ in rest)]
    ends = [extent - crop for extent, crop in zip(whole.tensor.shape[1:], numbers[1::2], strict=False)]
    if not any(number != 0 for number in numbers):
        return whole
    return e.emit("slice", whole, starts=tuple(starts), stops=(None, *ends, *(None for _ in rest)))


def _reverse_sequence(e: Emitter, x: Value, lengths: Value, seq_dim: int, batch_dim: int = 0, **_: Any) -> Value:
    """Along seq_dim, the first lengths[b] elements of batch b backwards, the rest as they are."""
    rank = x.tensor.rank
    order = [batch_dim, seq_dim, *(axis for axis in range(rank) if axis not in (batch_dim, seq_dim))]
    front = e.transpose(x, order)
    batch, time = front.tensor.shape[:2]
    steps = e.unsqueeze(e.emit("arange", start=0, stop=time, dtype=dtypes.i64), (0,))
    rows = e.unsqueeze(e.emit("arange", start=0, stop=batch, dtype=dtypes.i64), (1,))
    count = e.unsqueeze(e.cast(lengths, dtypes.i64), (1,))
    mirrored = e.emit("sub", e.emit("sub", count, e.constant(1, dtypes.i64)), steps)
    place = e.emit("where", e.emit("less", steps, count), mirrored, steps)
    return e.transpose(e.emit("index", front, rows, place), [order.index(axis) for axis in range(rank)])
