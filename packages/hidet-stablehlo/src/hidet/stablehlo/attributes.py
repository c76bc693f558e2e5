"""Attributes and types in MLIR's text."""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any

import numpy

from hidet import dtypes
from hidet.errors import ImportFailed
from hidet.stablehlo.elements import MAX_BYTES, elements_of
from hidet.stablehlo.lexer import Words
from hidet.stablehlo.program import (
    MAX_NESTING,
    Attribute,
    FunctionType,
    Opaque,
    OtherType,
    Ranked,
    Scalar,
    Symbol,
    Type,
)
from hidet.stablehlo.vhlo import complex_of, element_type, tensor_type

_NAMES: Mapping[str, str] = {
    "i1": "bool",
    "index": "int64",
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "f8E4M3": "float8_e4m3",
    "f8E3M4": "float8_e3m4",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f4E2M1FN": "float4_e2m1fn",
}

_INTEGER = re.compile(r"(s|u)?i(\d+)")
_EXTENT = re.compile(r"\s*(\?|\d+)\s*x")
_COMPLEX = re.compile(r"complex<\s*(\w+)\s*>")


def element_of(text: str) -> Type:
    """The element type of that name in MLIR."""
    found = _COMPLEX.fullmatch(text)
    if found is not None:
        return complex_of(element_of(found.group(1)))
    if text in _NAMES:
        return element_type(_NAMES[text])
    integer = _INTEGER.fullmatch(text)
    if integer is not None and len(integer.group(2)) <= 3:
        return element_type(f"{'u' if integer.group(1) == 'u' else ''}int{integer.group(2)}")
    return OtherType(text[:80])


def tensor_of(text: str) -> Type:
    """The type between the angles of "tensor<2x?xf32>"."""
    shape: list[int | None] = []
    at = 0
    while (found := _EXTENT.match(text, at)) is not None:
        digits = found.group(1)
        if len(digits) > 18 or len(shape) > 64:
            return OtherType(f"tensor<{text[:80]}>")
        shape.append(None if digits == "?" else int(digits))
        at = found.end()
    rest = text[at:].partition(",")[0].strip()
    return tensor_type(tuple(shape), element_of(rest))


def read_type(words: Words, depth: int = 0) -> Type:
    """The type that comes next."""
    if depth > MAX_NESTING:
        raise words.error("types are nested too deeply")
    if words.comes("("):
        inputs = read_types(words, depth)
        words.expect("->")
        return FunctionType(inputs, read_results(words, depth))
    if words.next.kind == "type":
        name = words.take().text
        if words.comes("<"):
            words.raw_angle()
        return OtherType(name)
    name = words.take_kind("name", "a type")
    if name == "tensor":
        return tensor_of(words.raw_angle())
    if name in ("complex", "tuple"):
        inner = words.raw_angle()
        return complex_of(element_of(inner.strip())) if name == "complex" else OtherType("tuple")
    return element_of(name)


def read_types(words: Words, depth: int = 0) -> tuple[Type, ...]:
    """Types in round brackets."""
    words.expect("(")
    found: list[Type] = []
    while not words.skip(")"):
        found.append(read_type(words, depth + 1))
        if not words.comes(")"):
            words.expect(",")
    return tuple(found)


def read_results(words: Words, depth: int = 0) -> tuple[Type, ...]:
    """The types behind an arrow: several in brackets, or one."""
    return read_types(words, depth + 1) if words.comes("(") else (read_type(words, depth + 1),)


# --- attributes ------------------------------------------------------------------------------------------------------


