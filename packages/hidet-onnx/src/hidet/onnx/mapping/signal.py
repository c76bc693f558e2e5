"""Fourier transforms, windows and mel filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from hidet import dtypes
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.value_types import dtype_of
from hidet.operators.fourier import require_length


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("DFT", 17): _transform_of_attribute_axis,
        ("DFT", 20): _transform,
        ("STFT", 17): _short_time_transform,
        ("HannWindow", 17): _window((0.5, 0.5)),
        ("HammingWindow", 17): _window((25 / 46, 21 / 46)),
        ("BlackmanWindow", 17): _window((0.42, 0.5, 0.08)),
        ("MelWeightMatrix", 17): _mel_weights,
    }


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as two real ones; `imaginary` None is zero."""

    real: Value
    imaginary: Value | None


def _each(x: Complex, change: Any) -> Complex:
    return Complex(change(x.real), None if x.imaginary is None else change(x.imaginary))


def fourier(e: Emitter, x: Complex, n: int, kept: int, sign: int) -> Complex:
    """The transform of x[..., n], its first `kept` frequencies; not divided by n. sign: -1 forwards, 1 back."""
    return Complex(*e.emit_all("fourier", (x.real, x.imaginary), {"n": n, "kept": kept, "sign": sign}))


def _first(e: Emitter, x: Value, count: Dim) -> Value:
    """The first elements along the last axis."""
    lead = x.tensor.rank - 1
    return e.emit("slice", x, starts=(0,) * (lead + 1), stops=(*x.tensor.shape[:-1], count), steps=(1,) * (lead + 1))


def _resized(e: Emitter, x: Value, n: int) -> Value:
    """x[..., length] cut or padded with zeros to n."""
    length = x.tensor.shape[-1]
    if length == n:
        return x
    if not isinstance(length, int):
        raise UnsupportedOp(f"{e.operator}: a signal of symbolic length {length} in a transform of length {n}")
    if length > n:
        return _first(e, x, n)
    return e.emit("pad", x, pads=(*((0, 0),) * (x.tensor.rank - 1), (0, n - length)), value=0)


def _parts(e: Emitter, x: Value) -> Complex:
    """x[..., 1 or 2] as a complex tensor."""
    count = x.tensor.shape[-1]
    if count not in (1, 2):
        raise ImportFailed(f"{e.operator} takes a last axis of 1 (real) or 2 (complex), got {x.type}")
    real, *rest = (e.emit("select", x, axis=-1, index=n) for n in range(2 if count == 2 else 1))
    return Complex(real, rest[0] if rest else None)


