"""Operators whose output can lie in the storage of their input: permuted, sliced, repeated axes.

Each has a definition, which holds wherever the input lies, and a view rule: element offset and strides of the output,
from the strides of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet.compute.definition import Definition, Operand, compute, single
from hidet.dims import Dim, bounds, ceildiv, floordiv, maximum, minimum, product, prove_le, prove_lt
from hidet.errors import ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec, View
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.reshape import reshape_indices
from hidet.operators.rules import normalize_axes, normalize_axis, require_dtype, require_places, same_extent, shape_text


def _permutation(perm: Sequence[int], rank: int) -> tuple[int, ...]:
    axes = tuple(normalize_axis("transpose", axis, rank) for axis in perm)
    if sorted(axes) != list(range(rank)):
        raise ShapeError(f"operator transpose: {tuple(perm)} is not an order of {rank} axes")
    return axes


def _transpose(x: Operand, *, perm: Sequence[int]) -> Definition:
    require_dtype("transpose", x, "data")
    order = _permutation(perm, x.rank)
    place = {source: target for target, source in enumerate(order)}
    return single(
        (x,),
        compute(
            "transpose",
            [x.shape[axis] for axis in order],
            lambda *axes: x[tuple(axes[place[axis]] for axis in range(x.rank))],
        ),
    )


def _transpose_view(x: TensorType, attrs: Attrs, result: TensorType) -> View:
    return View(0, tuple(x.element_strides[axis] for axis in _permutation(attrs["perm"], x.rank)))


def squeezed_axes(shape: Sequence[Dim], axes: Sequence[int] | None) -> tuple[int, ...]:
    """The axes of `shape` that squeezing removes: those of extent 1 among `axes`, among all for None."""
    asked = range(len(shape)) if axes is None else normalize_axes("squeeze", axes, len(shape)) if axes else ()
    return tuple(axis for axis in asked if shape[axis] == 1)


def _squeeze(x: Operand, *, axes: Sequence[int] | None) -> Definition:
    require_dtype("squeeze", x, "data")
    gone = squeezed_axes(x.shape, axes)
    kept = [axis for axis in range(x.rank) if axis not in gone]

    def value(*indices: Expr) -> Expr:
        place = dict(zip(kept, indices, strict=True))
        return x[tuple(place.get(axis, build.index(0)) for axis in range(x.rank))]

    return single((x,), compute("squeeze", [x.shape[axis] for axis in kept], value))


def _squeeze_view(x: TensorType, attrs: Attrs, result: TensorType) -> View:
    gone = squeezed_axes(x.shape, attrs["axes"])
    return View(0, tuple(stride for axis, stride in enumerate(x.element_strides) if axis not in gone))


def _inserted_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return normalize_axes("unsqueeze", axes, rank + len(axes)) if axes else ()


def _unsqueeze(x: Operand, *, axes: Sequence[int]) -> Definition:
    require_dtype("unsqueeze", x, "data")
    new = _inserted_axes(axes, x.rank)
    kept = [axis for axis in range(x.rank + len(new)) if axis not in new]
    extents = iter(x.shape)
    shape = [1 if axis in new else next(extents) for axis in range(x.rank + len(new))]
    return single((x,), compute("unsqueeze", shape, lambda *indices: x[tuple(indices[axis] for axis in kept)]))


def _unsqueeze_view(x: TensorType, attrs: Attrs, result: TensorType) -> View:
    new = _inserted_axes(attrs["axes"], x.rank)
    strides: list[Dim] = []
    remaining = list(zip(x.shape, x.element_strides, strict=True))
    for axis in range(result.rank):
        if axis in new:
            strides.append(remaining[0][0] * remaining[0][1] if remaining else 1)
        else:
            strides.append(remaining.pop(0)[1])
    return View(0, tuple(strides))


def _expanded_shape(old: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
    added = len(shape) - len(old)
    if added < 0:
        raise ShapeError(f"operator expand cannot give shape {shape_text(old)} the fewer axes of {shape_text(shape)}")
    result = list(shape)
    for axis, extent in enumerate(old, added):
        if result[axis] == -1:
            result[axis] = extent
        elif extent != 1:
            what = f"operator expand of shape {shape_text(old)} to {shape_text(shape)}, axis {axis}"
            result[axis] = same_extent(result[axis], extent, what)
    if -1 in result[:added]:
        raise ShapeError(f"operator expand: -1 in {shape_text(shape)} stands for an axis that the input does not have")
    return tuple(result)


def _expand(x: Operand, *, shape: Sequence[Dim]) -> Definition:
    require_dtype("expand", x, "data")
    result = _expanded_shape(x.shape, shape)
    added = len(result) - x.rank

    def value(*axes: Expr) -> Expr:
        repeated = [extent == 1 and target != 1 for extent, target in zip(x.shape, result[added:], strict=True)]
        return x[tuple(build.index(0) if r else axis for r, axis in zip(repeated, axes[added:], strict=True))]

    return single((x,), compute("expand", result, value))


def _expand_view(x: TensorType, attrs: Attrs, result: TensorType) -> View:
    added = result.rank - x.rank
    kept = zip(x.shape, result.shape[added:], x.element_strides, strict=True)
    return View(0, (0,) * added + tuple(0 if n == 1 and target != 1 else stride for n, target, stride in kept))


def slice_range(extent: Dim, start: Dim | None, stop: Dim | None, step: int) -> tuple[Dim, Dim]:
    """First position and number of positions of Python's `start:stop:step` on an axis of `extent`.

    Ends count from the back where they are provably negative, and are clamped to the axis.
    """
    if step == 0:
        raise ShapeError("operator slice: a step is 0")
    if step > 0:
        first = _position(extent, 0 if start is None else start, 0, extent)
        last = extent if stop is None else _position(extent, stop, 0, extent)
        return first, maximum(0, ceildiv(last - first, step)) if not prove_le(first, last) else ceildiv(
            last - first, step
        )
    first = extent - 1 if start is None else _position(extent, start, -1, extent - 1)
    last = -1 if stop is None else _position(extent, stop, -1, extent - 1)
    return first, maximum(0, ceildiv(first - last, -step))


def _position(extent: Dim, position: Dim, lowest: Dim, highest: Dim) -> Dim:
    if prove_lt(position, 0):
        position = position + extent
    # What is proved here need not be proved of all that is made of the extent, as that it is 1.
    position = position if prove_le(lowest, position) else maximum(position, lowest)
    return position if prove_le(position, highest) else minimum(position, highest)


def slice_ranges(
    shape: Sequence[Dim], starts: Sequence[Dim | None], stops: Sequence[Dim | None], steps: Sequence[int] | None
) -> list[tuple[Dim, Dim, int]]:
    """First position, count and step for each axis of a slice; `steps` None is 1 everywhere."""
    if not len(starts) == len(stops) == len(shape) or (steps is not None and len(steps) != len(shape)):
        raise ShapeError(
            f"operator slice takes one start, stop and step an axis of shape {shape_text(shape)}, "
            f"got starts={starts}, stops={stops}, steps={steps}"
        )
    return [
        (*slice_range(extent, start, stop, step), step)
        for extent, start, stop, step in zip(shape, starts, stops, steps or (1,) * len(shape), strict=True)
    ]


def _slice(
    x: Operand, *, starts: Sequence[Dim | None], stops: Sequence[Dim | None], steps: Sequence[int] | None
) -> Definition:
    require_dtype("slice", x, "data")
    ranges = slice_ranges(x.shape, starts, stops, steps)

    def value(*axes: Expr) -> Expr:
        pairs = zip(axes, ranges, strict=True)
        return x[tuple(axis * build.index(step) + build.index(first) for axis, (first, _, step) in pairs)]

    return single((x,), compute("slice", [count for _, count, _ in ranges], value))


def slice_view(x: TensorType, attrs: Attrs, result: TensorType) -> View | None:
    """Where a slice lies; None for a negative step."""
    ranges = slice_ranges(x.shape, attrs["starts"], attrs["stops"], attrs["steps"])
    if any(step < 0 for _, _, step in ranges):
        return None
    offset: Dim = 0
    strides: list[Dim] = []
    for (first, _, step), stride in zip(ranges, x.element_strides, strict=True):
        offset = offset + first * stride
        strides.append(stride * step)
    return View(offset, tuple(strides))


def selected_position(extent: Dim, index: Dim) -> Dim:
    """`index` of an axis of `extent`, counted from the front. ShapeError when it provably does not exist."""
    position = index + extent if prove_lt(index, 0) else index
    lower, _ = bounds(position)
    if prove_le(extent, position) or (isinstance(position, int) and lower is not None and lower < 0):
        raise ShapeError(f"operator select: position {index} does not exist on an axis of extent {extent}")
    return position


def _select(x: Operand, *, axis: int, index: Dim) -> Definition:
    require_dtype("select", x, "data")
    gone = normalize_axis("select", axis, x.rank)
    position = build.index(selected_position(x.shape[gone], index))
    return single(
        (x,),
        compute(
            "select",
            (*x.shape[:gone], *x.shape[gone + 1 :]),
            lambda *axes: x[(*axes[:gone], position, *axes[gone:])],
        ),
    )


def select_view(x: TensorType, attrs: Attrs, result: TensorType) -> View:
    """Where one position of an axis lies."""
    gone = normalize_axis("select", attrs["axis"], x.rank)
    strides = x.element_strides
    offset = selected_position(x.shape[gone], attrs["index"]) * strides[gone]
    return View(offset, (*strides[:gone], *strides[gone + 1 :]))


def _diagonal_axes(rank: int, axis1: int, axis2: int) -> tuple[int, int]:
    first, second = normalize_axis("diagonal", axis1, rank), normalize_axis("diagonal", axis2, rank)
    if first == second or rank < 2:
        raise ShapeError(f"operator diagonal takes two different axes of {rank}, got {axis1} and {axis2}")
    return first, second


def diagonal_shape(shape: Sequence[Dim], offset: int, axis1: int, axis2: int) -> tuple[Dim, ...]:
    """The other extents, then the length of the diagonal."""
    first, second = _diagonal_axes(len(shape), axis1, axis2)
    length = maximum(0, minimum(shape[first] - max(-offset, 0), shape[second] - max(offset, 0)))
    return (*[extent for axis, extent in enumerate(shape) if axis not in (first, second)], length)


def diagonal_place(rank: int, offset: int, axis1: int, axis2: int, axes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where in the tensor the element `axes` of its diagonal is."""
    first, second = _diagonal_axes(rank, axis1, axis2)
    *kept, i = axes
    others = iter(kept)
    on_diagonal = {first: i + max(-offset, 0), second: i + max(offset, 0)}
    return tuple(on_diagonal[axis] if axis in on_diagonal else next(others) for axis in range(rank))


