"""Sequences and optional values: host operators of core, on types that are found out while importing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from hidet import dtypes
from hidet.dims import Dim, prove_equal
from hidet.errors import DTypeError, ImportFailed, UnsupportedOp, ValueNeeded
from hidet.frontend import Emitter, Handler, SizeNames
from hidet.graph import TensorType, Value
from hidet.graph.types import OptionalType, SequenceType, ValueType
from hidet.onnx.mapping import Key
from hidet.onnx.scope import Item
from hidet.onnx.value_types import EmptySequence, dtype_of, value_type


def handlers() -> Mapping[Key, Handler]:
    """The rows of this family."""
    return {
        ("SequenceEmpty", 11): lambda e, dtype=1: EmptySequence(dtype_of(dtype)),
        ("SequenceConstruct", 11): lambda e, *values: _construct(e, values),
        ("SequenceInsert", 11): _insert,
        ("SequenceErase", 11): _erase,
        ("SequenceAt", 11): _at,
        ("SequenceLength", 11): _length,
        ("SplitToSequence", 11): _split,
        ("ConcatFromSequence", 11): _concat,
        ("Optional", 15): _optional,
        ("OptionalHasElement", 15): _has_element,
        ("OptionalGetElement", 15): _get_element,
    }


def empty_sequence(e: Emitter, type_: ValueType) -> Value:
    """A sequence of that type without values."""
    return e.emit("sequence_construct", type=type_)


def joined_type(e: Emitter, a: ValueType, b: ValueType) -> ValueType:
    """What describes values of both types: extents that differ become unknown. DTypeError, ValueNeeded otherwise."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype != b.dtype:
            raise DTypeError(f"a sequence of {a} takes no {b}")
        if a.rank != b.rank:
            # What a model declares of an empty sequence may be wrong.
            raise ValueNeeded(f"a sequence of {a} takes no {b}: values of different ranks are not imported", ())
        pairs = zip(a.shape, b.shape, strict=True)
        return TensorType(a.dtype, tuple(_common(e, m, n) for m, n in pairs))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(joined_type(e, a.element, b.element))
    if isinstance(a, OptionalType) and isinstance(b, OptionalType):
        return OptionalType(joined_type(e, a.element, b.element))
    raise DTypeError(f"values of types {a} and {b} have no type in common")


def _common(e: Emitter, m: Dim, n: Dim) -> Dim:
    return m if prove_equal(m, n) is True else e.builder.fresh_size()


def _construct(e: Emitter, values: Sequence[Item]) -> Value:
    tensors = [_tensor(e, value) for value in values]
    type_: ValueType = _element(tensors[0])
    for value in tensors[1:]:
        type_ = joined_type(e, type_, _element(value))
    return e.emit("sequence_construct", *tensors, type=SequenceType(type_))


def _tensor(e: Emitter, item: Item) -> Value:
    if not isinstance(item, Value) or not isinstance(item.type, TensorType):
        raise UnsupportedOp(f"{e.operator} of values that are no tensors is not imported")
    return item


def _element(value: Value) -> TensorType:
    return TensorType(value.tensor.dtype, value.tensor.shape)


def _insert(e: Emitter, sequence: Item, value: Item, position: Value | None = None) -> Value:
    tensor = _tensor(e, value)
    if isinstance(sequence, EmptySequence):
        if sequence.dtype != tensor.tensor.dtype:
            raise DTypeError(f"a sequence of {sequence.dtype} takes no {tensor.type}")
        if position is None:
            return _construct(e, [value])
        sequence = empty_sequence(e, SequenceType(_element(tensor)))
    type_ = joined_type(e, _held(e, sequence), _element(tensor))
    return e.emit("sequence_insert", sequence, tensor, position, type=SequenceType(type_))


def _held(e: Emitter, sequence: Item) -> TensorType:
    """The type of a sequence's values."""
    if isinstance(sequence, EmptySequence):
        raise ImportFailed(f"{e.operator} takes a value out of a sequence that is always empty")
    if not isinstance(sequence, Value) or not isinstance(sequence.type, SequenceType):
        raise ImportFailed(f"{e.operator} takes a sequence, got {getattr(sequence, 'type', sequence)}")
    if not isinstance(sequence.type.element, TensorType):
        raise UnsupportedOp(f"{e.operator} of a {sequence.type} is not imported")
    return sequence.type.element