def _transform_of_attribute_axis(
    e: Emitter, x: Value, length: Value | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Value:
    return _along(e, x, length, axis, bool(inverse), bool(onesided))


def _transform(
    e: Emitter, x: Value, length: Value | None = None, axis: Value | None = None, *, inverse: int = 0, onesided: int = 0
) -> Value:
    place = -2 if axis is None else int(e.number(axis, "the axis"))
    return _along(e, x, length, place, bool(inverse), bool(onesided))


def _along(e: Emitter, x: Value, length: Value | None, axis: int, inverse: bool, onesided: bool) -> Value:
    rank = x.tensor.rank
    place = axis % rank
    if not -rank <= axis < rank or place == rank - 1:
        raise ImportFailed(f"DFT along axis {axis} of {x.type}: the last axis holds real and imaginary parts")
    signal = _each(_parts(e, x), lambda v: _moved(e, v, place, rank - 2))
    extent = signal.real.tensor.shape[-1]
    if inverse and onesided:
        n = _length(e, length, (extent - 1) * 2)
        return _moved_back(e, Complex(_real_inverse(e, signal, n), None), place)
    n = _length(e, length, extent)
    signal = _each(signal, lambda v: _resized(e, v, n))
    found = fourier(e, signal, n, n // 2 + 1 if onesided else n, 1 if inverse else -1)
    if inverse:
        scale = e.constant(1 / n, found.real.tensor.dtype)
        found = _each(found, lambda v: e.emit("mul", v, scale))
    return _moved_back(e, found, place)


def _length(e: Emitter, length: Value | None, default: Dim) -> int:
    n = default if length is None else e.number(length, "the length of the transform")
    if not isinstance(n, int):
        raise UnsupportedOp(f"{e.operator} of symbolic length {n}", hint="fix the signal's length on import")
    if n < 1:
        raise ImportFailed(f"{e.operator} of length {n}: expected at least 1")
    require_length(n)
    return n


def _real_inverse(e: Emitter, x: Complex, n: int) -> Value:
    """The real signal of length n of the frequencies 0 to n / 2 in x[..., n / 2 + 1], cut or padded as in numpy."""
    x = _each(x, lambda v: _resized(e, v, n // 2 + 1))
    signal = e.emit("fourier", x.real, x.imaginary, n=n, kept=n, sign=1, mirrored=True)
    return e.emit("mul", signal, e.constant(1 / n, signal.tensor.dtype))


def _moved(e: Emitter, x: Value, axis: int, to: int) -> Value:
    order = [n for n in range(x.tensor.rank) if n != axis]
    order.insert(to, axis)
    return e.transpose(x, order)


def _moved_back(e: Emitter, x: Complex, axis: int) -> Value:
    last = x.real.tensor.rank - 1
    parts = [_moved(e, v, last, axis) for v in (x.real, x.imaginary) if v is not None]
    return e.emit("stack", *parts, axis=-1) if len(parts) > 1 else e.unsqueeze(parts[0], (last + 1,))


def _short_time_transform(
    e: Emitter,
    signal: Value,
    step: Value,
    window: Value | None = None,
    length: Value | None = None,
    *,
    onesided: int = 1,
) -> Value:
    """signal[batch, length, 1 or 2], or [batch, length] of real numbers -> [batch, frames, frequencies, 2]."""
    if not 2 <= signal.tensor.rank <= 3:
        raise ImportFailed(f"STFT takes a signal [batch, length], or [batch, length, 1 or 2], got {signal.type}")
    default: Dim = signal.tensor.shape[1] if window is None else window.tensor.shape[0]
    n = _length(e, length, default)
    hop = e.number(step, "the frame step")
    if not isinstance(hop, int) or hop < 1:
        raise ImportFailed(f"STFT with a frame step of {hop}: expected at least 1")
    if window is not None and window.tensor.shape != (n,):
        raise ImportFailed(f"STFT with frames of {n} and a window of {window.type}")
    parts = _parts(e, signal) if signal.tensor.rank == 3 else Complex(signal, None)
    frames = _each(parts, lambda v: e.emit("unfold", v, axis=1, size=n, step=hop))
    if window is not None:
        factors = e.cast(window, signal.tensor.dtype)
        frames = _each(frames, lambda v: e.emit("mul", v, factors))
    found = fourier(e, frames, n, n // 2 + 1 if onesided else n, -1)
    assert found.imaginary is not None
    return e.emit("stack", found.real, found.imaginary, axis=-1)


def _window(terms: Sequence[float]) -> Handler:
    """The sum of (-1)^k * terms[k] * cos(2 pi k i / n); n is the size of a periodic window, else one less."""

    def handler(e: Emitter, size: Value, *, periodic: int = 1, output_datatype: int = 1) -> Value:
        count = e.one_size(size, "the size")
        wide = dtypes.f64
        place = e.emit("arange", start=0, stop=count, dtype=wide)
        turn = e.emit("div", place, e.size(count if periodic else count - 1, wide))
        total = e.constant(terms[0], wide)
        for number, term in enumerate(terms[1:], 1):
            wave = e.emit("cos", e.emit("mul", turn, e.constant(2 * math.pi * number, wide)))
            total = e.emit("add", total, e.emit("mul", wave, e.constant((-1) ** number * term, wide)))
        return e.cast(total, dtype_of(output_datatype))

    return handler


def _mel_weights(
    e: Emitter, bins: Value, length: Value, rate: Value, low: Value, high: Value, *, output_datatype: int = 1
) -> Value:
    """Triangles over the frequencies of a transform, evenly spaced in mel (ONNX operator specification)."""
    names = ("the number of mel bins", "the length of the transform", "the sample rate", "the lower edge")
    given = zip((bins, length, rate, low, high), (*names, "the upper edge"), strict=True)
    count, n, samples, lowest, highest = (e.number(value, what) for value, what in given)
    if not all(isinstance(number, int) for number in (count, n, samples)):
        raise UnsupportedOp("MelWeightMatrix of symbolic size")
    spectrum = n // 2 + 1
    edges = 2595 * numpy.log10(1 + numpy.array([lowest, highest], numpy.float64) / 700)
    mels = edges[0] + numpy.arange(count + 2) * ((edges[1] - edges[0]) / (count + 2))
    places = numpy.floor((n + 1) * (700 * (10 ** (mels / 2595) - 1)) / samples).astype(numpy.int64)
    result = numpy.zeros((spectrum, count))
    for band in range(count):
        start, middle, stop = places[band : band + 3]
        if start == middle:
            result[middle, band] = 1
        for place in range(start, middle + 1):
            if start < middle:
                result[place, band] = (place - start) / (middle - start)
        for place in range(middle, stop):
            if middle < stop:
                result[place, band] = (stop - place) / (stop - middle)
    return e.array(result.astype(dtype_of(output_datatype).numpy()))
