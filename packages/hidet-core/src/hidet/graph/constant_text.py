"""Constant data as text: few values exactly and in line, many by a digest that a side table resolves."""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hidet.dtypes import DType
from hidet.errors import VerifyError

Array = np.ndarray[Any, Any]

INLINE_ELEMENTS = 16


def digest(array: Array) -> str:
    """32 hexadecimal digits of SHA-256 over the elements' bytes; shape and type are in the printed type."""
    raw = repr(array.tolist()).encode() if array.dtype.hasobject else np.ravel(array).view(np.uint8).data
    return hashlib.sha256(raw).hexdigest()[:32]


def inline_text(array: Array, dtype: DType) -> str | None:
    """The elements in row-major order between brackets, without them for rank 0.

    None when there are more than INLINE_ELEMENTS, or text would lose bits (a NaN with a payload).
    """
    if array.size > INLINE_ELEMENTS:
        return None
    texts = [_ELEMENT_TEXT[dtype.kind](element) for element in array.reshape(-1)]
    try:
        again = array_of([element_value(text) for text in texts], array.shape, dtype)
    except VerifyError:
        return None
    if not dtype.is_host_only and again.tobytes() != np.ascontiguousarray(array).tobytes():
        return None
    return f"[{', '.join(texts)}]" if array.ndim else texts[0]


def array_of(values: Sequence[Any], shape: Sequence[int], dtype: DType) -> Array:
    """Elements in row-major order as an array. VerifyError when their number does not fit the shape."""
    if len(values) != math.prod(shape):
        raise VerifyError(f"{len(values)} elements do not fill the shape {tuple(shape)}")
    if dtype.is_host_only:
        array = np.empty(len(values), object)
        array[:] = values
    else:
        array = np.array(values, _WIDE[dtype.kind]).astype(dtype.numpy())
    return array.reshape(shape)


def element_value(text: str) -> Any:
    """The Python value of one printed element. VerifyError for malformed text."""
    known = {"True": True, "False": False}.get(text)
    if known is not None:
        return known
    try:
        if text[:1] in ("'", '"'):
            return ast.literal_eval(text)
        if text.endswith("j"):
            real, imaginary = _COMPLEX_PARTS.fullmatch(text).groups()  # type: ignore[union-attr]  # caught below
            return complex(float(real), float(imaginary))
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except (ValueError, SyntaxError, AttributeError) as error:
        raise VerifyError(f"{text!r} is not a printed number, bool or string") from error


_COMPLEX_PARTS = re.compile(r"([-+]?(?:inf|nan|[\d.]+(?:e[-+]?\d+)?))([-+](?:inf|nan|[\d.]+(?:e[-+]?\d+)?))j")
# Types that hold every value of a kind, by kind.
_WIDE: dict[str, Any] = {
    "bool": np.bool_,
    "int": np.int64,
    "uint": np.uint64,
    "float": np.float64,
    "complex": np.complex128,
}


def _float_text(element: Any) -> str:
    """The shortest digits that give the element back, at least those that give its f64 value back."""
    exact = float(element)
    short = str(element) if isinstance(element, np.floating) else repr(exact)
    return short if type(element)(float(short)) == element else repr(exact)


def _complex_text(element: Any) -> str:
    value = complex(element)
    return f"{value.real!r}{'' if math.copysign(1, value.imag) < 0 else '+'}{value.imag!r}j"


_ELEMENT_TEXT: dict[str, Callable[[Any], str]] = {
    "bool": lambda element: str(bool(element)),
    "int": lambda element: str(int(element)),
    "uint": lambda element: str(int(element)),
    "float": _float_text,
    "complex": _complex_text,
    "string": lambda element: repr(str(element)),
}
