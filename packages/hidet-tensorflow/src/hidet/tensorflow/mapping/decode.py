"""Labels from what a network says of each step (connectionist temporal classification; Graves et al., 2006)."""

from __future__ import annotations

from collections.abc import Mapping

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.operators import selection


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {"CTCGreedyDecoder": _greedy, "CTCBeamSearchDecoder": _search, "SparseToDense": _dense}


def _greedy(
    e: Emitter, x: Value, lengths: Value, merge_repeated: bool = False, blank_index: int = -1
) -> tuple[Value, Value, Value, Value]:
    """The best class of each step of x[time, batch, classes] without blanks, as a sparse matrix [batch, longest]:
    places, values, shape; and the negated sum of what is said of these classes, [batch, 1]."""
    i64 = dtypes.i64
    time, _, classes = x.tensor.shape
    if not isinstance(classes, int):
        raise UnsupportedOp(f"{e.operator} of an open number of classes")
    blank = blank_index + classes if blank_index < 0 else blank_index
    if not 0 <= blank < classes:
        raise ImportFailed(f"{e.operator}: the blank is class {blank_index} of {classes}")
    rows = e.transpose(x, (1, 0, 2))
    best = e.emit("argmax", rows, axes=(2,))
    steps = e.unsqueeze(e.emit("arange", start=0, stop=time, dtype=i64), (0,))
    is_on = e.emit("less", steps, e.unsqueeze(e.cast(lengths, i64), (1,)))
    is_kept = e.emit("logical_and", is_on, e.emit("not_equal", best, e.constant(blank, i64)))
    said = e.emit("where", is_on, e.emit("amax", rows, axes=(2,)), e.constant(0, x.tensor.dtype))
    score = e.emit("neg", e.emit("sum", said, axes=(1,), keepdim=True))
    return *_sparse_rows(e, best, is_kept, merge_repeated), score


def _search(
    e: Emitter, x: Value, lengths: Value, beam_width: int, top_paths: int, merge_repeated: bool = True
) -> tuple[Value, ...]:
    """The best paths of x[time, batch, classes], the last class being the blank, as sparse matrices [batch, longest]:
    all places, all values, all shapes; and the logarithms of their probabilities, [batch, top_paths]."""
    if not 0 < top_paths <= beam_width:
        raise ImportFailed(f"{e.operator}: {top_paths} paths of {beam_width} beams")
    scores = e.emit("log_softmax", x, axis=2)
    attrs = {"width": beam_width, "paths": top_paths}
    labels, probable = e.emit_all("tensorflow.ctc_beam_search", (scores, e.cast(lengths, dtypes.i64)), attrs)
    is_label = e.emit("greater_equal", labels, e.constant(0, dtypes.i64))
    paths = []
    for path in range(top_paths):
        row, is_kept = (e.emit("select", value, axis=1, index=path) for value in (labels, is_label))
        paths.append(_sparse_rows(e, row, is_kept, merge_repeated))
    places, values, shapes = zip(*paths, strict=True)
    return (*places, *values, *shapes, probable)


def _sparse_rows(e: Emitter, labels: Value, is_kept: Value, merge_repeated: bool) -> tuple[Value, Value, Value]:
    """Those of labels[batch, time] that are kept, one behind the other, as a sparse matrix [batch, longest]: places,
    values, shape. merge_repeated: a label that follows the same one is none."""
    i64 = dtypes.i64
    batch, time = labels.tensor.shape
    if merge_repeated:
        before = e.emit("pad", labels, pads=((0, 0), (1, 0)), mode="constant", value=-1)
        before = e.emit("slice", before, starts=(0, 0), stops=(None, time))
        is_kept = e.emit("logical_and", is_kept, e.emit("not_equal", labels, before))
    found = selection.nonzero(e.builder, is_kept)
    count = e.cast(is_kept, i64)
    order = e.emit("sub", e.emit("cumsum", count, axis=1), e.constant(1, i64))
    places = e.emit("gather_nd", order, found)
    first = e.emit("select", found, axis=1, index=0)
    longest = e.emit("amax", e.emit("sum", count, axes=(1,)))
    shape = e.emit("stack", e.size(batch), e.cast(longest, i64), axis=0)
    return e.emit("stack", first, places, axis=1), e.emit("gather_nd", labels, found), shape


def _dense(
    e: Emitter, places: Value, shape: Value, values: Value, default: Value, validate_indices: bool = True
) -> Value:
    """A tensor of `default` with values[n] at places[n, axes]; one axis may be written as places[n]."""
    extents = e.sizes(shape, "the shape")
    index = e.unsqueeze(places, (places.tensor.rank,)) if places.tensor.rank < 2 else places
    index = e.cast(index, dtypes.i64)
    filled = e.expand(default, extents)
    if places.tensor.rank == 0:
        index, values = e.unsqueeze(index, (0,)), e.expand(values, (1,))
    spread = values if values.tensor.rank else e.expand(values, (index.tensor.shape[0],))
    return e.emit("scatter_nd", filled, index, spread, reduce=None)
