"""Reading at computed positions: gather, index, embedding, one-hot.

Positions are of any integer type and are used as i64; negative ones count from the end where attribute `wraps` is true.
A position outside its axis is the caller's error: each operator declares its positions (`OperatorSpec.positions`), and
they are checked before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute, number, single
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec, Position
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import (
    broadcast_shapes,
    normalize_axis,
    present,
    read_broadcast,
    require_dtype,
    require_rank,
    require_within,
    same_extent,
    shape_text,
    wrap_index,
)


def _gather(x: Operand, index: Operand, *, axis: int, wraps: bool) -> Definition:
    require_dtype("gather", x, "data")
    require_dtype("gather", index, "int")
    if max(index.rank, 1) != max(x.rank, 1):
        raise ShapeError(
            f"operator gather takes as many axes for index as for x, "
            f"got {shape_text(index.shape)} and {shape_text(x.shape)}"
        )
    cut = normalize_axis("gather", axis, x.rank)
    require_within(index.shape, x.shape, "operator gather: index against x", besides=cut)

    def value(*axes: Expr) -> Expr:
        if x.rank == 0:
            return x[()]
        place = wrap_index(index[axes[: index.rank]], x.shape[cut], wraps)
        return x[(*axes[:cut], place, *axes[cut + 1 :])]

    return single((x, index), compute("gather", index.shape, value))


def _index_select(x: Operand, index: Operand, *, axis: int, wraps: bool, is_inside: bool) -> Definition:
    require_dtype("index_select", x, "data")
    require_dtype("index_select", index, "int")
    require_rank("index_select", x, at_least=1)
    cut = normalize_axis("index_select", axis, x.rank)
    end = cut + index.rank

    def value(*axes: Expr) -> Expr:
        return x[(*axes[:cut], wrap_index(index[axes[cut:end]], x.shape[cut], wraps), *axes[end:])]

    shape = (*x.shape[:cut], *index.shape, *x.shape[cut + 1 :])
    return single((x, index), compute("index_select", shape, value))


def _embedding(weight: Operand, index: Operand, *, wraps: bool) -> Definition:
    require_dtype("embedding", weight, "data")
    require_dtype("embedding", index, "int")
    require_rank("embedding", weight, at_least=2, at_most=2)

    def value(*axes: Expr) -> Expr:
        return weight[wrap_index(index[axes[:-1]], weight.shape[0], wraps), axes[-1]]

    return single((weight, index), compute("embedding", (*index.shape, weight.shape[1]), value))


def indexed_layout(
    operator: str, shape: Sequence[Dim], indices: Sequence[Operand | None]
) -> tuple[int, tuple[Dim, ...], tuple[Dim, ...]]:
    """How advanced indexing of `shape` lays out its result: first axis and shape of the indices, and the whole shape.

    Axes without an index tensor are kept in order; those of the indices stand where the indexed axes are when these are
    neighbours, else in front (numpy's rule, which torch shares).
    """
    if len(indices) > len(shape):
        raise ShapeError(f"operator {operator} got {len(indices)} indices for shape {shape_text(shape)}")
    given = [axis for axis, index in enumerate(indices) if index is not None]
    if not given:
        raise ShapeError(f"operator {operator} needs an index tensor for at least one axis")
    for axis in given:
        require_dtype(operator, present(indices[axis])[0], "int")
    picked = broadcast_shapes(operator, [index.shape for index in present(*indices)])
    kept = [extent for axis, extent in enumerate(shape) if axis not in given]
    neighbours = given == list(range(given[0], given[-1] + 1))
    start = given[0] if neighbours else 0
    return start, picked, (*kept[:start], *picked, *kept[start:])


def indexed_place(
    shape: Sequence[Dim], indices: Sequence[Operand | None], start: int, picked: Sequence[Dim], axes: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Where in a tensor of `shape` the element `axes` of the layout of `indexed_layout` is."""
    inner = axes[start : start + len(picked)]
    kept = iter((*axes[:start], *axes[start + len(picked) :]))
    place: list[Expr] = []
    for axis, extent in enumerate(shape):
        index = indices[axis] if axis < len(indices) else None
        place.append(next(kept) if index is None else wrap_index(read_broadcast(index, inner, picked), extent))
    return tuple(place)


def _index(x: Operand, *indices: Operand | None) -> Definition:
    require_dtype("index", x, "data")
    start, picked, shape = indexed_layout("index", x.shape, indices)
    stage = compute("index", shape, lambda *axes: x[indexed_place(x.shape, indices, start, picked, axes)])
    return single(present(x, *indices), stage)


def _gather_nd(x: Operand, index: Operand, *, batch: int) -> Definition:
    name = "gather_nd"
    require_dtype(name, x, "data")
    require_dtype(name, index, "int")
    require_rank(name, index, at_least=batch + 1)
    depth = index.shape[-1]
    if not isinstance(depth, int) or batch + depth > x.rank:
        raise ShapeError(f"operator {name}: index tuples of {depth} positions for shape {shape_text(x.shape[batch:])}")
    outer = index.rank - 1
    for have, want in zip(index.shape[:batch], x.shape[:batch], strict=True):
        same_extent(have, want, f"operator {name}: batch axes of index against x")

    def value(*axes: Expr) -> Expr:
        given = [wrap_index(index[(*axes[:outer], level)], x.shape[batch + level]) for level in range(depth)]
        return x[(*axes[:batch], *given, *axes[outer:])]

    return single((x, index), compute(name, (*index.shape[:-1], *x.shape[batch + depth :]), value))


def _one_hot(index: Operand, *, classes: Dim, dtype: DType) -> Definition:
    require_dtype("one_hot", index, "int")

    def value(*axes: Expr) -> Expr:
        hit = build.equal(wrap_index(index[axes[:-1]], classes), axes[-1])
        return build.select(hit, number(1, dtype), number(0, dtype))

    return single((index,), compute("one_hot", (*index.shape, classes), value))


def along_axis(types: Sequence[Any], attrs: Attrs) -> Sequence[Position]:
    """Input 1 says where along attribute `axis` of input 0; embedding has its positions along axis 0."""
    x: TensorType = types[0]
    if x.rank == 0:
        return ()
    axis = normalize_axis("positions", attrs.get("axis", 0), x.rank)
    return (Position(1, x.shape[axis], wraps=attrs["wraps"]),)


def _where_unknown(types: Sequence[Any], attrs: Attrs) -> Sequence[Position]:
    """As `along_axis`, where nothing has proved that positions are inside."""
    return () if attrs["is_inside"] else along_axis(types, attrs)


def one_an_axis(first: int) -> Callable[[Sequence[Any], Attrs], Sequence[Position]]:
    """Inputs from number `first` on say where along the axes of input 0."""

    def positions(types: Sequence[Any], attrs: Attrs) -> Sequence[Position]:
        given = enumerate(types[first:])
        return [Position(first + axis, types[0].shape[axis]) for axis, type_ in given if type_ is not None]

    return positions


def in_tuples(types: Sequence[Any], attrs: Attrs) -> Sequence[Position]:
    """The last axis of input 1 holds positions along the axes of input 0 after attribute `batch`."""
    x, index, batch = types[0], types[1], attrs.get("batch", 0)
    return [Position(1, x.shape[batch + level], level) for level in range(index.shape[-1])]


WRAPS = Attribute("wraps", True, "whether negative positions count from the end")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="gather",
        inputs=("x", "index"),
        attributes=(Attribute("axis"), WRAPS),
        define=_gather,
        positions=along_axis,
        reads_parts=True,
        doc="x with its position on `axis` replaced by index[...]; the result has the shape of index, whose other "
        "extents are at most those of x. torch.gather, ONNX GatherElements; any element type.",
    ),
    OperatorSpec(
        name="index_select",
        inputs=("x", "index"),
        attributes=(
            Attribute("axis", 0),
            WRAPS,
            Attribute("is_inside", False, "positions are known to be those of elements, and are not checked"),
        ),
        define=_index_select,
        positions=_where_unknown,
        doc="The slices of x at the positions in index, whose axes take the place of `axis`. torch.index_select for "
        "one axis, ONNX Gather for any number; any element type.",
    ),
    OperatorSpec(
        name="embedding",
        inputs=("weight", "index"),
        attributes=(WRAPS,),
        define=_embedding,
        positions=along_axis,
        doc="Rows of weight[v, d] at index[...] -> [..., d], as torch.nn.functional.embedding; any element type.",
    ),
    OperatorSpec(
        name="index",
        inputs=("x", "indices*"),
        define=_index,
        positions=one_an_axis(1),
        doc="x[indices], advanced indexing: one index tensor an axis, none where the whole axis is kept; they "
        "broadcast. numpy, torch.ops.aten.index without bool masks; any element type.",
    ),
    OperatorSpec(
        name="gather_nd",
        inputs=("x", "index"),
        attributes=(Attribute("batch", 0, "leading axes that x and index share"),),
        define=_gather_nd,
        positions=in_tuples,
        doc="The slices of x at the positions index[..., :] of the axes after the batch; ONNX GatherND; any type.",
    ),
    OperatorSpec(
        name="one_hot",
        inputs=("index",),
        attributes=(Attribute("classes"), Attribute("dtype", dtypes.i64)),
        define=_one_hot,
        doc="1 where index[...] is the position on a new last axis of extent `classes`, else 0; torch, ONNX OneHot.",
    ),
)
