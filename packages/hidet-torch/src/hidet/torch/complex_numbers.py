"""Complex tensors as pairs of real ones: their arithmetic and elementary functions, in torch's own real operators.

A real operand has no imaginary part: it is not multiplied with zeros, as in the mixed arithmetic of C (ISO C, Annex G).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hidet.errors import UnsupportedOp
from torch import Tensor

PARTS: Mapping[Any, torch.dtype] = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Types of the parts of complex types that are computed with."""


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as two real ones of the same shape and type.

    pairs: the tensor with a last axis of 2 that they are read from; None where they are computed.
    """

    real: Tensor
    imaginary: Tensor
    pairs: Tensor | None = None

    @staticmethod
    def of(pairs: Tensor) -> Complex:
        """What a real tensor with a last axis of 2 holds."""
        return Complex(pairs.select(-1, 0), pairs.select(-1, 1), pairs)

    def each(self, change: Callable[[Tensor], Tensor]) -> Complex:
        """Both parts changed alike."""
        return Complex(change(self.real), change(self.imaginary))


# A real operand is (part, None).
Operand = tuple[Any, Any]


def operand(given: Any, dtype: torch.dtype) -> Operand:
    """Parts in the type of the result; None for the imaginary part of what is real."""
    if isinstance(given, Complex):
        return given.real.to(dtype), given.imaginary.to(dtype)
    if isinstance(given, Tensor):
        if given.is_complex():
            raise UnsupportedOp(f"{given.dtype} beside other complex types")
        return given.to(dtype), None
    return (given.real, given.imag) if isinstance(given, complex) else (given, None)


def in_one_shape(real: Any, imaginary: Any) -> Complex:
    """Parts in one shape."""
    # torch annotates its function by none.
    broadcast: Callable[..., Any] = torch.broadcast_tensors
    return Complex(*broadcast(real, imaginary))


def product(a: Operand, b: Operand) -> Operand:
    """The product of two operands."""
    (p, q), (r, s) = a, b
    if q is None and s is None:
        return p * r, None
    if q is None or s is None:
        return p * r, p * s if q is None else q * r
    return p * r - q * s, p * s + q * r


def sum_of(a: Operand, b: Operand, sign: int = 1) -> Operand:
    """The sum of two operands, or with sign -1 their difference."""
    (p, q), (r, s) = a, b
    if sign < 0:
        r, s = -r, None if s is None else -s
    return p + r, s if q is None else q if s is None else q + s


def quotient(a: Operand, b: Operand) -> Operand:
    """The divisor is scaled by its larger part, so that no square overflows."""
    (p, q), (r, s) = a, b
    if s is None:
        return p / r, None if q is None else q / r
    if not isinstance(r, Tensor):
        scale = max(abs(r), abs(s))
        if not 0 < scale < math.inf:
            raise UnsupportedOp(f"division by {complex(r, s)}")
    else:
        scale = torch.maximum(r.abs(), s.abs())
    u, v = r / scale, s / scale
    square = r * u + s * v
    if q is None:
        return p * u / square, -p * v / square
    return (p * u + q * v) / square, (q * u - p * v) / square


def complex_of(value: Operand) -> Complex:
    """An operand as a complex tensor."""
    real, imaginary = value
    return in_one_shape(real, torch.zeros_like(real) if imaginary is None else imaginary)


def size_of(z: Complex) -> Tensor:
    """The absolute value."""
    return torch.hypot(z.real, z.imaginary)


def angle_of(z: Complex) -> Tensor:
    """The angle, from -pi to pi."""
    return torch.atan2(z.imaginary, z.real)


def _sgn(z: Complex) -> Complex:
    size = size_of(z)
    return z.each(lambda part: torch.where(size == 0, 0.0, part / size))


def _conj(z: Complex) -> Complex:
    return Complex(z.real, -z.imaginary)


def _square(z: Complex) -> Complex:
    return complex_of(product((z.real, z.imaginary), (z.real, z.imaginary)))


def inverse(z: Complex) -> Complex:
    """1 / z."""
    return complex_of(quotient((1.0, None), (z.real, z.imaginary)))


def square_root(z: Complex) -> Complex:
    """The part that is a sum is computed by a root, the other one by a division, without cancellation."""
    larger = torch.sqrt(size_of(z) * 0.5 + z.real.abs() * 0.5)
    smaller = torch.where(larger == 0, z.imaginary, z.imaginary / (2 * larger))
    is_right = z.real >= 0
    return Complex(
        torch.where(is_right, larger, smaller.abs()), torch.where(is_right, smaller, larger.copysign(z.imaginary))
    )


def inverse_root(z: Complex) -> Complex:
    """1 / sqrt(z)."""
    return inverse(square_root(z))


def _exp(z: Complex) -> Complex:
    size = z.real.exp()
    return Complex(
        torch.where(z.imaginary == 0, size, size * z.imaginary.cos()),
        torch.where(z.imaginary == 0, z.imaginary, size * z.imaginary.sin()),
    )


def _exp2(z: Complex) -> Complex:
    return _exp(z.each(lambda part: part * math.log(2)))


def _log_size(z: Complex) -> Tensor:
    """log(|z|), near 1 without cancellation."""
    a, b = z.real.abs(), z.imaginary.abs()
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    is_near = (large > 0.5) & (large < 1.5)
    near = torch.where(is_near, (large - 1) * (large + 1) + small * small, 0.0)
    return torch.where(is_near, 0.5 * near.log1p(), size_of(z).log())


def _log(z: Complex) -> Complex:
    return Complex(_log_size(z), angle_of(z))


def _logarithm(base: float) -> Callable[[Complex], Complex]:
    return lambda z: _log(z).each(lambda part: part * (1 / math.log(base)))


def _sinh(z: Complex) -> Complex:
    a, b = z.real, z.imaginary
    return Complex(a.sinh() * b.cos(), a.cosh() * b.sin())


def _cosh(z: Complex) -> Complex:
    a, b = z.real, z.imaginary
    return Complex(a.cosh() * b.cos(), a.sinh() * b.sin())


def _tanh(z: Complex) -> Complex:
    """Kahan, "Branch cuts for complex elementary functions", 1987; where the hyperbolic sine would overflow, +-1 and
    the first term of what is left."""
    a, b = z.real, z.imaginary
    is_far = a.abs() > 20
    inner = torch.where(is_far, 0.0, a)
    sine, tangent = inner.sinh(), b.tan()
    slope = 1 + tangent * tangent
    below = 1 + slope * sine * sine
    far = 4 * b.sin() * b.cos() * (-2 * a.abs()).exp()
    return Complex(
        torch.where(is_far, a.sign(), slope * torch.sqrt(1 + sine * sine) * sine / below),
        torch.where(is_far, far, tangent / below),
    )


def _turned(function: Callable[[Complex], Complex]) -> Callable[[Complex], Complex]:
    """f(z) = -i g(i z): the sine and the tangent by their hyperbolic kin."""

    def handle(z: Complex) -> Complex:
        found = function(Complex(-z.imaginary, z.real))
        return Complex(found.imaginary, -found.real)

    return handle


def _cos(z: Complex) -> Complex:
    return _cosh(Complex(-z.imaginary, z.real))


def _sigmoid(z: Complex) -> Complex:
    grown = _exp(z.each(torch.neg))
    return inverse(Complex(grown.real + 1, grown.imaginary))


ELEMENTARY: Mapping[str, Callable[[Complex], Any]] = {
    "abs": size_of,
    "angle": angle_of,
    "sgn": _sgn,
    "_conj": _conj,
    "_conj_physical": _conj,
    "conj_physical": _conj,
    "square": _square,
    "reciprocal": inverse,
    "sqrt": square_root,
    "rsqrt": inverse_root,
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "log2": _logarithm(2),
    "log10": _logarithm(10),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "sin": _turned(_sinh),
    "tan": _turned(_tanh),
    "cos": _cos,
    "sigmoid": _sigmoid,
}
"""Functions of one complex tensor by the names of their operators, without namespace and overload."""
