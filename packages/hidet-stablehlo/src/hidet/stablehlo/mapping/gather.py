"""Picked places: `gather` with all its dimension numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.mapping.move import clamped


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "dynamic_gather": lambda e, x, index, sizes, **attributes: _gather(
            e, x, index, **{**attributes, "slice_sizes": e.dims(sizes, "the sizes of slices")}
        ),
        "gather": _gather,
        "torch_index_select": _torch_index_select,
    }


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Slices of a tensor at places that an index says: how `gather` reads and `scatter` writes them.

    picked: axes of the tensor that the index, or the batch, says places of, or that slices do not cover. kept: the
    other axes, of which slices have everything. places: for each of `picked` the place, i64, to be broadcast to
    `shape`. shape: [*batch, *extents of the picked axes that slices keep]. offsets: those axes.
    """

    picked: tuple[int, ...]
    kept: tuple[int, ...]
    places: tuple[Value, ...]
    shape: tuple[Dim, ...]
    batch: int
    offsets: tuple[int, ...]

    def order_in(self, rank: int, offset_dims: Sequence[int], axes: Sequence[int]) -> list[int]:
        """For a tensor [*shape, *kept axes], the axes of StableHLO's result or update, in its order.

        offset_dims: where that has the axes of slices. axes: the axes of slices, in order.
        """
        own = {axis: self.batch + number for number, axis in enumerate(self.offsets)}
        own.update({axis: len(self.shape) + number for number, axis in enumerate(self.kept)})
        slices = iter(own[axis] for axis in axes)
        batch = iter(range(self.batch))
        return [next(slices) if axis in offset_dims else next(batch) for axis in range(rank)]


def windows_of(
    e: Emitter,
    x: Value,
    index: Value,
    sizes: Sequence[Dim],
    *,
    collapsed: Sequence[int],
    batching: Sequence[int],
    index_batching: Sequence[int],
    start_map: Sequence[int],
    vector_axis: int,
    is_clamped: bool,
) -> Windows:
    """The slices that an index names.

    sizes: of a slice along each axis of `x`. collapsed, batching: axes that slices do not have. index_batching: axes of
    the index that go along with these. start_map: the axes of `x` that the vectors of the index are about. vector_axis:
    the axis of these vectors. is_clamped: whether slices are moved so that they fit.
    """
    rank = x.tensor.rank
    if not 0 <= vector_axis <= index.tensor.rank:
        raise ImportFailed(f"{e.operator}: the vectors of an index of rank {index.tensor.rank} lie along {vector_axis}")
    if vector_axis == index.tensor.rank:
        index = e.unsqueeze(index, (index.tensor.rank,))
    others = [axis for axis in range(index.tensor.rank) if axis != vector_axis]
    index = e.transpose(index, (*others, vector_axis))
    batch = index.tensor.shape[:-1]
    if index.tensor.shape[-1] != len(start_map) or len(batching) != len(index_batching):
        raise ImportFailed(f"{e.operator}: vectors of {index.tensor.shape[-1]} places for {len(start_map)} axes")
    missing = {*collapsed, *batching}
    extents = x.tensor.shape
    picked = [
        axis
        for axis in range(rank)
        if axis in batching or axis in collapsed or (axis in start_map and sizes[axis] != extents[axis])
    ]
    # Where a slice covers an axis that the index says a place of, that place can only be 0.
    picked += [axis for axis in start_map if axis not in picked and not is_clamped]
    picked.sort()
    kept = tuple(axis for axis in range(rank) if axis not in picked)
    if any(sizes[axis] != extents[axis] for axis in kept):
        picked = sorted({*picked, *(axis for axis in kept if sizes[axis] != extents[axis])})
        kept = tuple(axis for axis in range(rank) if axis not in picked)
    offsets = [axis for axis in picked if axis not in missing]
    width = len(batch) + len(offsets)
    places: list[Value] = []
    shape: list[Dim] = [*batch, *(sizes[axis] for axis in offsets)]
    for axis in picked:
        place: Value | None = None
        if axis in start_map:
            at = e.emit("select", index, axis=len(batch), index=start_map.index(axis))
            place = clamped(e, at, extents[axis] - sizes[axis]) if is_clamped else e.cast(at, dtypes.i64)
        elif axis in batching:
            along = index_batching[batching.index(axis)]
            along -= along > vector_axis
            row = e.emit("arange", start=0, stop=batch[along], dtype=dtypes.i64)
            place = e.reshape(row, [n if number == along else 1 for number, n in enumerate(batch)])
        if place is not None:
            place = e.unsqueeze(place, range(len(batch), width))
        if axis in offsets and sizes[axis] != 1:
            row = e.emit("arange", start=0, stop=sizes[axis], dtype=dtypes.i64)
            number = len(batch) + offsets.index(axis)
            row = e.reshape(row, [sizes[axis] if n == number else 1 for n in range(width)])
            place = row if place is None else e.emit("add", place, row)
        if place is None:
            place = e.reshape(e.constant(0, dtypes.i64), (1,) * width)
        places.append(place)
    return Windows(tuple(picked), kept, tuple(places), tuple(shape), len(batch), tuple(offsets))


