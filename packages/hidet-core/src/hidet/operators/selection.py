"""Operators whose number of results depends on data, in terms of running counts: written into a graph by functions.

The number is read once (`read_sizes`) and is a symbol from there on: a fresh one, or `defines`. With `count` the caller
knows it already, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.dims import Dim, product, prove_equal
from hidet.errors import DTypeError, ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.builder import GraphBuilder
from hidet.graph.control import emit_while
from hidet.graph.graph import Value
from hidet.graph.types import TensorType
from hidet.operators.rules import broadcast_shapes, normalize_axis


def read_size(builder: GraphBuilder, number: Value, defines: Dim | None = None) -> Dim:
    """The integer in a tensor of rank 0 as a size: the symbol `defines`, or a fresh one."""
    size = builder.fresh_size() if defines is None else defines
    builder.emit("read_sizes", number, defines=(size,))
    return size


def nonzero(builder: GraphBuilder, x: Value, count: Dim | None = None, defines: Dim | None = None) -> Value:
    """Positions of the elements of x that are not zero, row-major: i64[count, rank]."""
    ends, found = counted(builder, _flat(builder, _is_nonzero(builder, x)), count, defines)
    length = product(x.tensor.shape)
    places = builder.emit("arange", stop=length, dtype=dtypes.i64)
    flat = builder.emit("pack", places, ends, count=found)
    columns: list[Value] = []
    for extent in reversed(x.tensor.shape):
        whole = builder.emit("full", shape=(), value=extent, dtype=dtypes.i64)
        columns.append(builder.emit("unsqueeze", builder.emit("remainder", flat, whole), axes=(1,)))
        flat = builder.emit("floor_divide", flat, whole)
    if not columns:
        return builder.emit("full", shape=(found, 0), value=0, dtype=dtypes.i64)
    return columns[0] if len(columns) == 1 else builder.emit("concat", *reversed(columns), axis=1)


def masked_select(
    builder: GraphBuilder, x: Value, mask: Value, count: Dim | None = None, defines: Dim | None = None
) -> Value:
    """The elements of x where the bool mask is true, row-major: [count]. x and mask broadcast. DTypeError otherwise."""
    if not mask.tensor.dtype.is_bool:
        raise DTypeError(f"operator masked_select takes a bool mask, got {mask.tensor.dtype}")
    shape = broadcast_shapes("masked_select", (x.tensor.shape, mask.tensor.shape))
    wide = [builder.emit("expand", value, shape=shape) for value in (x, mask)]
    ends, found = counted(builder, _flat(builder, wide[1]), count, defines)
    return builder.emit("pack", _flat(builder, wide[0]), ends, count=found)


def masked_scatter(builder: GraphBuilder, x: Value, mask: Value, src: Value) -> Value:
    """x with the elements of src, in order, where the mask is not zero. A mask of more elements than src has is an
    error of the call."""
    shape = x.tensor.shape
    if src.tensor.shape and prove_equal(product(src.tensor.shape), 0) is True:
        return builder.emit("copy", x)
    chosen = builder.emit("expand", _is_nonzero(builder, mask), shape=shape)
    numbers = builder.emit("cast", _flat(builder, chosen), dtype=dtypes.i64)
    ends = builder.emit("cumsum", numbers, axis=0)
    # Before the first chosen element this is -1, an element that is not looked at.
    places = builder.emit("sub", ends, builder.constant(1, dtypes.i64))
    taken = builder.emit("index_select", _flat(builder, src), places, axis=0)
    return builder.emit("where", chosen, builder.emit("reshape", taken, shape=shape), x)


def compress(builder: GraphBuilder, x: Value, condition: Value, axis: int | None) -> Value:
    """The slices of x along an axis where bool[n] `condition` is true; n may be smaller than the axis. Axis None takes
    elements of the flattened x. ShapeError for a condition that is longer."""
    if axis is None:
        x, axis = _flat(builder, x), 0
    cut = normalize_axis("compress", axis, x.tensor.rank)
    order = (cut, *(n for n in range(x.tensor.rank) if n != cut))
    rows = x if cut == 0 else builder.emit("transpose", x, perm=order)
    length, whole = condition.tensor.shape[0], x.tensor.shape[cut]
    if length != whole:
        if isinstance(length, int) and isinstance(whole, int) and length > whole:
            raise ShapeError(f"operator compress: a condition of {length} elements for an axis of extent {whole}")
        stops = (length, *rows.tensor.shape[1:])
        rows = builder.emit("slice", rows, starts=(0,) * len(stops), stops=stops, steps=(1,) * len(stops))
    ends, found = counted(builder, condition)
    kept = builder.emit("pack", rows, ends, count=found)
    inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
    return kept if cut == 0 else builder.emit("transpose", kept, perm=inverse)


def unique(
    builder: GraphBuilder,
    x: Value,
    axis: int | None,
    *,
    is_sorted: bool = True,
    adjacent: bool = False,
    count: Dim | None = None,
    defines: Dim | None = None,
) -> tuple[Value, Value, Value, Value]:
    """Distinct elements, or slices along an axis; for each the position of its first occurrence; for each element its
    number among them (flat, i64[n]); and how often each occurs.

    is_sorted: ascending, NaN last; otherwise in the order of first occurrence. NaN differs from NaN. adjacent: only
    equal neighbours are one, and nothing is sorted.
    """
    rank = x.tensor.rank
    if axis is None:
        rows = _flat(builder, x)
        values, order = (rows, _in_place(builder, rows)) if adjacent else builder.emit_all("sort", [rows], {"axis": 0})
        starts = builder.emit("run_starts", values)
    else:
        cut = normalize_axis("unique", axis, rank)
        perm = (cut, *(n for n in range(rank) if n != cut))
        rows = x if cut == 0 else builder.emit("transpose", x, perm=perm)
        table = builder.emit("reshape", rows, shape=(x.tensor.shape[cut], product(rows.tensor.shape[1:])))
        order = _in_place(builder, table) if adjacent else _order_of_rows(builder, table)
        starts = builder.emit("run_starts", builder.emit("index_select", table, order, axis=0))
    ends, found = counted(builder, starts, count, defines)
    first = builder.emit("pack", order, ends, count=found)
    one = builder.constant(1, dtypes.i64)
    number = builder.emit("sub", ends, one)
    length = number.tensor.shape[0]
    empty = builder.emit("full", shape=(length,), value=0, dtype=dtypes.i64)
    inverse = builder.emit("scatter", empty, order, number, axis=0)
    none = builder.emit("full", shape=(found,), value=0, dtype=dtypes.i64)
    ones = builder.emit("full", shape=(length,), value=1, dtype=dtypes.i64)
    counts = builder.emit("scatter", none, number, ones, axis=0, reduce="sum")
    if not (is_sorted or adjacent):
        turn = builder.emit("argsort", first, axis=0)
        place = builder.emit("argsort", turn, axis=0)
        first, counts = (builder.emit("index_select", part, turn, axis=0) for part in (first, counts))
        inverse = builder.emit("index_select", place, inverse, axis=0)
    kept = builder.emit("index_select", rows, first, axis=0)
    if axis is not None and cut != 0:
        kept = builder.emit("transpose", kept, perm=tuple(sorted(range(rank), key=perm.__getitem__)))
    return kept, first, inverse, counts


def _in_place(builder: GraphBuilder, table: Value) -> Value:
    """The positions of rows, as they are."""
    return builder.emit("arange", stop=table.tensor.shape[0], dtype=dtypes.i64)


def _order_of_rows(builder: GraphBuilder, table: Value) -> Value:
    """Positions that put the rows of [n, k] into lexicographic order: stable sorts by one column after the other, the
    last column first, as radix sorts do."""
    rows, columns = table.tensor.shape
    body = builder.nested("sort_by_column")
    iteration, order = body.input(TensorType(dtypes.i64, ())), body.input(TensorType(dtypes.i64, (rows,)))
    keys = body.input(table.tensor.with_strides(None))
    last = body.emit("full", shape=(), value=columns - 1, dtype=dtypes.i64)
    column = body.emit("index_select", keys, body.emit("sub", last, iteration), axis=1)
    turn = body.emit("argsort", body.emit("index_select", column, order, axis=0), axis=0)
    loop = body.build([body.emit("index_select", order, turn, axis=0)])
    start = builder.emit("arange", stop=rows, dtype=dtypes.i64)
    (order,) = emit_while(builder, loop, limit=columns, carried=[start], captures=[table])
    return order


def counted(
    builder: GraphBuilder, flags: Value, count: Dim | None = None, defines: Dim | None = None
) -> tuple[Value, Dim]:
    """The running count of bool[n] flags that are true, and how many there are."""
    numbers = builder.emit("cast", flags, dtype=dtypes.i64)
    ends = builder.emit("cumsum", numbers, axis=0)
    if count is None:
        count = read_size(builder, builder.emit("sum", numbers, axes=(0,)), defines)
    return ends, count


def _is_nonzero(builder: GraphBuilder, x: Value) -> Value:
    return x if x.tensor.dtype.is_bool else builder.emit("cast", x, dtype=dtypes.boolean)


def _flat(builder: GraphBuilder, x: Value) -> Value:
    return builder.emit("reshape", x, shape=(product(x.tensor.shape),))


def decompose_nonzero(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    """`OperatorSpec.decompose` of nonzero."""
    (x,) = (value for value in inputs if value is not None)
    return [nonzero(builder, x, attrs["count"])]


def decompose_masked_select(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    """`OperatorSpec.decompose` of masked_select."""
    x, mask = (value for value in inputs if value is not None)
    return [masked_select(builder, x, mask, attrs["count"])]


def decompose_masked_scatter(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    """`OperatorSpec.decompose` of masked_scatter."""
    x, mask, src = (value for value in inputs if value is not None)
    return [masked_scatter(builder, x, mask, src)]


def decompose_unique(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    """`OperatorSpec.decompose` of unique."""
    (x,) = (value for value in inputs if value is not None)
    axis = attrs["axis"]
    values, _, inverse, counts = unique(builder, x, axis, count=attrs["count"])
    shape = x.tensor.shape if axis is None else (x.tensor.shape[axis],)
    return [values, builder.emit("reshape", inverse, shape=shape), counts]