def text_of(word: str) -> str:
    """The contents of a string."""
    return re.sub(r"\\([0-9A-Fa-f]{2}|.)", _unescaped, word[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    code = found.group(1)
    if len(code) == 2:
        return chr(int(code, 16))
    return {"n": "\n", "t": "\t"}.get(code, code)


def symbol_of(word: str) -> Symbol:
    """The name of a function, as it is called."""
    return Symbol(text_of(word[1:]) if word.startswith('@"') else word[1:])


def read_attribute(words: Words, aliases: Mapping[str, Attribute], depth: int = 0) -> Attribute:
    """The attribute that comes next. aliases: what names of attributes stand for."""
    if depth > MAX_NESTING:
        raise words.error("attributes are nested too deeply")
    word = words.next
    if word.kind == "string":
        words.take()
        if words.skip(":"):
            read_type(words)
        return text_of(word.text)
    if word.kind == "symbol":
        words.take()
        while words.skip("::"):
            words.take_kind("symbol", "a name")
        return symbol_of(word.text)
    if word.kind == "number":
        return _number(words)
    if words.skip("["):
        found = []
        while not words.skip("]"):
            found.append(read_attribute(words, aliases, depth + 1))
            if not words.comes("]"):
                words.expect(",")
        return tuple(found)
    if words.comes("{"):
        return read_dictionary(words, aliases, depth + 1)
    if word.kind == "alias":
        return _dialect_attribute(words, aliases, depth)
    if words.comes("(") or word.kind == "type":
        return read_type(words)
    if word.kind == "name":
        return _named(words)
    raise words.unexpected("an attribute")


def read_dictionary(words: Words, aliases: Mapping[str, Attribute], depth: int = 0) -> dict[str, Attribute]:
    """Attributes with names, in braces."""
    words.expect("{")
    found: dict[str, Attribute] = {}
    while not words.skip("}"):
        name = words.take()
        if name.kind not in ("name", "string"):
            raise words.error("an attribute has no name", name.at)
        key = text_of(name.text) if name.kind == "string" else name.text
        found[key] = read_attribute(words, aliases, depth + 1) if words.skip("=") else None
        if not words.comes("}"):
            words.expect(",")
    return found


def _named(words: Words) -> Attribute:
    name = words.next.text
    if name in ("true", "false"):
        words.take()
        return name == "true"
    if name == "unit":
        words.take()
        return None
    if name == "dense":
        words.take()
        return read_dense(words)
    if name == "array":
        words.take()
        return _array(words)
    if name in ("dense_resource", "sparse", "affine_map", "affine_set", "strided", "opaque"):
        words.take()
        return Opaque(f"{name}<{words.raw_angle()[:80]}>")
    if name == "loc":
        words.take()
        return Opaque(words.skip_group())
    return read_type(words)


def _number(words: Words) -> int | float:
    text = words.take().text
    type_ = read_type(words) if words.skip(":") else None
    is_float = isinstance(type_, Scalar) and type_.dtype.is_float
    if "x" in text and is_float and isinstance(type_, Scalar):
        return float(_from_bits([text], type_.dtype)[0])
    try:
        return float(text) if is_float or (any(c in text for c in ".eE") and "x" not in text) else int(text, 0)
    except ValueError:
        raise words.error(f"{text[:40]!r} is no number") from None


def _array(words: Words) -> tuple[Any, ...]:
    """array<i64: 1, 2>."""
    kind, _, rest = words.raw_angle().partition(":")
    items = [item.strip() for item in rest.split(",") if item.strip()]
    try:
        if kind.strip() == "i1":
            return tuple(item == "true" for item in items)
        return tuple(float(item) if kind.strip().startswith("f") else int(item) for item in items)
    except ValueError:
        raise words.error(f"array<{kind}: …> holds something else") from None


def _dialect_attribute(words: Words, aliases: Mapping[str, Attribute], depth: int) -> Attribute:
    name = words.take().text
    if not words.comes("<"):
        if words.comes("{"):
            return Opaque(name + words.skip_group())
        return aliases.get(name[1:], Opaque(name))
    words.expect("<")
    if words.next.kind == "name" and name != "#stablehlo.conv":
        word = words.next.text
        if name.endswith(("gather", "scatter", "dot", "output_operand_alias")) or "_" in word:
            found = _fields(words, aliases, depth)
            return found
        # One word of a list of words: #stablehlo<precision DEFAULT>, #stablehlo.fft<...>.
        parts = []
        while not words.skip(">"):
            parts.append(words.take().text)
        return parts[-1]
    if name == "#stablehlo.conv":
        found = read_convolution_numbers(words)
        words.expect(">")
        return found
    while not words.skip(">"):
        words.take()
    return Opaque(name)


def _fields(words: Words, aliases: Mapping[str, Attribute], depth: int) -> Attribute:
    """name = attribute, …>; or two words, of which the second counts: precision DEFAULT>."""
    found: dict[str, Attribute] = {}
    while not words.skip(">"):
        name = words.take_kind("name", "a name")
        if not words.comes("="):
            while not words.comes(">"):
                name = words.take().text
            words.expect(">")
            return name
        words.expect("=")
        found[name] = read_attribute(words, aliases, depth + 1)
        if not words.comes(">"):
            words.expect(",")
    return found


def read_convolution_numbers(words: Words) -> dict[str, Attribute]:
    """[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], as attributes of their own."""
    found: dict[str, Attribute] = {}
    sides = (("input", "b", "batch", "f", "feature"), ("kernel", "i", "input_feature", "o", "output_feature"))
    for side, *letters in (*sides, ("output", "b", "batch", "f", "feature")):
        if side == "output":
            words.expect("->")
        elif side == "kernel":
            _expect_times(words)
        words.expect("[")
        axes: dict[str, int] = {}
        while not words.skip("]"):
            axes[words.take().text] = len(axes)
            if not words.comes("]"):
                words.expect(",")
        for letter, name in (letters[:2], letters[2:]):
            if letter not in axes:
                raise words.error(f"dim_numbers have no {letter!r}")
            found[f"{side}_{name}_dimension"] = axes.pop(letter)
        try:
            space = sorted((int(key), axis) for key, axis in axes.items())
        except ValueError:
            raise words.error("dim_numbers hold something else than b, f, i, o and numbers") from None
        found[f"{side}_spatial_dimensions"] = tuple(axis for _, axis in space)
    return found


def _expect_times(words: Words) -> None:
    if words.next.text != "x":
        raise words.unexpected("'x'")
    words.take()


# --- elements --------------------------------------------------------------------------------------------------------

_SEPARATORS = re.compile(r"[\s\[\],]+")


def read_dense(words: Words) -> Any:
    """The elements of dense<…> : type, an array."""
    at = words.next.at
    inner = words.raw_angle()
    words.expect(":")
    type_ = read_type(words)
    if not isinstance(type_, Ranked):
        return Opaque(f"elements of {type_}")
    try:
        return _elements(inner.strip(), type_)
    except ImportFailed as error:
        error.loc = error.loc or words.loc(at)
        raise
    except (ValueError, OverflowError, KeyError, binascii.Error):
        raise words.error(f"dense<…> holds something else than elements of {type_}", at) from None


def _elements(inner: str, type_: Ranked) -> Any:
    if inner.startswith('"0x') and inner.endswith('"'):
        return elements_of(type_, memoryview(bytes.fromhex(inner[3:-1])))
    extents = [extent for extent in type_.shape if extent is not None]
    count = 1
    for extent in extents:
        count *= extent
    if len(extents) != len(type_.shape) or count * type_.dtype.numpy().itemsize > MAX_BYTES:
        raise ImportFailed(f"a constant has type {type_}")
    if type_.dtype.is_complex:
        numbers = [part for part in re.split(r"[\s\[\](),]+", inner) if part]
        parts = _numbers(numbers, dtypes.f64 if type_.dtype == dtypes.c128 else dtypes.f32)
        flat = (parts[::2] + 1j * parts[1::2]).astype(type_.dtype.numpy())
    else:
        flat = _numbers([part for part in _SEPARATORS.split(inner) if part], type_.dtype)
    if flat.size not in (1, count):
        raise ImportFailed(f"a constant of type {type_} has {flat.size} elements")
    if flat.size != count:
        return numpy.broadcast_to(flat.reshape((1,) * len(extents)), extents)
    return flat.reshape(extents)


def _numbers(items: list[str], dtype: Any) -> Any:
    if dtype == dtypes.boolean:
        known = {"true": True, "false": False, "0": False, "1": True, "-1": True}
        return numpy.array([known[item] for item in items], bool)
    if dtype.is_float:
        if any(item.startswith("0x") for item in items):
            plain = [item if item.startswith("0x") else "" for item in items]
            bits = _from_bits([item or "0x0" for item in plain], dtype)
            given = numpy.array([0.0 if bit else float(item) for item, bit in zip(items, plain, strict=True)])
            return numpy.where([bool(bit) for bit in plain], bits, given.astype(dtype.numpy()))
        return numpy.array([float(item) for item in items], numpy.float64).astype(dtype.numpy())
    return numpy.array([int(item, 0) for item in items], dtype.numpy())


def _from_bits(items: list[str], dtype: Any) -> Any:
    """Floats by their bits: 0x7FC00000."""
    whole = numpy.dtype(f"u{dtype.numpy().itemsize}")
    return numpy.array([int(item, 16) for item in items], whole).view(dtype.numpy())