def _diagonal(x: Operand, *, offset: int, axis1: int, axis2: int) -> Definition:
    require_dtype("diagonal", x, "data")
    shape = diagonal_shape(x.shape, offset, axis1, axis2)
    stage = compute("diagonal", shape, lambda *axes: x[diagonal_place(x.rank, offset, axis1, axis2, axes)])
    return single((x,), stage)


def diagonal_view(x: TensorType, attrs: Attrs, result: TensorType) -> View | None:
    """Where a diagonal lies."""
    first, second = _diagonal_axes(x.rank, attrs["axis1"], attrs["axis2"])
    strides = x.element_strides
    start = max(-attrs["offset"], 0) * strides[first] + max(attrs["offset"], 0) * strides[second]
    kept = tuple(stride for axis, stride in enumerate(strides) if axis not in (first, second))
    return View(start, (*kept, strides[first] + strides[second]))


def _unfold(x: Operand, *, axis: int, size: int, step: int) -> Definition:
    require_dtype("unfold", x, "data")
    cut = normalize_axis("unfold", axis, x.rank)
    if prove_lt(x.shape[cut], size) or step <= 0:
        raise ShapeError(f"operator unfold: windows of {size} every {step} do not fit an axis of extent {x.shape[cut]}")
    count = floordiv(x.shape[cut] - size, step) + 1

    def value(*axes: Expr) -> Expr:
        position = axes[cut] * step + axes[-1]
        return x[(*axes[:cut], position, *axes[cut + 1 : -1])]

    return single((x,), compute("unfold", (*x.shape[:cut], count, *x.shape[cut + 1 :], size), value))


