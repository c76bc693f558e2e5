"""Complex numbers, as pairs of real tensors, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, prove_equal
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.tensorflow.items import Complex, Item

# Operators that do to both parts what they do to real tensors.
_BY_PARTS = frozenset(
    {
        *("AddN", "AddV2", "BroadcastTo", "ConcatV2", "ExpandDims", "GatherNd", "GatherV2", "Identity", "IdentityN"),
        *("Mean", "Neg", "Pack", "Pad", "Reshape", "ReverseV2", "Roll", "Slice", "Split", "SplitV", "Squeeze"),
        *("StopGradient", "StridedSlice", "Sub", "Sum", "Tile", "Transpose", "Unpack", "ZerosLike"),
    }
)


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "Angle": lambda e, x, **_: e.emit("atan2", x.imaginary, x.real),
        "Complex": _complex,
        "ComplexAbs": lambda e, x, **_: e.emit("hypot", x.real, x.imaginary),
        "Conj": lambda e, x: Complex(x.real, e.emit("neg", x.imaginary)) if isinstance(x, Complex) else x,
        "FFT": lambda e, x, **_: _transformed(e, x, _length(x), -1),
        "FFT2D": lambda e, x, **_: _over_axes(e, x, -1, 2),
        "FFT3D": lambda e, x, **_: _over_axes(e, x, -1, 3),
        "IFFT": lambda e, x, **_: _divided(e, _transformed(e, x, _length(x), 1), _length(x)),
        "IFFT2D": lambda e, x, **_: _over_axes(e, x, 1, 2),
        "IFFT3D": lambda e, x, **_: _over_axes(e, x, 1, 3),
        "IRFFT": _back_to_real,
        "IRFFT2D": _back_to_real_images,
        "Imag": lambda e, x, **_: x.imaginary,
        "RFFT": _of_real,
        "RFFT2D": _of_real_images,
        "Real": lambda e, x, **_: x.real if isinstance(x, Complex) else x,
    }


def on_complex(operator: str, handler: Handler) -> Handler:
    """What writes an operator with complex operands. handler: what writes it with real ones."""
    if operator in _BY_PARTS:
        return lambda e, *operands, **attributes: _by_parts(e, handler, operands, attributes)
    if operator in _OWN:
        return _OWN[operator]
    if operator in handlers() or operator in ("If", "StatelessIf", "PartitionedCall", "StatefulPartitionedCall"):
        return handler
    raise UnsupportedOp(f"{operator} of complex numbers is not imported")


def _by_parts(e: Emitter, handler: Handler, operands: tuple[Item, ...], attributes: Mapping[str, Any]) -> Item:
    real, imaginary = (
        handler(e, *[getattr(item, part) if isinstance(item, Complex) else item for item in operands], **attributes)
        for part in ("real", "imaginary")
    )
    if isinstance(real, tuple):
        return tuple(Complex(a, b) for a, b in zip(real, imaginary, strict=True))
    return Complex(real, imaginary)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _complex(e: Emitter, real: Value, imaginary: Value, **_: Any) -> Complex:
    """Parts broadcast."""
    if real.tensor.shape == imaginary.tensor.shape:
        return Complex(real, imaginary)
    nothing = [e.emit("full", shape=part.tensor.shape, value=0, dtype=part.tensor.dtype) for part in (real, imaginary)]
    return Complex(e.emit("add", real, nothing[1]), e.emit("add", imaginary, nothing[0]))


def _product(e: Emitter, a: Complex, b: Complex) -> Complex:
    real = e.emit("sub", e.emit("mul", a.real, b.real), e.emit("mul", a.imaginary, b.imaginary))
    imaginary = e.emit("add", e.emit("mul", a.real, b.imaginary), e.emit("mul", a.imaginary, b.real))
    return Complex(real, imaginary)


def _quotient(e: Emitter, a: Complex, b: Complex) -> Complex:
    size = e.emit("add", e.emit("square", b.real), e.emit("square", b.imaginary))
    made = _product(e, a, Complex(b.real, e.emit("neg", b.imaginary)))
    return Complex(e.emit("div", made.real, size), e.emit("div", made.imaginary, size))


def _exponential(e: Emitter, x: Complex) -> Complex:
    size = e.emit("exp", x.real)
    return Complex(e.emit("mul", size, e.emit("cos", x.imaginary)), e.emit("mul", size, e.emit("sin", x.imaginary)))


def _cast(e: Emitter, x: Complex, DstT: DType, Truncate: bool = False) -> Item:
    """Of a real type: the real part."""
    if not DstT.is_complex:
        return e.cast(x.real, DstT)
    part = dtypes.f32 if DstT == dtypes.c64 else dtypes.f64
    return Complex(e.cast(x.real, part), e.cast(x.imaginary, part))


_OWN: dict[str, Callable[..., Item]] = {
    "Cast": _cast,
    "Exp": _exponential,
    "Mul": _product,
    "RealDiv": _quotient,
    "Square": lambda e, x: _product(e, x, x),
}


# --- transforms ------------------------------------------------------------------------------------------------------


def _length(x: Complex) -> Dim:
    return x.real.tensor.shape[-1]


def _resized(e: Emitter, x: Value, n: Dim) -> Value:
    """x[..., length] cut or padded with zeros to n."""
    length = x.tensor.shape[-1]
    if prove_equal(length, n) is True:
        return x
    if not isinstance(length, int) or not isinstance(n, int):
        raise UnsupportedOp(f"{e.operator}: a signal of length {length} in a transform of length {n}")
    if length > n:
        return e.emit("slice", x, starts=(0,) * x.tensor.rank, stops=(*x.tensor.shape[:-1], n))
    return e.emit("pad", x, pads=(*((0, 0),) * (x.tensor.rank - 1), (0, n - length)), value=0)


def _transformed(e: Emitter, x: Complex, n: Dim, sign: int) -> Complex:
    return Complex(*e.emit_all("fourier", (x.real, x.imaginary), {"n": n, "kept": n, "sign": sign}))


def _divided(e: Emitter, x: Complex, n: Dim) -> Complex:
    count = e.size(n, x.real.tensor.dtype)
    return Complex(e.emit("div", x.real, count), e.emit("div", x.imaginary, count))


def _over_axes(e: Emitter, x: Complex, sign: int, count: int) -> Complex:
    """Transforms along the last `count` axes, of which each is the last one once."""
    rank = x.real.tensor.rank
    for _ in range(count):
        x = _transformed(e, x, _length(x), sign)
        if sign > 0:
            x = _divided(e, x, _length(x))
        x = _moved(e, x, (*range(rank - count), rank - 1, *range(rank - count, rank - 1)))
    return x


def _moved(e: Emitter, x: Complex, order: Sequence[int]) -> Complex:
    return Complex(e.transpose(x.real, order), e.transpose(x.imaginary, order))


def _swapped(e: Emitter, x: Complex) -> Complex:
    """With its last two axes the other way round."""
    rank = x.real.tensor.rank
    return _moved(e, x, (*range(rank - 2), rank - 1, rank - 2))


def _of_real(e: Emitter, x: Value, length: Value, **_: Any) -> Complex:
    return _halved(e, x, e.one_int(length, "the length"))


def _halved(e: Emitter, x: Value, n: int) -> Complex:
    """The first half of the frequencies, which tells the other."""
    signal = _resized(e, x, n)
    return Complex(*e.emit_all("fourier", (signal, None), {"n": n, "kept": n // 2 + 1, "sign": -1}))


def _of_real_images(e: Emitter, x: Value, lengths: Value, **_: Any) -> Complex:
    rows, columns = e.ints(lengths, "the lengths")
    found = _swapped(e, _halved(e, x, columns))
    found = Complex(*(_resized(e, part, rows) for part in (found.real, found.imaginary)))
    return _swapped(e, _transformed(e, found, rows, -1))


def _back_to_real(e: Emitter, x: Complex, length: Value, **_: Any) -> Value:
    return _mirrored(e, x, e.one_int(length, "the length"))


def _mirrored(e: Emitter, x: Complex, n: int) -> Value:
    parts = [_resized(e, part, n // 2 + 1) for part in (x.real, x.imaginary)]
    (signal,) = e.emit_all("fourier", parts, {"n": n, "kept": n, "sign": 1, "mirrored": True})
    return e.emit("div", signal, e.constant(n, signal.tensor.dtype))


def _back_to_real_images(e: Emitter, x: Complex, lengths: Value, **_: Any) -> Value:
    rows, columns = e.ints(lengths, "the lengths")
    turned = _swapped(e, x)
    turned = Complex(*(_resized(e, part, rows) for part in (turned.real, turned.imaginary)))
    return _mirrored(e, _swapped(e, _divided(e, _transformed(e, turned, rows, 1), rows)), columns)
