"""Operators on strings, which never reach a device: numpy on the host does them.

A tensor of strings is a numpy array of Python objects. Attribute `defines` of an operator whose result's size depends
on data is the symbol that stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from hidet import dtypes
from hidet.errors import DTypeError, LaunchError, ShapeError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType, ValueType
from hidet.operators.rules import broadcast_shapes, shape_text

Call = Callable[..., Any]


def _require_strings(name: str, *types: Any) -> None:
    for type_ in types:
        if not isinstance(type_, TensorType) or type_.dtype != dtypes.string:
            raise DTypeError(f"operator {name} takes tensors of strings, got {type_}")


def _elementwise(name: str, result: Any) -> Callable[[Sequence[Any], Attrs], Sequence[ValueType]]:
    """The type rule of operators on strings that broadcast."""

    def infer(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
        _require_strings(name, *types)
        return (TensorType(result, broadcast_shapes(name, [type_.shape for type_ in types])),)

    return infer


def _objects(values: Any, shape: Sequence[int]) -> Any:
    """Python objects as an array of a shape."""
    import numpy

    made = numpy.empty(len(values), object)
    made[:] = values
    return made.reshape(shape)


def _strings(x: Any) -> Any:
    """The elements of an array as str, in an array of objects; bytes are UTF-8."""
    flat = [item.decode() if isinstance(item, bytes) else str(item) for item in x.reshape(-1)]
    return _objects(flat, x.shape)


def _concat(a: Any, b: Any, *, attrs: Attrs) -> Any:
    import numpy

    left, right = numpy.broadcast_arrays(_strings(a), _strings(b))
    pairs = zip(left.reshape(-1), right.reshape(-1), strict=True)
    return _objects([one + other for one, other in pairs], left.shape)


def _equal(a: Any, b: Any, *, attrs: Attrs) -> Any:
    import numpy

    return numpy.asarray(numpy.equal(_strings(a), _strings(b)), bool)


def _full_match(x: Any, *, attrs: Attrs) -> Any:
    import numpy

    pattern = re.compile(attrs["pattern"])
    found = [pattern.fullmatch(item) is not None for item in _strings(x).reshape(-1)]
    return numpy.asarray(found, bool).reshape(x.shape)


def _infer_full_match(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
    _require_strings("regex_full_match", *types)
    try:
        re.compile(attrs["pattern"])
    except re.error as error:
        raise UnsupportedOp(f"operator regex_full_match: pattern {attrs['pattern']!r}: {error}") from error
    return (TensorType(dtypes.boolean, types[0].shape),)


def _split(x: Any, *, attrs: Attrs) -> Any:
    import numpy

    # Runs of spaces separate where no delimiter is given, as in str.split.
    delimiter, most = attrs["delimiter"] or None, attrs["most"]
    parts = [item.split(delimiter, -1 if most is None else most) for item in _strings(x).reshape(-1)]
    counts = [len(part) for part in parts]
    width = max(counts, default=0)
    padded = [piece for part in parts for piece in (*part, *[""] * (width - len(part)))]
    return _objects(padded, (*x.shape, width)), numpy.asarray(counts, numpy.int64).reshape(x.shape)


def _infer_split(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
    _require_strings("string_split", *types)
    (width,) = attrs["defines"]
    shape = types[0].shape
    return TensorType(dtypes.string, (*shape, width)), TensorType(dtypes.i64, shape)


_CASES: dict[str, Callable[[str], str]] = {"none": lambda text: text, "lower": str.lower, "upper": str.upper}


def _normalize(x: Any, *, attrs: Attrs) -> Any:
    change, is_sensitive = _CASES[attrs["case"]], attrs["is_case_sensitive"]
    # Words that are compared without case are compared in the case of the result.
    compared: Callable[[str], str] = (lambda text: text) if is_sensitive else str.lower
    stops = {compared(word) for word in attrs["stopwords"]}
    kept = [change(item) for item in _strings(x).reshape(-1) if compared(item) not in stops]
    if not kept:
        # An empty result holds one empty string (ONNX operator specification, StringNormalizer).
        kept = [""]
    return _objects(kept, (*x.shape[:-1], len(kept)))


def _infer_normalize(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
    name = "string_normalize"
    _require_strings(name, *types)
    shape = types[0].shape
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        raise ShapeError(f"operator {name} takes strings [n] or [1, n], got {shape_text(shape)}")
    if attrs["case"] not in _CASES:
        raise UnsupportedOp(f"operator {name} has no case {attrs['case']!r}; it has: {', '.join(_CASES)}")
    return (TensorType(dtypes.string, (*shape[:-1], *attrs["defines"])),)


def _lookup(x: Any, *, attrs: Attrs) -> Any:
    import numpy

    # Of equal keys the last counts, as in a dictionary.
    table = dict(zip(attrs["keys"], attrs["values"], strict=True))
    items = _strings(x).reshape(-1) if x.dtype.kind in "OUS" else x.reshape(-1).tolist()
    nan = next((value for key, value in table.items() if key != key), attrs["default"])
    found = [nan if item != item else table.get(item, attrs["default"]) for item in items]
    dtype = attrs["dtype"]
    return _objects(found, x.shape) if dtype == dtypes.string else numpy.asarray(found, dtype.numpy()).reshape(x.shape)


def _infer_lookup(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
    if len(attrs["keys"]) != len(attrs["values"]):
        raise ShapeError(f"operator lookup: {len(attrs['keys'])} keys and {len(attrs['values'])} values")
    return (TensorType(attrs["dtype"], types[0].shape),)


def _to_number(x: Any, *, attrs: Attrs) -> Any:
    import numpy

    dtype = attrs["dtype"]
    made = []
    for item in _strings(x).reshape(-1):
        try:
            made.append(float(item) if not dtype.is_int else _integer(item))
        except ValueError as error:
            raise LaunchError(f"operator string_to_number: {item!r} is no {dtype.name}") from error
    with numpy.errstate(over="ignore"):
        return numpy.asarray(made, None if made else dtype.numpy()).astype(dtype.numpy()).reshape(x.shape)


def _integer(text: str) -> int:
    """An integer, also where it is written as a float without fraction."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def _from_number(x: Any, *, attrs: Attrs) -> Any:
    return _objects([_text(item) for item in x.reshape(-1)], x.shape)


