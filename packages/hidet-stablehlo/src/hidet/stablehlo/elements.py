"""Constant elements as arrays: of the file's own memory where they are written out, one element repeated where not."""

from __future__ import annotations

import math
from typing import Any

import numpy

from hidet import dtypes
from hidet.errors import ImportFailed
from hidet.stablehlo.program import Opaque, Ranked, Type

MAX_BYTES = 1 << 40
"""Constants that are larger, written out or not, are refused."""


def elements_of(type_: Type, data: memoryview) -> Any:
    """A numpy array of a tensor's type, read-only, that shares the memory of `data` where it lies so that processors
    can read it. `data` may hold one element for all. An `Opaque` for element types that hidet has none of.

    ImportFailed where data and type do not fit.
    """
    if not isinstance(type_, Ranked):
        return Opaque(f"elements of {type_}")
    shape = type_.shape
    if any(extent is None or extent < 0 for extent in shape):
        raise ImportFailed(f"a constant of the file has type {type_}: its extents must be numbers")
    extents = [extent for extent in shape if extent is not None]
    count = math.prod(extents)
    element = type_.dtype.numpy()
    if count * element.itemsize > MAX_BYTES:
        raise ImportFailed(f"a constant of the file has type {type_}, which no machine holds")
    if type_.dtype == dtypes.boolean:
        flat = _flags(data, count, type_)
    else:
        if len(data) not in (element.itemsize, count * element.itemsize):
            raise ImportFailed(
                f"the file is damaged: a constant of type {type_} has {len(data)} bytes, "
                f"expected {count * element.itemsize}"
            )
        flat = numpy.frombuffer(data, element)
        if not flat.flags.aligned:
            flat = flat.copy()
    if flat.size != count:
        made = numpy.broadcast_to(flat[:1].reshape((1,) * len(extents)), extents)
    else:
        made = flat.reshape(extents)
    made.flags.writeable = False
    return made


def _flags(data: memoryview, count: int, type_: Ranked) -> Any:
    """Booleans: a byte each, or eight in a byte with the first in its lowest bit; 0xFF or one byte for all."""
    raw = numpy.frombuffer(data, numpy.uint8)
    if raw.size == 1 and (raw[0] == 0xFF or count > 8 or (count > 1 and raw[0] == 0)):
        return numpy.array([raw[0] != 0])
    if raw.size == (count + 7) // 8 and raw.size != count:
        return numpy.unpackbits(raw, bitorder="little", count=count).astype(bool)
    if raw.size != count:
        raise ImportFailed(f"the file is damaged: a constant of type {type_} has {raw.size} bytes")
    return raw != 0
