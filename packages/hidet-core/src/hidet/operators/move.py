"""Data movement that needs a new tensor: joining, padding, repeating, reversing, masking triangles, copying.

Every operator takes any element type and changes no value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hidet.compute.definition import Definition, Operand, compute, number, single
from hidet.dims import Dim, prove_le
from hidet.errors import ShapeError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    map_elements,
    normalize_axes,
    normalize_axis,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
    shape_text,
)

if TYPE_CHECKING:
    from hidet.graph.builder import GraphBuilder
    from hidet.graph.graph import Value


def _require_tensors(name: str, tensors: Sequence[Operand]) -> None:
    if not tensors:
        raise ShapeError(f"operator {name} needs at least one tensor")
    for tensor in tensors:
        require_dtype(name, tensor, "data")
    require_same_dtype(name, tensors)


def _concat(*tensors: Operand, axis: int) -> Definition:
    _require_tensors("concat", tensors)
    first = tensors[0]
    require_rank("concat", first, at_least=1)
    cut = normalize_axis("concat", axis, first.rank)
    shape = list(first.shape)
    ends: list[Dim] = [first.shape[cut]]
    for tensor in tensors[1:]:
        require_rank("concat", tensor, at_least=first.rank, at_most=first.rank)
        for other in range(first.rank):
            if other != cut:
                shape[other] = same_extent(shape[other], tensor.shape[other], f"operator concat, axis {other}")
        ends.append(ends[-1] + tensor.shape[cut])
    shape[cut] = ends[-1]

    def value(*axes: Expr) -> Expr:
        def read(number_: int) -> Expr:
            start = build.index(ends[number_ - 1] if number_ else 0)
            return tensors[number_][(*axes[:cut], axes[cut] - start, *axes[cut + 1 :])]

        return build.select_part(axes[cut], ends, read)

    return single(tensors, compute("concat", shape, value))


def _stack(*tensors: Operand, axis: int) -> Definition:
    _require_tensors("stack", tensors)
    first = tensors[0]
    new = normalize_axis("stack", axis, first.rank + 1)
    shape = list(first.shape)
    for tensor in tensors[1:]:
        require_rank("stack", tensor, at_least=first.rank, at_most=first.rank)
        shape = [same_extent(a, b, "operator stack") for a, b in zip(shape, tensor.shape, strict=True)]

    def value(*axes: Expr) -> Expr:
        place = (*axes[:new], *axes[new + 1 :])
        return build.select_part(axes[new], range(1, len(tensors) + 1), lambda number_: tensors[number_][place])

    return single(tensors, compute("stack", (*shape[:new], len(tensors), *shape[new:]), value))


def _decompose_stack(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    present = [tensor for tensor in inputs if tensor is not None]
    new = normalize_axis("stack", attrs["axis"], present[0].tensor.rank + 1)
    return (builder.emit("concat", *[builder.emit("unsqueeze", t, axes=(new,)) for t in present], axis=new),)


def _reflected(place: Expr, extent: Dim, before: Dim, after: Dim) -> Expr:
    if (prove_le(extent, before) or prove_le(extent, after)) and (before != 0 or after != 0):
        raise ShapeError(f"operator pad cannot reflect {before} and {after} elements of an axis of extent {extent}")
    last = build.index(extent - 1)
    mirrored = build.select(place > last, last + last - place, place) if after != 0 else place
    return build.select(place < 0, build.index(0) - place, mirrored) if before != 0 else mirrored


def _replicated(place: Expr, extent: Dim, before: Dim, after: Dim) -> Expr:
    place = build.maximum(place, 0) if before != 0 else place
    return build.minimum(place, build.index(extent - 1)) if after != 0 else place


def _wrapped(place: Expr, extent: Dim, before: Dim, after: Dim) -> Expr:
    return place % build.index(extent) if before != 0 or after != 0 else place


_PAD_MODES: dict[str, Callable[[Expr, Dim, Dim, Dim], Expr]] = {
    "reflect": _reflected,
    "replicate": _replicated,
    "circular": _wrapped,
}


def _pad(x: Operand, *, pads: Sequence[tuple[Dim, Dim]], mode: str, value: Any) -> Definition:
    require_dtype("pad", x, "data")
    if len(pads) != x.rank or any(len(pair) != 2 for pair in pads):
        raise ShapeError(f"operator pad takes a pair (before, after) an axis of {shape_text(x.shape)}, got {pads}")
    if mode != "constant" and mode not in _PAD_MODES:
        known = ", ".join(("constant", *_PAD_MODES))
        raise UnsupportedOp(f"operator pad has no mode {mode!r}; it has: {known}")
    shape = [extent + before + after for extent, (before, after) in zip(x.shape, pads, strict=True)]
    if any(prove_le(extent, -1) for extent in shape):
        raise ShapeError(f"operator pad by {pads} leaves nothing of shape {shape_text(x.shape)}")

    def element(*axes: Expr) -> Expr:
        places = [axis - build.index(before) for axis, (before, _) in zip(axes, pads, strict=True)]
        if mode != "constant":
            rows = zip(places, x.shape, pads, strict=True)
            return x[tuple(_PAD_MODES[mode](place, extent, *pair) for place, extent, pair in rows)]
        checks = []
        for place, extent, (before, after) in zip(places, x.shape, pads, strict=True):
            if not prove_le(before, 0):
                checks.append(place >= 0)
            if not prove_le(after, 0):
                checks.append(place < build.index(extent))
        return build.select(build.logical_and(*checks), x[tuple(places)], number(value, x.dtype))

    return single((x,), compute("pad", shape, element))


def _flip(x: Operand, *, axes: Sequence[int]) -> Definition:
    require_dtype("flip", x, "data")
    turned = normalize_axes("flip", axes, x.rank) if axes else ()

    def value(*places: Expr) -> Expr:
        pairs = enumerate(zip(places, x.shape, strict=True))
        return x[tuple(build.index(n - 1) - place if axis in turned else place for axis, (place, n) in pairs)]

    return single((x,), compute("flip", x.shape, value))


def _roll(x: Operand, *, shifts: Sequence[Dim], axes: Sequence[int]) -> Definition:
    require_dtype("roll", x, "data")
    if len(shifts) != len(axes):
        raise ShapeError(f"operator roll takes a shift an axis, got shifts={shifts} and axes={axes}")
    moved: dict[int, Dim] = {}
    for shift, axis in zip(shifts, axes, strict=True):
        cut = normalize_axis("roll", axis, x.rank)
        moved[cut] = moved.get(cut, 0) + shift

    def value(*places: Expr) -> Expr:
        place = list(places)
        for axis, shift in moved.items():
            place[axis] = (places[axis] - build.index(shift)) % build.index(x.shape[axis])
        return x[tuple(place)]

    return single((x,), compute("roll", x.shape, value))


def _tile(x: Operand, *, repeats: Sequence[Dim]) -> Definition:
    require_dtype("tile", x, "data")
    added = len(repeats) - x.rank
    counts = (1,) * -added + tuple(repeats) if added < 0 else tuple(repeats)
    added = max(added, 0)
    shape = [extent * count for extent, count in zip((1,) * added + x.shape, counts, strict=True)]

    def value(*axes: Expr) -> Expr:
        rows = zip(axes[added:], x.shape, counts[added:], strict=True)
        return x[tuple(axis if count == 1 else axis % build.index(extent) for axis, extent, count in rows)]

    return single((x,), compute("tile", shape, value))


def _repeat_interleave(x: Operand, *, repeats: Dim, axis: int) -> Definition:
    require_dtype("repeat_interleave", x, "data")
    require_rank("repeat_interleave", x, at_least=1)
    cut = normalize_axis("repeat_interleave", axis, x.rank)

    def value(*axes: Expr) -> Expr:
        return x[(*axes[:cut], axes[cut] // build.index(repeats), *axes[cut + 1 :])]

    shape = (*x.shape[:cut], x.shape[cut] * repeats, *x.shape[cut + 1 :])
    return single((x,), compute("repeat_interleave", shape, value))


def _triangle(name: str, is_lower: bool) -> Callable[..., Definition]:
    def define(x: Operand, *, offset: Dim) -> Definition:
        require_dtype(name, x, "data")
        require_rank(name, x, at_least=2)

        def value(*axes: Expr) -> Expr:
            row, column = axes[-2] + build.index(offset), axes[-1]
            return build.select(column <= row if is_lower else column >= row, x[axes], number(0, x.dtype))

        return single((x,), compute(name, x.shape, value))

    return define


def _diagonal_matrix(x: Operand, *, offset: int, axis1: int, axis2: int) -> Definition:
    require_dtype("diag_embed", x, "data")
    require_rank("diag_embed", x, at_least=1)
    rank = x.rank + 1
    first, second = normalize_axis("diag_embed", axis1, rank), normalize_axis("diag_embed", axis2, rank)
    if first == second:
        raise ShapeError(f"operator diag_embed takes two different axes, got {axis1} and {axis2}")
    side = x.shape[-1] + abs(offset)
    lead = iter(x.shape[:-1])
    shape = [side if axis in (first, second) else next(lead) for axis in range(rank)]

    def value(*axes: Expr) -> Expr:
        outer = [place for axis, place in enumerate(axes) if axis not in (first, second)]
        row, column = axes[first], axes[second]
        on_diagonal = build.equal(column, row + offset)
        inner = row - max(-offset, 0)
        checks = (on_diagonal, inner >= 0, inner < build.index(x.shape[-1])) if offset else (on_diagonal,)
        return build.select(build.logical_and(*checks), x[(*outer, inner)], number(0, x.dtype))

    return single((x,), compute("diag_embed", shape, value))


def _copy(x: Operand) -> Definition:
    require_dtype("copy", x, "data")
    return map_elements("copy", (x,), lambda element: element)


_OFFSET = Attribute("offset", 0, "0 is the main diagonal, above it positive")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="concat",
        inputs=("tensors*",),
        attributes=(Attribute("axis", 0),),
        define=_concat,
        layout="follows",
        doc="Tensors one after the other along an axis; other extents are equal; one element type. torch.cat.",
    ),
    OperatorSpec(
        name="stack",
        inputs=("tensors*",),
        attributes=(Attribute("axis", 0),),
        define=_stack,
        decompose=_decompose_stack,
        doc="Tensors of one shape and element type along a new axis; torch.stack.",
    ),
    OperatorSpec(
        name="pad",
        inputs=("x",),
        attributes=(
            Attribute("pads", doc="a pair (before, after) an axis; negative numbers crop"),
            Attribute("mode", "constant", "constant, reflect, replicate or circular"),
            Attribute("value", 0, "what constant padding is filled with"),
        ),
        define=_pad,
        layout="follows",
        doc="x with elements added at both ends of each axis; any element type; torch.nn.functional.pad, ONNX Pad.",
    ),
    OperatorSpec(
        name="flip",
        inputs=("x",),
        attributes=(Attribute("axes"),),
        define=_flip,
        doc="x in reverse along axes, any element type; torch.flip.",
    ),
    OperatorSpec(
        name="roll",
        inputs=("x",),
        attributes=(Attribute("shifts"), Attribute("axes")),
        define=_roll,
        doc="x moved along axes, what leaves at one end enters at the other; any element type; torch.roll.",
    ),
    OperatorSpec(
        name="tile",
        inputs=("x",),
        attributes=(Attribute("repeats", doc="copies an axis; more entries than axes add leading ones"),),
        define=_tile,
        doc="x repeated as a whole along each axis; any element type; torch.tile, torch.Tensor.repeat.",
    ),
    OperatorSpec(
        name="repeat_interleave",
        inputs=("x",),
        attributes=(Attribute("repeats"), Attribute("axis")),
        define=_repeat_interleave,
        doc="Each slice along an axis repeated `repeats` times; any type; torch.repeat_interleave with a number.",
    ),
    OperatorSpec(
        name="tril",
        inputs=("x",),
        attributes=(_OFFSET,),
        define=_triangle("tril", is_lower=True),
        doc="The last two axes with 0 above the diagonal; any element type; torch.tril.",
    ),
    OperatorSpec(
        name="triu",
        inputs=("x",),
        attributes=(_OFFSET,),
        define=_triangle("triu", is_lower=False),
        doc="The last two axes with 0 below the diagonal; any element type; torch.triu.",
    ),
    OperatorSpec(
        name="diag_embed",
        inputs=("x",),
        attributes=(_OFFSET, Attribute("axis1", -2), Attribute("axis2", -1)),
        define=_diagonal_matrix,
        doc="The last axis as the diagonal of two new axes, 0 elsewhere; any element type; torch.diag_embed.",
    ),
    OperatorSpec(
        name="copy",
        inputs=("x",),
        define=_copy,
        layout="follows",
        doc="The elements of x in memory of their own, row-major; any element type; torch.clone.",
    ),
)