def _text(item: Any) -> str:
    """The shortest decimal that reads back as the number; true and false are 1 and 0."""
    if item.dtype.kind == "b":
        return str(int(item))
    text = str(item)
    return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(text, text)


def _infer_number(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
    _require_strings("string_to_number", *types)
    if attrs["dtype"].is_host_only or attrs["dtype"].is_complex:
        raise DTypeError(f"operator string_to_number makes real numbers, not {attrs['dtype']}")
    return (TensorType(attrs["dtype"], types[0].shape),)


def _infer_text(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
    return (TensorType(dtypes.string, types[0].shape),)


_DEFINES = Attribute("defines", doc="the symbol of the size that depends on data")


def _spec(name: str, inputs: tuple[str, ...], call: Call, infer: Any, doc: str, *attributes: Attribute) -> OperatorSpec:
    return OperatorSpec(name=name, inputs=inputs, attributes=attributes, kind="host", call=call, infer=infer, doc=doc)


SPECS: tuple[OperatorSpec, ...] = (
    _spec(
        "string_concat",
        ("a", "b"),
        _concat,
        _elementwise("string_concat", dtypes.string),
        "Strings of both, one behind the other; numpy broadcasting. ONNX StringConcat.",
    ),
    _spec(
        "string_equal",
        ("a", "b"),
        _equal,
        _elementwise("string_equal", dtypes.boolean),
        "Whether strings are the same; bool, numpy broadcasting. ONNX Equal of strings.",
    ),
    _spec(
        "regex_full_match",
        ("x",),
        _full_match,
        _infer_full_match,
        "Whether the whole string matches a regular expression of Python's re; bool. ONNX RegexFullMatch.",
        Attribute("pattern"),
    ),
    _spec(
        "string_split",
        ("x",),
        _split,
        _infer_split,
        "Pieces of each string x[...] -> [..., most pieces], empty ones behind the last, and their number i64[...]. "
        "ONNX StringSplit.",
        Attribute("delimiter", None, "None or empty is any run of white space"),
        Attribute("most", None, "splits of a string; None is no limit"),
        _DEFINES,
    ),
    _spec(
        "string_normalize",
        ("x",),
        _normalize,
        _infer_normalize,
        "Strings [n] or [1, n] without stop words, in another case; one empty string if none is left. ONNX "
        "StringNormalizer.",
        Attribute("case", "none", "none, lower or upper: how results are written"),
        Attribute("stopwords", ()),
        Attribute("is_case_sensitive", False, "how stop words are compared"),
        _DEFINES,
    ),
    _spec(
        "lookup",
        ("x",),
        _lookup,
        _infer_lookup,
        "The value of the key that each element equals, or the default; NaN finds a key NaN. ONNX LabelEncoder.",
        Attribute("keys", doc="strings or numbers"),
        Attribute("values", doc="strings or numbers, as many"),
        Attribute("default"),
        Attribute("dtype", doc="type of the values"),
    ),
    _spec(
        "string_to_number",
        ("x",),
        _to_number,
        _infer_number,
        "The number that each string is written as; LaunchError for one that is none. ONNX Cast from strings.",
        Attribute("dtype"),
    ),
    _spec(
        "number_to_string",
        ("x",),
        _from_number,
        _infer_text,
        "Numbers as the shortest decimals that read back as them. ONNX Cast to strings.",
    ),
)