def _gather(
    e: Emitter,
    x: Value,
    index: Value,
    *,
    slice_sizes: Any,
    offset_dims: Any = None,
    collapsed_slice_dims: Any = None,
    operand_batching_dims: Any = None,
    start_indices_batching_dims: Any = None,
    start_index_map: Any = None,
    index_vector_dim: Any = 0,
    **_: Any,
) -> Value:
    rank = x.tensor.rank
    sizes: tuple[Dim, ...] = slice_sizes if _has_dims(slice_sizes) else e.whole(slice_sizes, "the sizes of slices")
    if len(sizes) != rank:
        raise ImportFailed(f"{e.operator}: slices of {len(sizes)} axes of a tensor of rank {rank}")
    collapsed = e.axes(collapsed_slice_dims, rank, "the collapsed dimensions")
    batching = e.axes(operand_batching_dims, rank, "the batching dimensions")
    found = windows_of(
        e,
        x,
        index,
        sizes,
        collapsed=collapsed,
        batching=batching,
        index_batching=e.axes(start_indices_batching_dims, index.tensor.rank, "the batching dimensions of the index"),
        start_map=e.axes(start_index_map, rank, "the mapped dimensions"),
        vector_axis=int(index_vector_dim),
        is_clamped=True,
    )
    axes = [axis for axis in range(rank) if axis not in collapsed and axis not in batching]
    result_rank = found.batch + len(axes)
    offsets = e.axes(offset_dims, result_rank, "the dimensions of slices")
    if len(offsets) != len(axes):
        raise ImportFailed(f"{e.operator}: {len(offsets)} dimensions of slices that have {len(axes)}")
    if len(found.picked) == 1:
        (place,) = found.places
        place = e.expand(place, found.shape)
        made = e.emit("index_select", e.transpose(x, (*found.picked, *found.kept)), place, axis=0)
    elif not found.picked:
        made = e.expand(x, (*found.shape, *x.tensor.shape))
    else:
        places = [e.expand(place, found.shape) for place in found.places[:1]]
        made = e.emit("index", e.transpose(x, (*found.picked, *found.kept)), *places, *found.places[1:])
    return e.transpose(made, found.order_in(result_rank, offsets, axes))


def _has_dims(sizes: Any) -> bool:
    return isinstance(sizes, tuple) and any(not isinstance(size, int) for size in sizes)


def _torch_index_select(e: Emitter, x: Value, index: Value, dim: Any, batch_dims: Any, **_: Any) -> Value:
    if int(batch_dims):
        raise UnsupportedOp(f"{e.operator} with {batch_dims} batch dimensions")
    axis = e.axis(dim, x.tensor.rank, "the dimension")
    return e.emit("index_select", x, clamped(e, index, x.tensor.shape[axis] - 1), axis=axis)
