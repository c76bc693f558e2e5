"""Lists of tensors (TensorList), as arrays of TensorFlow loops have them: one tensor with an axis more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.frontend.loops import NotRows
from hidet.graph import Value
from hidet.tensorflow.items import Item, Rows, TensorList


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "EmptyTensorList": lambda e, shape, most, element_dtype, **_: TensorList(
            element_dtype, 0, shape=_declared(e, shape)
        ),
        "TensorListConcat": _concat,
        "TensorListConcatV2": _concat,
        "TensorListElementShape": _element_shape,
        "TensorListFromTensor": lambda e, x, shape, **_: TensorList(
            x.tensor.dtype, x.tensor.shape[0], x, x.tensor.shape[1:]
        ),
        "TensorListGather": lambda e, held, index, shape, element_dtype: e.emit(
            "index_select", _all(e, held), index, axis=0, wraps=False
        ),
        "TensorListGetItem": _get,
        "TensorListLength": lambda e, held: e.size(_length(e, held), dtypes.i32),
        "TensorListPopBack": _pop,
        "TensorListPushBack": _push,
        "TensorListReserve": lambda e, shape, count, element_dtype, **_: TensorList(
            element_dtype, e.one_size(count, "the number of elements"), shape=_declared(e, shape)
        ),
        "TensorListResize": _resize,
        "TensorListScatterIntoExistingList": _scatter,
        "TensorListSetItem": _set,
        "TensorListSplit": _split,
        "TensorListStack": _stack,
    }


def _declared(e: Emitter, shape: Value) -> tuple[Dim | None, ...] | None:
    """The shape of elements: None for what is open, as a whole where it is one number, -1."""
    if shape.tensor.rank == 0:
        return None
    return tuple(None if extent == -1 else extent for extent in e.dims(shape, "the shape of elements"))


def _known(shape: tuple[Dim | None, ...] | None) -> tuple[Dim, ...] | None:
    found = () if shape is None else tuple(extent for extent in shape if extent is not None)
    return found if shape is not None and len(found) == len(shape) else None


def _held(e: Emitter, item: Item) -> TensorList:
    if isinstance(item, Rows):
        raise NotRows
    if not isinstance(item, TensorList):
        raise UnsupportedOp(f"{e.operator} of what is no list of tensors")
    return item


def _length(e: Emitter, item: Item) -> Dim:
    return _held(e, item).length


def _all(e: Emitter, item: Item, shape: tuple[Dim | None, ...] | None = None) -> Value:
    """All elements as one tensor. shape: of elements, where nothing was put in. Elements that nobody has set are 0."""
    held = _held(e, item)
    if held.values is not None:
        return held.values
    extents = _known(held.shape) or _known(shape)
    if extents is None:
        raise UnsupportedOp(f"{e.operator} of a list of elements whose shape nothing tells")
    return zeros(e, held, extents)


def zeros(e: Emitter, held: TensorList, extents: tuple[Dim, ...]) -> Value:
    """The elements of a list that nobody has set, of this shape."""
    value = False if held.dtype.is_bool else 0
    return e.emit("full", shape=(held.length, *extents), value=value, dtype=held.dtype)


def _get(e: Emitter, item: Item, index: Value, shape: Value, element_dtype: DType) -> Value:
    return e.emit("index_select", _all(e, item, _declared(e, shape)), index, axis=0, wraps=False)


def _set(
    e: Emitter, item: Item, index: Value, value: Value, resize_if_index_out_of_bounds: bool = False, **_: Any
) -> Item:
    """A list that may grow does where the index is the next one."""
    if isinstance(item, Rows):
        if index not in item.places or item.row is not None or item.grows > resize_if_index_out_of_bounds:
            raise NotRows
        return replace(item, row=value)
    held = _held(e, item)
    shape = value.tensor.shape
    if resize_if_index_out_of_bounds:
        place = e.one_dim(index, "the index of a list that may grow")
        if dims.prove_equal(place, held.length) is True:
            return _push(e, item, value)
        if dims.prove_lt(place, held.length) is not True:
            raise UnsupportedOp(f"{e.operator} at {place} of a list of {held.length} elements that may grow")
    if held.length == 1:
        # What the list had is gone, wherever it was.
        return replace(held, values=e.unsqueeze(value, (0,)), shape=shape)
    values = _all(e, item) if held.values is not None else zeros(e, held, shape)
    return replace(held, values=e.emit("index_put", values, value, index), shape=shape)


def _push(e: Emitter, item: Item, value: Value) -> TensorList:
    held = _held(e, item)
    row = e.unsqueeze(value, (0,))
    values = row if held.length == 0 else e.emit("concat", _all(e, item, value.tensor.shape), row, axis=0)
    return TensorList(held.dtype, held.length + 1, values, value.tensor.shape)


def _resize(e: Emitter, item: Item, size: Value) -> TensorList:
    """Elements are left out at the end, or added there."""
    held = _held(e, item)
    wanted = e.one_size(size, "the number of elements")
    if held.values is None or dims.prove_equal(held.length, wanted) is True:
        return replace(held, length=wanted)
    if not isinstance(held.length, int) or not isinstance(wanted, int):
        raise UnsupportedOp(f"{e.operator} from {held.length} to {wanted} elements: expected known numbers")
    rest = ((0, 0),) * (held.values.tensor.rank - 1)
    if wanted > held.length:
        values = e.emit("pad", held.values, pads=((0, wanted - held.length), *rest), mode="constant", value=0)
    else:
        stops = (wanted, *(None for _ in rest))
        values = e.emit("slice", held.values, starts=(0,) * held.values.tensor.rank, stops=stops)
    return replace(held, length=wanted, values=values)


def _stack(e: Emitter, item: Item, shape: Value, element_dtype: DType, num_elements: int = -1) -> Value:
    values = _all(e, item, _declared(e, shape))
    if num_elements >= 0 and dims.prove_equal(values.tensor.shape[0], num_elements) is False:
        raise ImportFailed(f"{e.operator}: the list has {values.tensor.shape[0]} elements, expected {num_elements}")
    return values


def _pop(e: Emitter, item: Item, shape: Value, **_: Any) -> tuple[TensorList, Value]:
    """The list without its last element, and that element."""
    held = _held(e, item)
    values = _all(e, item, _declared(e, shape))
    if dims.prove_lt(0, held.length) is not True:
        raise UnsupportedOp(f"{e.operator} of a list of {held.length} elements: expected at least one")
    stops = (held.length - 1, *(None for _ in values.tensor.shape[1:]))
    rest = e.emit("slice", values, starts=(0,) * values.tensor.rank, stops=stops)
    shorter = TensorList(held.dtype, held.length - 1, rest, values.tensor.shape[1:])
    return shorter, e.emit("select", values, axis=0, index=-1)


def _scatter(e: Emitter, item: Item, rows: Value, index: Value) -> TensorList:
    """The list with rows[n] as its elements index[n], which it has."""
    held = _held(e, item)
    shape = rows.tensor.shape[1:]
    values = zeros(e, held, shape) if held.values is None else held.values
    return replace(held, values=e.emit("index_put", values, rows, index), shape=shape)


def _split(e: Emitter, x: Value, shape: Value, lengths: Value) -> TensorList:
    """Parts of x along its first axis, all of one length."""
    parts = e.dims(lengths, "the lengths")
    if len(set(parts)) != 1:
        raise UnsupportedOp(f"{e.operator} into {list(map(str, parts))} rows: expected parts of one length")
    extents = (parts[0], *x.tensor.shape[1:])
    return TensorList(x.tensor.dtype, len(parts), e.reshape(x, (len(parts), *extents)), extents)


def _concat(e: Emitter, item: Item, *_: Value, **__: Any) -> tuple[Value, Value]:
    """All elements one after the other, and the extents of their first axes."""
    values = _all(e, item)
    count, first, *rest = values.tensor.shape
    size = e.expand(e.size(first), (count,))
    return e.reshape(values, (dims.product([count, first]), *rest)), size


def _element_shape(e: Emitter, item: Item, shape_type: DType = dtypes.i32) -> Value:
    held = _held(e, item)
    if held.shape is None:
        return e.constant(-1, shape_type)
    return e.size_vector([-1 if extent is None else extent for extent in held.shape], shape_type)
