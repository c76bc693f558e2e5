"""Finding the product in a task: which tensors are its matrices, and which axes its rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.schedules.finish import finished_value, single_axis
from hidet.gpu.schedules.product import (
    FLOATS_OF_8_BITS,
    BlockScales,
    MatrixOperand,
    PatchOperand,
    Product,
    WindowAxis,
)
from hidet.gpu.schedules.strides import row_axes, single_stride
from hidet.graph.graph import Node, Value
from hidet.graph.types import TensorType, same_shape
from hidet.ir.expr import Var
from hidet.operators.windows import per_axis, side_pairs
from hidet.schedule.task import Task, TaskTensor

CONVOLUTIONS = ("conv", "conv_padded_channels")
"""Operators whose left or right matrix is what filters see of images."""
_MOST_BATCH_AXES = 3
"""Along which matrices lie irregularly: a tensor map has five axes."""


def find_product(task: Task, factors: DType | None, total: DType, computed: TaskTensor | None = None) -> Product | None:
    """The product of a task's anchor, summed in type `total`; None where operands or result are not regular.

    factors: the type in which matrix units multiply its elements, None without them. computed: stands for the right
    operand, as a matrix in memory, where a prologue computes it.
    """
    assert task.anchor is not None
    left, right = task.anchor_inputs[0], computed or task.anchor_inputs[1]
    if left is None or right is None or left.type.dtype != right.type.dtype:
        return None
    shape = task.anchor.outputs[0].tensor.shape
    for found in _OPERANDS[task.op_name](task, left, right, shape):
        product = _with_result(task, found, shape, factors, total)
        if product is not None:
            return product
    return None


def rows_of(node: Node) -> Value | None:
    """What a node multiplies with one matrix, row by row; None for other nodes."""
    if node.op.name != "linear" and (node.op.name != "matmul" or node.attrs["trans_a"]):
        return None
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    return x if w.tensor.rank == 2 else None


@dataclass(frozen=True, slots=True, eq=False)
class _Operands:
    """Operands, None where they are no matrix, and the axes of the result that are rows, matrices and columns.

    The operands' batch has an axis for each of the result's that counts matrices. groups: products whose columns follow
    each other along the result's columns; there are no other matrices then. twin: a matrix like b, with the operand of
    the anchor's definition that it is.
    """

    a: MatrixOperand | PatchOperand | None
    b: MatrixOperand | PatchOperand | None
    k: Dim
    rows: Sequence[int]
    batch: Sequence[int]
    columns: Sequence[int]
    groups: int = 1
    scales: BlockScales | None = None
    twin: tuple[MatrixOperand, Operand] | None = None


def _with_result(
    task: Task, found: _Operands, shape: Sequence[Dim], factors: DType | None, total_type: DType
) -> Product | None:
    a, b = found.a, found.b
    if a is None or b is None:
        return None
    epilogue, total = task.epilogues[0], Var("total", total_type)
    twin, of_twin = found.twin or (None, None)
    twin_total = None if twin is None else Var("total_twin", total_type)
    others = {} if of_twin is None or twin_total is None else {of_twin: twin_total}
    value = finished_value(task, epilogue, total, others)
    if value is None or len(epilogue.axes) != len(shape):
        return None
    type_ = task.outputs[0].type

    def walked(positions: Sequence[int]) -> tuple[Var, Dim] | None:
        """One axis of the result for several, and its stride."""
        axis = single_axis(task, epilogue, value, positions)
        stride = single_stride([type_.shape[n] for n in positions], [type_.element_strides[n] for n in positions])
        return None if axis is None or stride is None else (axis, stride)

    rows, columns = walked(found.rows) if found.rows else None, walked(found.columns)
    if rows is None or columns is None or columns[1] not in (0, 1):
        return None
    m, n = (dims.product([shape[axis] for axis in part]) for part in (found.rows, found.columns))
    batches: tuple[Dim, ...] = (found.groups,)
    if found.groups > 1:
        n = dims.floordiv(n, found.groups)
        batch = [(columns[0], n)]
    else:
        extents = [shape[axis] for axis in found.batch]
        parts = _parts(extents, lambda part: walked([found.batch[at] for at in part]), (a, b))
        places = [walked([found.batch[at] for at in part]) for part in parts]
        if len(parts) > _MOST_BATCH_AXES or None in places:
            return None
        batches = tuple([dims.product([extents[at] for at in part]) for part in parts])
        batch = [place for place in places if place is not None]
        a, b = (_with_batch(operand, extents, parts) for operand in (a, b))
    return Product(
        a,
        b,
        batches,
        m,
        n,
        found.k,
        factors,
        total,
        value,
        epilogue.axes,
        tuple(axis for axis, _ in batch),
        rows[0],
        columns[0],
        rows[1],
        tuple(stride for _, stride in batch),
        type_,
        is_promoted=factors in FLOATS_OF_8_BITS and not _is_fast(task),
        scales=found.scales,
        twin=twin and replace(twin, batch_strides=b.batch_strides),
        twin_total=twin_total,
    )


def _is_fast(task: Task) -> bool:
    """Whether sums may keep fewer digits than f32 has."""
    return task.anchor is not None and bool(task.anchor.attrs.get("fast_accum", False))


def _parts(
    extents: Sequence[Dim], walked: Callable[[Sequence[int]], object], operands: Sequence[MatrixOperand | PatchOperand]
) -> list[list[int]]:
    """Axes of a batch, those together that the result and the operands walk as one."""
    parts: list[list[int]] = []
    for axis, extent in enumerate(extents):
        if extent == 1:
            continue
        together = [*parts[-1], axis] if parts else []
        if together and None not in (walked(together), *(_stride(extents, o, together) for o in operands)):
            parts[-1] = together
        else:
            parts.append([axis])
    return parts


def _with_batch(
    operand: MatrixOperand | PatchOperand, extents: Sequence[Dim], parts: Sequence[Sequence[int]]
) -> MatrixOperand | PatchOperand:
    """The operand with parts of its batch, each walked as one, as axes."""
    strides = (_stride(extents, operand, part) for part in parts)
    return replace(operand, batch_strides=tuple([stride for stride in strides if stride is not None]))


def _stride(extents: Sequence[Dim], operand: MatrixOperand | PatchOperand, part: Sequence[int]) -> Dim | None:
    """Between matrices of an operand along axes of a batch; None where they are not walked as one."""
    return single_stride([extents[at] for at in part], [operand.batch_strides[at] for at in part])


def _linear(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> Iterator[_Operands]:
    w = right.type
    b = _operand(right, (w.shape[0], w.element_strides[0]), (w.shape[1], w.element_strides[1]), True, ())
    yield from _of_one_matrix(left, b, w.shape[1])


def _stacked_linear(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> Iterator[_Operands]:
    """Where weights below each other lie alike."""
    others = [tensor for tensor in task.anchor_inputs[3:] if tensor is not None]
    if len(others) < len(task.anchor_inputs) - 3 or any(
        other.type.element_strides != right.type.element_strides for other in others
    ):
        return
    rows = sum((other.type.shape[0] for other in others), start=right.type.shape[0])
    for found in _linear(task, left, right, shape):
        assert not isinstance(found.b, PatchOperand)
        yield found if found.b is None else replace(found, b=replace(found.b, rows=rows, below=tuple(others)))


def _gated_linear(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> Iterator[_Operands]:
    """Where both weights lie alike."""
    up = task.anchor_inputs[2]
    if up is None or up.type.element_strides != right.type.element_strides:
        return
    for found in _linear(task, left, right, shape):
        if isinstance(found.b, MatrixOperand):
            yield replace(found, twin=(replace(found.b, tensor=up), task.definition.inputs[2]))


def _matmul(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> Iterator[_Operands]:
    assert task.anchor is not None
    attrs, lead = task.anchor.attrs, len(shape) - 2
    a_batch, b_batch = (_batch_strides(tensor.type, lead) for tensor in (left, right))
    a, b = _matrix(left, bool(attrs["trans_a"]), a_batch), _matrix(right, bool(attrs["trans_b"]), b_batch)
    k = left.type.shape[-2 if attrs["trans_a"] else -1]
    if all(stride == 0 for stride in b_batch) and not attrs["trans_a"] and same_shape(left.type.shape[:-1], shape[:-1]):
        yield from _of_one_matrix(left, b, k)
    yield _Operands(a, b, k, (lead,), range(lead), (lead + 1,))


def _block_scaled_matmul(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> Iterator[_Operands]:
    assert task.anchor is not None
    attrs, scales = task.anchor.attrs, task.anchor_inputs[2:4]
    if scales[0] is None or scales[1] is None:
        return
    of_blocks = BlockScales(scales[0], scales[1], attrs["rows"], attrs["columns"], attrs["size"])
    a, b = _matrix(left, False, ()), _matrix(right, bool(attrs["trans_b"]), ())
    yield _Operands(a, b, left.type.shape[-1], (0,), (), (1,), scales=of_blocks)


def _of_one_matrix(left: TaskTensor, b: MatrixOperand | None, k: Dim) -> Iterator[_Operands]:
    """Products with the same right matrix: all leading axes are rows, in the order in which they lie in memory; or,
    where they do not follow each other regularly, as many as possible in each of several matrices."""
    x, last = left.type, left.type.rank - 1
    columns = (x.shape[-1], x.element_strides[-1])
    for rows, batch in row_axes(x.shape[:last], x.element_strides[:last]):
        a = _operand(left, _walked(x, rows), columns, False, [x.element_strides[axis] for axis in batch])
        same = None if b is None else replace(b, batch_strides=(0,) * len(batch))
        yield _Operands(a, same, k, rows, batch, (last,))


def _conv(task: Task, left: TaskTensor, right: TaskTensor, shape: Sequence[Dim]) -> Iterator[_Operands]:
    """Pixels are rows and filters columns: of all images, or a product an image where the epilogue operands are the
    same for all of them; or the other way round, for channels-first results."""
    assert task.anchor is not None
    attrs, x, w = task.anchor.attrs, left.type, right.type
    space = range(2, len(shape))
    groups: int = attrs.get("groups", 1)
    filters, channels, *taps = w.shape
    if groups > 1 and not (isinstance(channels, int) and channels * w.dtype.nbytes % 16 == 0):
        # Narrow groups leave most of a tile empty: these are no products.
        return
    if x.element_strides[1] != 1 and x.shape[1] != 1:
        return
    k = dims.product([channels, *taps])
    columns = _walked(w, (*space, 1))
    if columns is None or columns[1] not in (0, 1):
        return
    stored = x.shape[1] if task.op_name == "conv_padded_channels" else None
    filter_rows = (filters if groups == 1 else dims.floordiv(filters, groups), w.element_strides[0])

    def image(images: Dim, is_transposed: bool, *batch_strides: Dim) -> MatrixOperand | PatchOperand:
        axes = window_axes(attrs, x, taps, shape)
        walked = _walked(x, (0, *space) if images != 1 else space)
        if all(_is_plain(axis) for axis in axes) and walked is not None and stored is None:
            rows = images * dims.product([axis.results for axis in axes])
            return MatrixOperand(left, rows, channels, walked[1], is_transposed, batch_strides)
        return PatchOperand(left, images, x.element_strides[0], axes, channels, is_transposed, batch_strides, stored)

    def matrix(is_transposed: bool, *batch_strides: Dim) -> MatrixOperand:
        return MatrixOperand(right, filter_rows[0], k, filter_rows[1], is_transposed, batch_strides)

    if groups > 1:
        a, b = image(x.shape[0], False, channels), matrix(True, filter_rows[0] * filter_rows[1])
        yield _Operands(a, b, k, (0, *space), (), (1,), groups)
        return
    yield _Operands(image(x.shape[0], False), matrix(True), k, (0, *space), (), (1,))
    between = x.element_strides[0]
    yield _Operands(image(1, False, between), matrix(True, 0), k, space, (0,), (1,))
    yield _Operands(matrix(False, 0), image(1, True, between), k, (1,), (0,), space)


def window_axes(
    attrs: Mapping[str, object], x: TensorType, taps: Sequence[Dim], shape: Sequence[Dim]
) -> tuple[WindowAxis, ...]:
    """The axes of space of a convolution."""
    count = len(taps)
    given: Mapping[str, object] = attrs
    steps = per_axis("conv", "stride", given["stride"], count, 1)  # type: ignore[arg-type]  # checked by the operator
    spreads = per_axis("conv", "dilation", given["dilation"], count, 1)  # type: ignore[arg-type]
    pads = side_pairs("conv", given["padding"], count)  # type: ignore[arg-type]
    return tuple(
        WindowAxis(x.shape[2 + n], x.element_strides[2 + n], taps[n], shape[2 + n], steps[n], spreads[n], *pads[n])
        for n in range(count)
    )


def _is_plain(axis: WindowAxis) -> bool:
    """Whether places of the filter are those of the image."""
    same = dims.prove_equal(axis.extent, axis.results) is True
    return same and (axis.taps, axis.step, axis.before) == (1, 1, 0)


_OPERANDS: Mapping[str, Callable[[Task, TaskTensor, TaskTensor, Sequence[Dim]], Iterator[_Operands]]] = {
    "linear": _linear,
    "stacked_linear": _stacked_linear,
    "gated_linear": _gated_linear,
    "matmul": _matmul,
    "conv": _conv,
    "conv_padded_channels": _conv,
    "block_scaled_matmul": _block_scaled_matmul,
}

Axis = tuple[Dim, Dim]
"""Extent and stride."""


def _walked(type_: TensorType, axes: Sequence[int]) -> Axis | None:
    """Several axes as one."""
    shape, strides = [type_.shape[n] for n in axes], [type_.element_strides[n] for n in axes]
    stride = single_stride(shape, strides)
    return None if stride is None else (dims.product(shape), stride)


def _batch_strides(type_: TensorType, count: int) -> tuple[Dim, ...]:
    """Between matrices of an operand, along each axis of the result's batch."""
    own = zip(type_.shape[:-2], type_.element_strides[:-2], strict=True)
    strides = [0 if extent == 1 else stride for extent, stride in own]
    return (*[0] * (count - len(strides)), *strides)


def _matrix(tensor: TaskTensor, is_transposed: bool, batch_strides: Sequence[Dim]) -> MatrixOperand | None:
    """The last two axes; `is_transposed` says that they stand the other way round than in a product."""
    type_ = tensor.type
    axes = list(zip(type_.shape, type_.element_strides, strict=True))
    first, second = axes[-2], axes[-1]
    if second[1] == 1 or second[0] == 1:
        return _operand(tensor, first, (second[0], 1), is_transposed, batch_strides)
    # Neighbours along the other axis: the same matrix, seen transposed.
    return _operand(tensor, second, first, not is_transposed, batch_strides)


def _operand(
    tensor: TaskTensor, rows: Axis | None, columns: Axis, is_transposed: bool, batch_strides: Sequence[Dim]
) -> MatrixOperand | None:
    if rows is None or (columns[1] != 1 and columns[0] != 1):
        return None
    return MatrixOperand(tensor, rows[0], columns[0], rows[1], is_transposed, tuple(batch_strides))