def _erase(e: Emitter, sequence: Item, position: Value | None = None) -> Value:
    _held(e, sequence)
    return e.emit("sequence_erase", sequence, position)


def _at(e: Emitter, sequence: Item, position: Value) -> Value:
    return _taken_out(e, "sequence_at", (sequence, position), _held(e, sequence), {})


def _taken_out(e: Emitter, op: str, inputs: Sequence[Value], held: TensorType, attrs: Mapping[str, Any]) -> Value:
    """A tensor of a type whose open extents it alone knows."""
    defines: list[Dim] = []
    shape: list[Dim] = []
    for extent in held.shape:
        if not isinstance(extent, int):
            extent = e.builder.fresh_size()
            defines.append(extent)
        shape.append(extent)
    return e.emit(op, *inputs, type=TensorType(held.dtype, tuple(shape)), defines=defines, **attrs)


def _length(e: Emitter, sequence: Item) -> Value:
    if isinstance(sequence, EmptySequence):
        return e.constant(0, dtypes.i64)
    _held(e, sequence)
    return e.emit("sequence_length", sequence)


def _split(e: Emitter, x: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1) -> Value:
    rank = x.tensor.rank
    if not -rank <= axis < rank:
        raise ImportFailed(f"SplitToSequence: {x.type} has no axis {axis}")
    cut = axis % rank
    before, after = x.tensor.shape[:cut], x.tensor.shape[cut + 1 :]
    if split is None:
        shape = (*before, *((1,) if keepdims else ()), *after)
    else:
        shape = (*before, _part(e, x.tensor.shape[cut], split), *after)
    type_ = SequenceType(TensorType(x.tensor.dtype, shape))
    return e.emit("split_to_sequence", x, split, axis=cut, keepdims=bool(keepdims), type=type_)


def _part(e: Emitter, extent: Dim, split: Value) -> Dim:
    """The extent of all parts, or an unknown one."""
    known = e.contents(split)
    parts = None if known is None else {int(part) for part in known.reshape(-1)}
    if parts is None or len(parts) != 1:
        return e.builder.fresh_size()
    (part,) = parts
    is_even = split.tensor.rank == 1 or (isinstance(extent, int) and part > 0 and extent % part == 0)
    return part if is_even else e.builder.fresh_size()


def _concat(e: Emitter, sequence: Item, *, axis: int, new_axis: int = 0) -> Value:
    held = _held(e, sequence)
    rank = held.rank + (1 if new_axis else 0)
    if not -rank <= axis < rank:
        raise ImportFailed(f"ConcatFromSequence: values of {held} are joined along no axis {axis}")
    cut = axis % rank
    shape = list(held.shape)
    if new_axis:
        shape.insert(cut, e.builder.fresh_size())
    else:
        shape[cut] = e.builder.fresh_size()
    whole = TensorType(held.dtype, tuple(shape))
    return _taken_out(e, "concat_from_sequence", (sequence,), whole, {"axis": cut, "new_axis": bool(new_axis)})


# --- optional values -------------------------------------------------------------------------------------------------


def _optional(e: Emitter, value: Item = None, *, type: Any = None) -> Value:
    if value is None:
        if type is None:
            raise ImportFailed("Optional without a value needs the attribute type")
        return e.emit("optional", None, type=OptionalType(value_type(type, "Optional", SizeNames(), ())))
    if not isinstance(value, Value):
        raise UnsupportedOp("Optional of a sequence that is always empty is not imported")
    inner = _element(value) if isinstance(value.type, TensorType) else value.type
    return e.emit("optional", value, type=OptionalType(inner))


def _has_element(e: Emitter, value: Item = None) -> Value:
    if value is None:
        return e.array(numpy.array(False))
    if isinstance(value, Value) and isinstance(value.type, OptionalType):
        return e.emit("optional_has_element", value)
    return e.array(numpy.array(True))


def _get_element(e: Emitter, value: Item) -> Item:
    if not isinstance(value, Value) or not isinstance(value.type, OptionalType):
        return value
    inner = value.type.element
    if isinstance(inner, TensorType):
        return _taken_out(e, "optional_get_element", (value,), inner, {})
    return e.emit("optional_get_element", value, type=inner)
