"""Written places: `scatter` with all its dimension numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.dims import Dim, product
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.mapping.gather import windows_of
from hidet.stablehlo.mapping.terms import combination

if TYPE_CHECKING:
    from hidet.stablehlo.importer import Body

# The operator of a region -> reduction of core's scatter. The region's second argument is the update.
_REDUCTIONS: Mapping[str, str | None] = {
    "second": None,
    "add": "sum",
    "multiply": "prod",
    "maximum": "amax",
    "minimum": "amin",
}


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {"scatter": _scatter}


def _scatter(
    e: Emitter,
    *operands: Value,
    regions: Sequence[Body],
    update_window_dims: Any = None,
    inserted_window_dims: Any = None,
    input_batching_dims: Any = None,
    scatter_indices_batching_dims: Any = None,
    scatter_dims_to_operand_dims: Any = None,
    index_vector_dim: Any = 0,
    **_: Any,
) -> Value:
    if len(operands) != 3 or len(regions) != 1:
        raise UnsupportedOp(f"{e.operator} of {len(operands) // 2} tensors at once")
    x, index, update = operands
    by = combination(regions[0])
    if by == "first":
        return x
    if by is None or by not in _REDUCTIONS:
        raise UnsupportedOp(f"{e.operator} by a region that is none of {', '.join(filter(None, _REDUCTIONS.values()))}")
    rank = x.tensor.rank
    inserted = e.axes(inserted_window_dims, rank, "the inserted dimensions")
    batching = e.axes(input_batching_dims, rank, "the batching dimensions")
    window_dims = e.axes(update_window_dims, update.tensor.rank, "the dimensions of windows")
    axes = [axis for axis in range(rank) if axis not in inserted and axis not in batching]
    if len(window_dims) != len(axes):
        raise ImportFailed(f"{e.operator}: {len(window_dims)} dimensions of windows that have {len(axes)}")
    sizes: list[Dim] = [1] * rank
    for axis, at in zip(axes, sorted(window_dims), strict=True):
        sizes[axis] = update.tensor.shape[at]
    found = windows_of(
        e,
        x,
        index,
        sizes,
        collapsed=inserted,
        batching=batching,
        index_batching=e.axes(scatter_indices_batching_dims, index.tensor.rank, "the batching dimensions of the index"),
        start_map=e.axes(scatter_dims_to_operand_dims, rank, "the mapped dimensions"),
        vector_axis=int(index_vector_dim),
        is_clamped=False,
    )
    order = found.order_in(update.tensor.rank, window_dims, axes)
    update = e.transpose(update, [order.index(axis) for axis in range(len(order))])
    # Rows of what is kept whole, at one number for all picked axes.
    target = e.transpose(x, (*found.picked, *found.kept))
    extents = [x.tensor.shape[axis] for axis in found.picked]
    kept = [x.tensor.shape[axis] for axis in found.kept]
    count = product(extents)
    rows = product(found.shape)
    place: Value = e.constant(0, dtypes.i64)
    is_inside: Value | None = None
    for spot, extent in zip(found.places, extents, strict=True):
        size = e.size(extent)
        place = e.emit("add", e.emit("mul", place, size), spot)
        fits = e.emit(
            "logical_and", e.emit("less", spot, size), e.emit("greater_equal", spot, e.constant(0, dtypes.i64))
        )
        is_inside = fits if is_inside is None else e.emit("logical_and", is_inside, fits)
    # What lies outside is not written: it goes into a row behind the others.
    if is_inside is not None:
        place = e.emit("where", is_inside, place, e.size(count))
    place = e.reshape(e.expand(place, found.shape), (rows, 1))
    flat = e.reshape(target, (count, *kept))
    wide = e.emit("pad", flat, pads=((0, 1), *((0, 0),) * len(kept)), mode="constant", value=0)
    made = e.emit("scatter_nd", wide, place, e.reshape(update, (rows, *kept)), reduce=_REDUCTIONS[by])
    made = e.emit("slice", made, starts=(0,) * (1 + len(kept)), stops=(count, *kept))
    made = e.reshape(made, (*extents, *kept))
    back = (*found.picked, *found.kept)
    return e.transpose(made, [back.index(axis) for axis in range(rank)])
