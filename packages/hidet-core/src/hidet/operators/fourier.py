"""Fourier transforms along the last axis, of real and imaginary parts.

A transform of length n is a product with the n-by-n matrix of its factors where n is small or prime, else made of
transforms of two lengths whose product n is (Cooley and Tukey, "An algorithm for the machine calculation of complex
Fourier series", 1965), all of them matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dims import prove_equal
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Value
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType

# Up to this length one product is cheaper than the passes over memory that splitting it costs.
_MOST_DIRECT = 64
# A transform of prime length takes a matrix of its square.
_LARGEST_PRIME = 4096
# Longer transforms are refused: their factors alone would fill gigabytes.
_LONGEST = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """A complex tensor as two real ones; `imaginary` None is zero."""

    real: Value
    imaginary: Value | None

    def each(self, change: Callable[[Value], Value]) -> _Parts:
        return _Parts(change(self.real), None if self.imaginary is None else change(self.imaginary))


def _infer(inputs: Sequence[Any], attrs: Attrs) -> tuple[TensorType, ...]:
    real, imaginary = (*inputs, None)[:2]
    if real.dtype not in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64):
        raise DTypeError(f"operator fourier of {real.dtype}, expected floats")
    if real.rank == 0:
        raise ShapeError("operator fourier of a tensor without axes")
    if imaginary is not None and (imaginary.dtype != real.dtype or imaginary.rank != real.rank):
        raise ShapeError(f"operator fourier of real parts {real} and imaginary parts {imaginary}")
    *batch, length = real.shape
    n, kept = attrs["n"], attrs["kept"]
    if attrs["sign"] not in (-1, 1):
        raise UnsupportedOp(f"operator fourier with sign {attrs['sign']}, expected -1 (forwards) or 1 (back)")
    require_length(n)
    if attrs["mirrored"]:
        if prove_equal(length, n // 2 + 1) is not True or kept != n:
            raise ShapeError(f"operator fourier of {length} frequencies, expected {n // 2 + 1} for {n} real elements")
        return (TensorType(real.dtype, (*batch, n)),)
    if prove_equal(length, n) is not True or not 1 <= kept <= n:
        raise ShapeError(f"operator fourier of {length} elements, {kept} frequencies kept: expected {n} elements")
    return (TensorType(real.dtype, (*batch, kept)),) * 2


def require_length(n: object) -> None:
    """UnsupportedOp or ShapeError unless there is a transform of this length."""
    if not isinstance(n, int):
        raise UnsupportedOp(f"operator fourier of symbolic length {n}", hint="fix the signal's length")
    if n < 1:
        raise ShapeError(f"operator fourier of length {n}: expected at least 1")
    if _largest_factor(n) > _LARGEST_PRIME:
        raise UnsupportedOp(f"operator fourier of length {n}, which has a prime factor above {_LARGEST_PRIME}")


def _largest_factor(n: int) -> int:
    """The largest prime factor of `n`, or more than `_LARGEST_PRIME` for what is too long to be split."""
    if n > _LONGEST:
        return n
    divisor, largest = 2, 1
    while n > 1:
        if n % divisor:
            divisor += 1 if divisor * divisor <= n else n - divisor
        else:
            n, largest = n // divisor, divisor
    return largest


def _decompose(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    real, imaginary = (*inputs, None)[:2]
    assert real is not None
    _infer([value if value is None else value.tensor for value in inputs], attrs)
    transform = _Transform(builder, real.tensor.dtype, attrs["sign"])
    x, n = _Parts(real, imaginary), attrs["n"]
    if real.tensor.rank == 1:
        x = x.each(lambda v: builder.emit("unsqueeze", v, axes=(0,)))
    found = transform.mirrored(x, n) if attrs["mirrored"] else transform.whole(x, n, attrs["kept"])
    if real.tensor.rank == 1:
        found = found.each(lambda v: builder.emit("select", v, axis=0, index=0))
    return [value for value in (found.real, found.imaginary) if value is not None]


class _Transform:
    """Writes transforms of x[..., n], at least of rank 2, into `builder`."""

    def __init__(self, builder: GraphBuilder, dtype: DType, sign: int) -> None:
        self.builder = builder
        self.emit = builder.emit
        self.dtype = dtype
        self.sign = sign

    def whole(self, x: _Parts, n: int, kept: int) -> _Parts:
        """The first `kept` frequencies."""
        first = _split(n)
        if first == n:
            return self._apply("matmul", x, n, n, kept)
        second = n // first
        *batch, _ = x.real.tensor.shape
        # Element second * a + b; frequency c + first * d.
        grid = x.each(lambda v: self._swap(self.emit("reshape", v, shape=(*batch, first, second))))
        inner = self.whole(grid, first, first)  # [..., b, c]
        turned = self._apply("mul", inner, n, second, first)
        outer = self.whole(turned.each(self._swap), second, second)  # [..., c, d]
        found = outer.each(lambda v: self.emit("reshape", self._swap(v), shape=(*batch, n)))
        return found if kept == n else found.each(lambda v: self._first(v, kept))

    def mirrored(self, x: _Parts, n: int) -> _Parts:
        """The n real elements of the frequencies 0 to n / 2; the others mirror these, so that each counts twice, but
        for the first and, of an even n, the last."""
        bins = n // 2 + 1
        if _split(n) != n:
            # Its middle frequencies again, conjugated and from the last one down.
            rest = x.each(lambda v: self.emit("flip", self._part(v, 1, n - bins + 1), axes=(-1,)))
            real = self.emit("concat", x.real, rest.real, axis=-1)
            if x.imaginary is None or rest.imaginary is None:
                return _Parts(self.whole(_Parts(real, None), n, n).real, None)
            imaginary = self.emit("mul", x.imaginary, self.builder.constant(self._ends(n)))
            imaginary = self.emit("concat", imaginary, self.emit("neg", rest.imaginary), axis=-1)
            return _Parts(self.whole(_Parts(real, imaginary), n, n).real, None)
        import numpy

        weights = numpy.full((bins, 1), 2.0)
        weights[0] = 1
        if n % 2 == 0:
            weights[-1] = 1
        cosine, sine = (
            self.builder.constant((part * weights).astype(self.dtype.numpy()))
            for part in _factors(n, bins, n, self.sign)
        )
        real = self.emit("matmul", x.real, cosine)
        if x.imaginary is None:
            return _Parts(real, None)
        return _Parts(self.emit("sub", real, self.emit("matmul", x.imaginary, sine)), None)

    def _ends(self, n: int) -> Any:
        """0 for the frequencies whose imaginary parts real signals have none of, 1 for the others."""
        import numpy

        found = numpy.ones(n // 2 + 1)
        found[0] = 0
        if n % 2 == 0:
            found[-1] = 0
        return found.astype(self.dtype.numpy())

    def _apply(self, op: str, x: _Parts, n: int, rows: int, columns: int) -> _Parts:
        """x times the complex factors [rows, columns]: their matrix product, or element by element."""
        c, s = (
            self.builder.constant(part.astype(self.dtype.numpy())) for part in _factors(n, rows, columns, self.sign)
        )
        real, imaginary = self.emit(op, x.real, c), self.emit(op, x.real, s)
        if x.imaginary is None:
            return _Parts(real, imaginary)
        return _Parts(
            self.emit("sub", real, self.emit(op, x.imaginary, s)),
            self.emit("add", imaginary, self.emit(op, x.imaginary, c)),
        )

    def _swap(self, x: Value) -> Value:
        rank = x.tensor.rank
        return self.emit("transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))

    def _first(self, x: Value, count: int) -> Value:
        return self._part(x, 0, count)

    def _part(self, x: Value, start: int, stop: int) -> Value:
        """Those elements along the last axis."""
        lead = x.tensor.rank - 1
        starts, stops = (0,) * lead + (start,), (*x.tensor.shape[:-1], stop)
        return self.emit("slice", x, starts=starts, stops=stops, steps=(1,) * (lead + 1))


def _factors(n: int, rows: int, columns: int, sign: int) -> tuple[Any, Any]:
    """Real and imaginary parts of e ** (sign * 2 pi i j k / n), [rows, columns], in f64."""
    import numpy

    # The product is reduced before it becomes an angle, which keeps all digits of it.
    turns = (numpy.outer(numpy.arange(rows), numpy.arange(columns)) % n) / n
    angle = sign * 2 * math.pi * turns
    return numpy.cos(angle), numpy.sin(angle)


def _split(n: int) -> int:
    """The divisor of `n` nearest to its root, or `n` itself where it is small or prime."""
    if n <= _MOST_DIRECT:
        return n
    best = max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0)
    return n if best == 1 else best


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="fourier",
        inputs=("real", "imaginary?"),
        attributes=(
            Attribute("n", doc="length of the transform and of the last axis"),
            Attribute("kept", doc="how many frequencies are computed"),
            Attribute("sign", -1, "of the exponent: -1 forwards, 1 back"),
            Attribute("mirrored", False, "the last axis has the frequencies 0 to n / 2 of a real signal, the result"),
        ),
        kind="anchor",
        infer=_infer,
        decompose=_decompose,
        doc="Discrete Fourier transform along the last axis, not divided by n: real and imaginary parts of x[..., n] "
        "-> those of [..., kept]; mirrored, x[..., n / 2 + 1] -> the real part [..., n]. The imaginary part may be "
        "absent. numpy.fft.fft, ONNX DFT. Floating-point types; n has no prime factor above 4096.",
    ),
)
