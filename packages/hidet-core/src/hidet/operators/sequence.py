"""Sequences and optional values: lists of arrays, and values that may be absent. They live on the host.

A sequence's element type says element type and rank; an extent that is a symbol says nothing, because elements may
differ in it. What is taken out of a sequence therefore has extents of its own, listed in `defines`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hidet import dtypes
from hidet.errors import DTypeError, PositionError, ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import OptionalType, SequenceType, TensorType, ValueType

Call = Callable[..., Any]


def _own(value: Any) -> Any:
    """A copy: what is put into a sequence must not change with the memory that it came from."""
    return value.copy() if hasattr(value, "copy") and not isinstance(value, list) else value


def _construct(*values: Any, attrs: Attrs) -> list[Any]:
    return [_own(value) for value in values]


def _insert(sequence: list[Any], value: Any, position: Any = None, *, attrs: Attrs) -> list[Any]:
    place = len(sequence) if position is None else _position("sequence_insert", position, len(sequence) + 1, sequence)
    return [*sequence[:place], _own(value), *sequence[place:]]


def _erase(sequence: list[Any], position: Any = None, *, attrs: Attrs) -> list[Any]:
    place = _position("sequence_erase", -1 if position is None else position, len(sequence), sequence)
    return [*sequence[:place], *sequence[place + 1 :]]


def _at(sequence: list[Any], position: Any, *, attrs: Attrs) -> Any:
    return sequence[_position("sequence_at", position, len(sequence), sequence)]


def _position(name: str, position: Any, places: int, sequence: list[Any]) -> int:
    """A place, counted from the start; negative ones count from the end of the sequence."""
    given = int(position.reshape(-1)[0]) if hasattr(position, "reshape") else position
    place = given + len(sequence) if given < 0 else given
    if not 0 <= place < places:
        raise PositionError(f"operator {name} has position {given} in a sequence of {len(sequence)} elements")
    return place


def _length(sequence: list[Any], *, attrs: Attrs) -> Any:
    import numpy

    return numpy.array(len(sequence), numpy.int64)


def _split(x: Any, sizes: Any = None, *, attrs: Attrs) -> list[Any]:
    import numpy

    axis = attrs["axis"]
    extent = x.shape[axis]
    if sizes is None:
        sizes, is_kept = [1] * extent, attrs["keepdims"]
    else:
        is_kept = True
        if numpy.ndim(sizes) == 0:
            count = int(sizes)
            if count < 1:
                raise ShapeError(f"operator split_to_sequence cuts into parts of {count}, expected at least 1")
            sizes = [min(count, extent - start) for start in range(0, extent, count)]
    parts = [int(size) for size in sizes]
    if sum(parts) != extent or min(parts, default=0) < 0:
        raise ShapeError(f"operator split_to_sequence: parts {parts} of an axis of extent {extent}")
    cuts = numpy.cumsum([0, *parts])
    pieces = [x.take(range(cuts[n], cuts[n + 1]), axis) for n in range(len(parts))]
    return pieces if is_kept else [piece.squeeze(axis) for piece in pieces]


def _concat(sequence: list[Any], *, attrs: Attrs) -> Any:
    import numpy

    if not sequence:
        raise ShapeError("operator concat_from_sequence joins an empty sequence, whose shape nobody knows")
    try:
        join = numpy.stack if attrs["new_axis"] else numpy.concatenate
        return join(sequence, attrs["axis"])
    except ValueError as error:
        shapes = ", ".join(str(list(item.shape)) for item in sequence)
        raise ShapeError(f"operator concat_from_sequence cannot join shapes {shapes}: {error}") from error


def _optional(value: Any = None, *, attrs: Attrs) -> Any:
    return _own(value)


def _has_element(value: Any = None, *, attrs: Attrs) -> Any:
    import numpy

    return numpy.array(value is not None)


def _get_element(value: Any, *, attrs: Attrs) -> Any:
    if value is None:
        raise ShapeError("operator optional_get_element: the optional value is absent")
    return value


def _given_type(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    return [attrs["type"]]


def _same_sequence(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    if not isinstance(types[0], SequenceType):
        raise DTypeError(f"a sequence is expected, got {types[0]}")
    return [attrs["type"] or types[0]]


def _number(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    if not isinstance(types[0], SequenceType):
        raise DTypeError(f"a sequence is expected, got {types[0]}")
    return [TensorType(dtypes.i64, ())]


def _flag(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    return [TensorType(dtypes.boolean, ())]


def _wrapped(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    if not isinstance(attrs["type"], OptionalType):
        raise DTypeError(f"operator optional has the type of an optional value, got {attrs['type']}")
    return [attrs["type"]]


def _spec(name: str, inputs: str, call: Call, infer: Any, doc: str, *attributes: Attribute) -> OperatorSpec:
    return OperatorSpec(
        name=name,
        inputs=tuple(inputs.split()),
        attributes=attributes,
        kind="host",
        infer=infer,
        call=call,
        evaluate=lambda values, attrs: [call(*values, attrs=attrs)],
        doc=doc,
    )


_TYPE = Attribute("type", doc="type of the result")
_SAME = Attribute("type", None, "type of the result; None is that of the input")
_DEFINES = Attribute("defines", (), "extents of the result that the sequence alone knows")

SPECS: tuple[OperatorSpec, ...] = (
    _spec(
        "sequence_construct",
        "values*",
        _construct,
        _given_type,
        "The sequence of these values, as they are ordered.",
        _TYPE,
    ),
    _spec(
        "sequence_insert",
        "sequence value position?",
        _insert,
        _same_sequence,
        "The sequence with a value at a position, at its end without one. ONNX SequenceInsert.",
        _SAME,
    ),
    _spec(
        "sequence_erase",
        "sequence position?",
        _erase,
        _same_sequence,
        "The sequence without the value at a position, the last one without it. ONNX SequenceErase.",
        _SAME,
    ),
    _spec(
        "sequence_at",
        "sequence position",
        _at,
        _given_type,
        "The value at a position of the sequence, a copy.",
        _TYPE,
        _DEFINES,
    ),
    _spec("sequence_length", "sequence", _length, _number, "How many values the sequence has, as an i64 of rank 0."),
    _spec(
        "split_to_sequence",
        "x sizes?",
        _split,
        _given_type,
        "Parts of x along an axis: of these sizes, of one size but for the last, or of extent 1. ONNX SplitToSequence.",
        Attribute("axis", 0),
        Attribute("keepdims", True, "False drops the axis of parts of extent 1 that no sizes ask for"),
        _TYPE,
    ),
    _spec(
        "concat_from_sequence",
        "sequence",
        _concat,
        _given_type,
        "The values of a sequence joined along an axis, or along a new one. ONNX ConcatFromSequence.",
        Attribute("axis"),
        Attribute("new_axis", False),
        _TYPE,
        _DEFINES,
    ),
    _spec(
        "optional",
        "value?",
        _optional,
        _wrapped,
        "An optional value, made from a value or from nothing.",
        _TYPE,
    ),
    _spec(
        "optional_has_element",
        "value?",
        _has_element,
        _flag,
        "Whether the optional value is there: bool[].",
    ),
    _spec(
        "optional_get_element",
        "value",
        _get_element,
        _given_type,
        "What an optional value holds; ShapeError where it is absent. ONNX OptionalGetElement.",
        _TYPE,
        _DEFINES,
    ),
)