def _unfold_view(x: TensorType, attrs: Attrs, result: TensorType) -> View:
    cut = normalize_axis("unfold", attrs["axis"], x.rank)
    strides = x.element_strides
    return View(0, (*strides[:cut], strides[cut] * attrs["step"], *strides[cut + 1 :], strides[cut]))


def _as_strided(x: Operand, *, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim) -> Definition:
    require_dtype("as_strided", x, "data")
    count = product(x.shape)
    require_places("as_strided", count, shape, strides, offset)

    def value(*axes: Expr) -> Expr:
        place = build.flatten(axes, strides) + build.index(offset)
        return x[reshape_indices(x.shape, (count,), (place,))]

    return single((x,), compute("as_strided", shape, value))


def _as_strided_view(x: TensorType, attrs: Attrs, result: TensorType) -> View | None:
    return View(attrs["offset"], attrs["strides"]) if x.is_contiguous else None


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="transpose",
        inputs=("x",),
        attributes=(Attribute("perm", doc="for each result axis, the axis of x that it is"),),
        kind="view",
        define=_transpose,
        view=_transpose_view,
        doc="The axes in another order, as torch.permute; any element type.",
    ),
    OperatorSpec(
        name="squeeze",
        family="reshape",
        inputs=("x",),
        attributes=(Attribute("axes", None, "axes to drop where their extent is 1; None is all"),),
        kind="view",
        define=_squeeze,
        view=_squeeze_view,
        doc="x without axes of extent 1, as torch.squeeze; any element type.",
    ),
    OperatorSpec(
        name="unsqueeze",
        family="reshape",
        inputs=("x",),
        attributes=(Attribute("axes", doc="positions of the new axes in the result"),),
        kind="view",
        define=_unsqueeze,
        view=_unsqueeze_view,
        doc="x with new axes of extent 1, as ONNX Unsqueeze; any element type.",
    ),
    OperatorSpec(
        name="expand",
        inputs=("x",),
        attributes=(Attribute("shape", doc="new extents; -1 keeps one"),),
        kind="view",
        define=_expand,
        view=_expand_view,
        doc="Axes of extent 1 repeated and new leading axes added, as torch.Tensor.expand; any element type.",
    ),
    OperatorSpec(
        name="slice",
        inputs=("x",),
        attributes=(
            Attribute("starts", doc="one an axis; None is the end where the slice begins"),
            Attribute("stops", doc="one an axis, not included; None is the end of the axis"),
            Attribute("steps", None, "one an axis, not 0; None is 1 everywhere"),
        ),
        kind="view",
        define=_slice,
        view=slice_view,
        reads_parts=True,
        doc="x[start:stop:step] on every axis under Python's rules, negative steps included; any element type.",
    ),
    OperatorSpec(
        name="select",
        inputs=("x",),
        attributes=(Attribute("axis"), Attribute("index", doc="position; negative ones count from the end")),
        kind="view",
        define=_select,
        view=select_view,
        doc="x at one position of an axis, which is dropped, as torch.select; any element type.",
    ),
    OperatorSpec(
        name="diagonal",
        inputs=("x",),
        attributes=(Attribute("offset", 0), Attribute("axis1", 0), Attribute("axis2", 1)),
        kind="view",
        define=_diagonal,
        view=diagonal_view,
        reads_parts=True,
        doc="Elements with index(axis2) = index(axis1) + offset, as a new last axis; torch.diagonal; any element type.",
    ),
    OperatorSpec(
        name="unfold",
        inputs=("x",),
        attributes=(Attribute("axis"), Attribute("size"), Attribute("step")),
        kind="view",
        define=_unfold,
        view=_unfold_view,
        doc="Windows of `size` every `step` along an axis, as a new last axis; torch.Tensor.unfold; any element type.",
    ),
    OperatorSpec(
        name="as_strided",
        inputs=("x",),
        attributes=(Attribute("shape"), Attribute("strides"), Attribute("offset", 0)),
        kind="view",
        define=_as_strided,
        view=_as_strided_view,
        reads_parts=True,
        doc="Elements offset + sum(index * stride) of x laid out row-major, as torch.as_strided; any element type.",
    ),
)
