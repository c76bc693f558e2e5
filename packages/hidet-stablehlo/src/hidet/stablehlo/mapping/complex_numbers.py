"""Complex numbers, as pairs of real tensors, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.items import Complex, Item
from hidet.stablehlo.mapping import dot
from hidet.stablehlo.program import Ranked

# Operators that do to both parts what they do to real tensors.
_BY_PARTS = frozenset(
    {
        *("add", "broadcast", "broadcast_in_dim", "concatenate", "dynamic_broadcast_in_dim", "dynamic_reshape"),
        *(
            "dynamic_gather",
            "dynamic_pad",
            "dynamic_slice",
            "dynamic_update_slice",
            "gather",
            "negate",
            "pad",
            "real_dynamic_slice",
            "reshape",
        ),
        *("reverse", "select", "slice", "subtract", "transpose"),
    }
)


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "complex": lambda e, real, imaginary, **_: Complex(real, imaginary),
        "fft": _fft,
        "imag": lambda e, x, **_: x.imaginary if isinstance(x, Complex) else e.filled(0, x.tensor.shape, x),
        "real": lambda e, x, **_: x.real if isinstance(x, Complex) else x,
    }


def on_complex(operator: str, handler: Handler) -> Handler:
    """What writes an operator with complex operands or results. handler: what writes it with real ones."""
    if operator in _BY_PARTS:
        return lambda e, *operands, **attributes: _by_parts(e, handler, operands, attributes)
    if operator in _OWN:
        return _OWN[operator]
    if operator in handlers() or operator in ("case", "if", "while", "constant", "optimization_barrier"):
        return handler
    raise UnsupportedOp(f"{operator} of complex numbers is not imported")


def _by_parts(e: Emitter, handler: Handler, operands: tuple[Item, ...], attributes: Mapping[str, Any]) -> Item:
    real, imaginary = (
        handler(e, *[getattr(item, part) if isinstance(item, Complex) else item for item in operands], **attributes)
        for part in ("real", "imaginary")
    )
    return Complex(real, imaginary)


def _product(e: Emitter, a: Complex, b: Complex, **_: Any) -> Complex:
    real = e.emit("sub", e.emit("mul", a.real, b.real), e.emit("mul", a.imaginary, b.imaginary))
    imaginary = e.emit("add", e.emit("mul", a.real, b.imaginary), e.emit("mul", a.imaginary, b.real))
    return Complex(real, imaginary)


def _conjugate(e: Emitter, x: Complex, **_: Any) -> Complex:
    return Complex(x.real, e.emit("neg", x.imaginary))


def _quotient(e: Emitter, a: Complex, b: Complex, **_: Any) -> Complex:
    size = e.emit("add", e.emit("square", b.real), e.emit("square", b.imaginary))
    made = _product(e, a, _conjugate(e, b))
    return Complex(e.emit("div", made.real, size), e.emit("div", made.imaginary, size))


def _exponential(e: Emitter, x: Complex, **_: Any) -> Complex:
    size = e.emit("exp", x.real)
    return Complex(e.emit("mul", size, e.emit("cos", x.imaginary)), e.emit("mul", size, e.emit("sin", x.imaginary)))


def _convert(e: Emitter, x: Item, **_: Any) -> Item:
    """Of a real type: the real part."""
    dtype = e.result.dtype
    part = dtype_of_parts(e)
    if not dtype.is_complex:
        return e.cast(x.real, dtype)
    if isinstance(x, Complex):
        return Complex(e.cast(x.real, part), e.cast(x.imaginary, part))
    real = e.cast(x, part)
    return Complex(real, e.filled(0, real.tensor.shape, real))


def dtype_of_parts(e: Emitter) -> DType:
    """The type of the parts of a complex result."""
    return dtypes.f64 if e.result.dtype == dtypes.c128 else dtypes.f32


def _equal(e: Emitter, a: Complex, b: Complex, comparison_direction: str, **_: Any) -> Value:
    if comparison_direction not in ("EQ", "NE"):
        raise ImportFailed(f"{e.operator} of complex numbers by {comparison_direction}")
    same = e.emit("logical_and", e.emit("equal", a.real, b.real), e.emit("equal", a.imaginary, b.imaginary))
    return same if comparison_direction == "EQ" else e.emit("logical_not", same)


def _dot(handler_name: str) -> Handler:
    def handler(e: Emitter, a: Item, b: Item, **attributes: Any) -> Complex:
        """Four real products, two where an operand is real."""
        product = dot.handlers()[handler_name]
        e.types = (Ranked(dtype_of_parts(e), e.result.shape),)

        def part(x: Value, y: Value) -> Value:
            made: Value = product(e, x, y, **attributes)
            return made

        if not isinstance(a, Complex):
            return Complex(part(a, b.real), part(a, b.imaginary))
        if not isinstance(b, Complex):
            return Complex(part(a.real, b), part(a.imaginary, b))
        real = e.emit("sub", part(a.real, b.real), part(a.imaginary, b.imaginary))
        return Complex(real, e.emit("add", part(a.real, b.imaginary), part(a.imaginary, b.real)))

    return handler


_OWN: dict[str, Callable[..., Item]] = {
    "abs": lambda e, x, **_: e.emit("hypot", x.real, x.imaginary),
    "chlo.conj": _conjugate,
    "compare": _equal,
    "convert": _convert,
    "divide": _quotient,
    "dot": _dot("dot"),
    "dot_general": _dot("dot_general"),
    "exponential": _exponential,
    "multiply": _product,
}


# --- transforms ------------------------------------------------------------------------------------------------------


def _fft(e: Emitter, x: Item, fft_type: str, fft_length: Any, **_: Any) -> Item:
    """Over the last axes. Half of the frequencies of real numbers tell the others, along the last axis."""
    lengths = e.whole(fft_length, "the length")
    if fft_type not in ("FFT", "IFFT", "RFFT", "IRFFT") or not 1 <= len(lengths) <= 3:
        raise ImportFailed(f"{e.operator} of type {fft_type!r} and lengths {list(lengths)}")
    is_back = fft_type in ("IFFT", "IRFFT")
    sign = 1 if is_back else -1
    rank = (x.real if isinstance(x, Complex) else x).tensor.rank
    axes = range(rank - len(lengths), rank)
    if min(axes) < 0:
        raise ImportFailed(f"{e.operator} over {len(lengths)} axes of a tensor of rank {rank}")
    others = list(zip(axes, lengths, strict=True))[:-1]
    n = lengths[-1]
    if fft_type == "RFFT":
        x = Complex(*e.emit_all("fourier", (x, None), {"n": n, "kept": n // 2 + 1, "sign": sign}))
    elif fft_type != "IRFFT":
        others.append((rank - 1, n))
    for axis, length in others:
        order = [m for m in range(rank) if m != axis] + [axis]
        back = [order.index(m) for m in range(rank)]
        parts = [e.transpose(part, order) for part in (x.real, x.imaginary)]
        made = e.emit_all("fourier", parts, {"n": length, "kept": length, "sign": sign})
        x = Complex(*(_divided(e, e.transpose(part, back), length, is_back) for part in made))
    if fft_type != "IRFFT":
        return x
    attrs = {"n": n, "kept": n, "sign": sign, "mirrored": True}
    (signal,) = e.emit_all("fourier", (x.real, x.imaginary), attrs)
    return _divided(e, signal, n, True)


def _divided(e: Emitter, x: Value, count: int, is_back: bool) -> Value:
    return e.emit("div", x, e.constant(count, x.tensor.dtype)) if is_back else x
