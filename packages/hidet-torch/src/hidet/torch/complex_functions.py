"""What aten operators do to the real and imaginary parts of complex tensors, in torch's own real operators.

Each function is called as `function(dtype, *args, **kwargs)` with the arguments of its operator, complex tensors being
`Complex`, and the type of the parts of its first result, None where that is real. It returns what the operator does,
and raises for what it does not know, which runs in torch.

A real operand has no imaginary part: it is not multiplied with zeros, as in the mixed arithmetic of C (ISO C, Annex G).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from hidet.errors import UnsupportedOp
from hidet.torch import compat
from hidet.torch.fourier import transform, transform_of_real, transform_to_real
from torch import Tensor

PARTS: Mapping[Any, torch.dtype] = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Types of the parts of complex types that are computed with."""


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as two real ones of the same shape and type."""

    real: Tensor
    imaginary: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> Complex:
        """Both parts changed alike."""
        return Complex(change(self.real), change(self.imaginary))


Function = Callable[..., Any]
# A real operand is (part, None).
_Operand = tuple[Any, Any]


@cache
def functions() -> Mapping[str, Function]:
    """Functions by the names of their operators."""
    found: dict[str, Function] = {}
    for name, (function, *overloads) in _ARITHMETIC.items():
        found |= {f"aten.{name}.{overload}": function for overload in overloads}
    found |= {f"aten.{name}.default": _unary(function) for name, function in _UNARY.items()}
    found |= {f"aten.{name}.default": _test(name, function) for name, function in _TESTS.items()}
    found |= _SINGLE
    return found


# --- operators that do the same to each part -------------------------------------------------------------------------

# With tensors of integers or booleans that say where.
_AT_PLACES = frozenset(
    f"aten.{name}"
    for name in (
        *("index.Tensor", "_unsafe_index.Tensor", "index_select.default", "gather.default", "embedding.default"),
        *("index_put.default", "scatter.src", "scatter_add.default", "index_add.default", "masked_select.default"),
        *("masked_scatter.default", "take.default"),
    )
)
_LINEAR = _AT_PLACES | frozenset(
    f"aten.{name}"
    for name in (
        *("clone.default", "neg.default", "flip.default", "roll.default", "repeat.default", "positive.default"),
        *("sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default", "tril.default"),
        *("triu.default", "diag_embed.default", "slice_scatter.default", "select_scatter.default", "copy.default"),
        *("diagonal_scatter.default", "trace.default", "zeros_like.default", "new_zeros.default"),
        *("reflection_pad1d.default", "reflection_pad2d.default", "replication_pad1d.default"),
        *("replication_pad2d.default", "repeat_interleave.self_int", "lift_fresh_copy.default"),
        *("empty_like.default", "new_empty.default", "_unsafe_view.default"),
    )
)

_OTHER_MEMORY = frozenset({"aten.as_strided.default", "aten.view.dtype"})


def applies_to_parts(operator: Any) -> bool:
    """Whether an operator shows or moves elements, or is linear in all of them."""
    name = str(operator)
    return name in _LINEAR or (compat.shows_memory(operator) and name not in _OTHER_MEMORY)


def on_parts(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The operator on the real parts, and on the imaginary parts; real operands have zeros for these."""
    name = str(operator)
    if not isinstance(args[0], Complex):
        raise UnsupportedOp("a complex result of a real operand")
    # The parts of what torch can view have other strides where we computed them.
    target = torch.reshape if name in ("aten.view.default", "aten._unsafe_view.default") else operator
    if kwargs.get("dtype") is not None:
        kwargs = {**kwargs, "dtype": PARTS[kwargs["dtype"]]}

    def part(argument: Any, number: int) -> Any:
        if isinstance(argument, Complex):
            return argument.imaginary if number else argument.real
        if isinstance(argument, list | tuple):
            return type(argument)(part(item, number) for item in argument)
        says_where = name in _AT_PLACES and isinstance(argument, Tensor) and not argument.is_floating_point()
        if isinstance(argument, Tensor) and number and not says_where:
            return torch.zeros_like(argument)
        return argument

    named = [{key: part(value, number) for key, value in kwargs.items()} for number in (0, 1)]
    real, imaginary = (target(*part(tuple(args), number), **named[number]) for number in (0, 1))
    if isinstance(real, tuple | list):
        return list(map(Complex, real, imaginary))
    return Complex(real, imaginary)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _operand(given: Any, dtype: torch.dtype) -> _Operand:
    """Parts in the type of the result; None for the imaginary part of what is real."""
    if isinstance(given, Complex):
        return given.real.to(dtype), given.imaginary.to(dtype)
    if isinstance(given, Tensor):
        return given.to(dtype), None
    return (given.real, given.imag) if isinstance(given, complex) else (given, None)


def _whole(real: Any, imaginary: Any) -> Complex:
    """Parts in one shape."""
    # torch annotates its function by none.
    broadcast: Function = torch.broadcast_tensors
    return Complex(*broadcast(real, imaginary))


def _product(a: _Operand, b: _Operand) -> _Operand:
    (p, q), (r, s) = a, b
    if q is None and s is None:
        return p * r, None
    if q is None or s is None:
        return p * r, p * s if q is None else q * r
    return p * r - q * s, p * s + q * r


def _sum(a: _Operand, b: _Operand, sign: int = 1) -> _Operand:
    (p, q), (r, s) = a, b
    if sign < 0:
        r, s = -r, None if s is None else -s
    return p + r, s if q is None else q if s is None else q + s


def _quotient(a: _Operand, b: _Operand) -> _Operand:
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


def _complex_of(value: _Operand) -> Complex:
    real, imaginary = value
    return _whole(real, torch.zeros_like(real) if imaginary is None else imaginary)


def _mul(dtype: torch.dtype, a: Any, b: Any) -> Complex:
    return _complex_of(_product(_operand(a, dtype), _operand(b, dtype)))


def _div(dtype: torch.dtype, a: Any, b: Any, *, rounding_mode: str | None = None) -> Complex:
    if rounding_mode is not None:
        raise UnsupportedOp(f"complex division with rounding_mode={rounding_mode!r}")
    return _complex_of(_quotient(_operand(a, dtype), _operand(b, dtype)))


def _add(dtype: torch.dtype, a: Any, b: Any, alpha: Any = 1) -> Complex:
    other = _operand(b, dtype)
    return _complex_of(_sum(_operand(a, dtype), other if alpha == 1 else _product(other, _operand(alpha, dtype))))


def _sub(dtype: torch.dtype, a: Any, b: Any, alpha: Any = 1) -> Complex:
    other = _operand(b, dtype)
    return _complex_of(_sum(_operand(a, dtype), other if alpha == 1 else _product(other, _operand(alpha, dtype)), -1))


def _rsub(dtype: torch.dtype, a: Any, b: Any, alpha: Any = 1) -> Complex:
    return _sub(dtype, b, a, alpha)


def _addcmul(dtype: torch.dtype, x: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    product = _product(_operand(a, dtype), _operand(b, dtype))
    return _complex_of(_sum(_operand(x, dtype), product if value == 1 else _product(product, _operand(value, dtype))))


def _addcdiv(dtype: torch.dtype, x: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    quotient = _quotient(_operand(a, dtype), _operand(b, dtype))
    return _complex_of(_sum(_operand(x, dtype), quotient if value == 1 else _product(quotient, _operand(value, dtype))))


def _matmul(name: str) -> Function:
    operator = getattr(torch, name)

    def function(dtype: torch.dtype, a: Any, b: Any) -> Complex:
        return _complex_of(_matrix_product(operator, _operand(a, dtype), _operand(b, dtype)))

    return function


def _matrix_product(operator: Function, a: _Operand, b: _Operand) -> _Operand:
    (p, q), (r, s) = a, b
    if q is None or s is None:
        return operator(p, r), operator(p, s) if q is None else operator(q, r)
    return operator(p, r) - operator(q, s), operator(p, s) + operator(q, r)


def _addmm(name: str) -> Function:
    operator = getattr(torch, name)

    def function(dtype: torch.dtype, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
        product = _matrix_product(operator, _operand(a, dtype), _operand(b, dtype))
        if alpha != 1:
            product = _product(product, _operand(alpha, dtype))
        if beta == 0:
            return _complex_of(product)
        scaled = _operand(x, dtype) if beta == 1 else _product(_operand(x, dtype), _operand(beta, dtype))
        return _complex_of(_sum(scaled, product))

    return function


def _equal(_: Any, a: Any, b: Any) -> Tensor:
    (p, q), (r, s) = _of_common_type(a, b)
    found: Tensor = (p == r) & ((0 if q is None else q) == (0 if s is None else s))
    return found


def _not_equal(_: Any, a: Any, b: Any) -> Tensor:
    return _equal(_, a, b).logical_not()


def _of_common_type(a: Any, b: Any) -> tuple[_Operand, _Operand]:
    types = [x.real.dtype for x in (a, b) if isinstance(x, Complex)]
    types += [x.dtype for x in (a, b) if isinstance(x, Tensor) and x.is_floating_point() and x.dim()]
    wide = torch.float64 if torch.float64 in types else torch.float32
    return _operand(a, wide), _operand(b, wide)


def _where(dtype: torch.dtype, condition: Tensor, x: Any, y: Any) -> Complex:
    (p, q), (r, s) = _operand(x, dtype), _operand(y, dtype)
    return _whole(
        torch.where(condition, p, r), torch.where(condition, 0.0 if q is None else q, 0.0 if s is None else s).to(dtype)
    )


def _masked_fill(dtype: torch.dtype, x: Any, mask: Tensor, value: Any) -> Complex:
    return _where(dtype, mask, value, x)


# --- one operand -----------------------------------------------------------------------------------------------------


def _unary(function: Callable[[Complex], Any]) -> Function:
    def handle(_: Any, x: Any) -> Any:
        if not isinstance(x, Complex):
            raise UnsupportedOp("a complex result of a real operand")
        return function(x)

    return handle


def _abs(z: Complex) -> Tensor:
    return torch.hypot(z.real, z.imaginary)


def _angle(z: Complex) -> Tensor:
    return torch.atan2(z.imaginary, z.real)


def _sgn(z: Complex) -> Complex:
    size = _abs(z)
    return z.each(lambda part: torch.where(size == 0, 0.0, part / size))


def _conj(z: Complex) -> Complex:
    return Complex(z.real, -z.imaginary)


def _square(z: Complex) -> Complex:
    return _complex_of(_product((z.real, z.imaginary), (z.real, z.imaginary)))


def _reciprocal(z: Complex) -> Complex:
    return _complex_of(_quotient((1.0, None), (z.real, z.imaginary)))


def _sqrt(z: Complex) -> Complex:
    """The part that is a sum is computed by a root, the other one by a division, without cancellation."""
    larger = torch.sqrt(_abs(z) * 0.5 + z.real.abs() * 0.5)
    smaller = torch.where(larger == 0, z.imaginary, z.imaginary / (2 * larger))
    is_right = z.real >= 0
    return Complex(
        torch.where(is_right, larger, smaller.abs()), torch.where(is_right, smaller, larger.copysign(z.imaginary))
    )


def _rsqrt(z: Complex) -> Complex:
    return _reciprocal(_sqrt(z))


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
    return torch.where(is_near, 0.5 * near.log1p(), _abs(z).log())


def _log(z: Complex) -> Complex:
    return Complex(_log_size(z), _angle(z))


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
    return _reciprocal(Complex(grown.real + 1, grown.imaginary))


def _polar_parts(size: Any, angle: Any) -> Complex:
    return _whole(size * torch.cos(angle), size * torch.sin(angle))


def _power(dtype: torch.dtype, base: Any, exponent: Any) -> Complex:
    if isinstance(base, Complex) and not isinstance(exponent, Tensor | Complex):
        z = base.each(lambda part: part.to(dtype))
        if exponent in (0.5, -0.5):
            return _sqrt(z) if exponent > 0 else _rsqrt(z)
        if exponent in (-3, -2, -1, 1, 2, 3):
            found = z
            for _ in range(abs(int(exponent.real)) - 1):
                found = _mul(dtype, found, z)
            return found if exponent.real > 0 else _reciprocal(found)
        if exponent == 0:
            return Complex(torch.ones_like(z.real), torch.zeros_like(z.real))
    (p, q), (c, d) = _operand(base, dtype), _operand(exponent, dtype)
    if not isinstance(p, Tensor):
        p, q = (None if part is None else torch.full((), part, dtype=dtype, device=c.device) for part in (p, q))
    z = Complex(p, torch.zeros_like(p) if q is None else q)
    size, angle = _abs(z), _angle(z)
    if d is None:
        found = _polar_parts(size**c, angle * c)
    else:
        rate = size.log()
        found = _polar_parts(torch.exp(c * rate - d * angle), d * rate + c * angle)
    if not isinstance(c, Tensor) and c == 0:
        return found
    is_zero = (size == 0) & (c != 0) if isinstance(c, Tensor) else size == 0
    return found.each(lambda part: torch.where(is_zero, 0.0, part))


# --- conversions, new tensors ----------------------------------------------------------------------------------------


def _view_as_complex(_: Any, x: Tensor) -> Complex:
    return Complex(x.select(-1, 0), x.select(-1, 1))


def _view_as_real(_: Any, z: Complex) -> Tensor:
    return torch.stack([z.real, z.imaginary], -1)


def _from_parts(dtype: torch.dtype, real: Tensor, imaginary: Tensor) -> Complex:
    return _whole(real.to(dtype), imaginary.to(dtype))


def _polar(dtype: torch.dtype, size: Tensor, angle: Tensor) -> Complex:
    return _polar_parts(size, angle)


def _to_copy(part: Any, x: Any, *, dtype: torch.dtype | None = None, **layout: Any) -> Any:
    if layout.pop("device", None) is not None:
        raise UnsupportedOp("complex numbers on their way to another device")
    if part is None:
        return x.real.to(dtype)
    return _complex_of(_operand(x, part)).each(torch.clone)


def _norm(_: Any, x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(_abs(x), order, dim, keepdim, dtype=dtype)
    return norm


def _cat(dtype: torch.dtype, tensors: Sequence[Any], dim: int = 0) -> Complex:
    parts = [_complex_of(_operand(x, dtype)) for x in tensors]
    return Complex(torch.cat([z.real for z in parts], dim), torch.cat([z.imaginary for z in parts], dim))


def _stack(dtype: torch.dtype, tensors: Sequence[Any], dim: int = 0) -> Complex:
    parts = [_complex_of(_operand(x, dtype)) for x in tensors]
    return Complex(torch.stack([z.real for z in parts], dim), torch.stack([z.imaginary for z in parts], dim))


def _pad(dtype: torch.dtype, z: Complex, pad: Sequence[Any], value: Any = 0) -> Complex:
    filler = complex(value)
    pad_one = torch.ops.aten.constant_pad_nd
    return Complex(pad_one(z.real, pad, filler.real), pad_one(z.imaginary, pad, filler.imag))


def _full(part: torch.dtype, /, size: Sequence[Any], value: Any, **layout: Any) -> Complex:
    filler, device = complex(value), layout.get("device")
    return Complex(
        torch.full(size, filler.real, dtype=part, device=device),
        torch.full(size, filler.imag, dtype=part, device=device),
    )


def _scalar(part: torch.dtype, /, value: Any, **layout: Any) -> Complex:
    return _full(part, (), value, **layout)


def _filled(value: int) -> Function:
    def function(part: torch.dtype, /, size: Sequence[Any], **layout: Any) -> Complex:
        return _full(part, size, value, **layout)

    return function


def _full_like(part: torch.dtype, /, x: Any, value: Any, **layout: Any) -> Complex:
    shape_of, filler = x.real if isinstance(x, Complex) else x, complex(value)
    return Complex(
        torch.full_like(shape_of, filler.real, dtype=part), torch.full_like(shape_of, filler.imag, dtype=part)
    )


def _ones_like(part: torch.dtype, /, x: Any, **layout: Any) -> Complex:
    return _full_like(part, x, 1)


def _fill(dtype: torch.dtype, x: Complex, value: Any) -> Complex:
    return _full_like(dtype, x, value)


def _fft(_: Any, z: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    return _complex_of(transform((z.real, z.imaginary), dim, normalization, forward))


def _fft_of_real(_: Any, x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    return _complex_of(transform_of_real(x, dim, normalization, onesided))


def _fft_to_real(_: Any, z: Complex, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Tensor:
    return transform_to_real((z.real, z.imaginary), dim, normalization, last_dim_size)


_TESTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "isnan": torch.logical_or,
    "isinf": torch.logical_or,
    "isfinite": torch.logical_and,
}


def _test(name: str, joined: Callable[[Tensor, Tensor], Tensor]) -> Function:
    ask = getattr(torch, name)
    return lambda _, z: joined(ask(z.real), ask(z.imaginary))


def _logical_not(_: Any, z: Complex) -> Tensor:
    return (z.real == 0) & (z.imaginary == 0)


_UNARY: Mapping[str, Callable[[Complex], Any]] = {
    "abs": _abs,
    "angle": _angle,
    "sgn": _sgn,
    "_conj": _conj,
    "_conj_physical": _conj,
    "conj_physical": _conj,
    "square": _square,
    "reciprocal": _reciprocal,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
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

# Function and overloads.
_ARITHMETIC: Mapping[str, tuple[Any, ...]] = {
    "add": (_add, "Tensor", "Scalar"),
    "sub": (_sub, "Tensor", "Scalar"),
    "rsub": (_rsub, "Tensor", "Scalar"),
    "mul": (_mul, "Tensor", "Scalar"),
    "div": (_div, "Tensor", "Scalar", "Tensor_mode"),
    "addcmul": (_addcmul, "default"),
    "addcdiv": (_addcdiv, "default"),
    "pow": (_power, "Tensor_Scalar", "Tensor_Tensor", "Scalar"),
    "eq": (_equal, "Tensor", "Scalar"),
    "ne": (_not_equal, "Tensor", "Scalar"),
    "where": (_where, "self"),
    "masked_fill": (_masked_fill, "Scalar", "Tensor"),
}

_SINGLE: Mapping[str, Function] = {
    **{f"aten.{name}.default": _matmul(name) for name in ("mm", "bmm", "mv", "dot")},
    "aten.addmm.default": _addmm("mm"),
    "aten.baddbmm.default": _addmm("bmm"),
    "aten.addmv.default": _addmm("mv"),
    "aten.view_as_complex.default": _view_as_complex,
    "aten.view_as_real.default": _view_as_real,
    "aten.complex.default": _from_parts,
    "aten.polar.default": _polar,
    "aten._to_copy.default": _to_copy,
    "aten.linalg_vector_norm.default": _norm,
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.constant_pad_nd.default": _pad,
    "aten.full.default": _full,
    "aten.scalar_tensor.default": _scalar,
    "aten.zeros.default": _filled(0),
    "aten.ones.default": _filled(1),
    "aten.full_like.default": _full_like,
    "aten.ones_like.default": _ones_like,
    "aten.fill.Scalar": _fill,
    "aten.logical_not.default": _logical_not,
    "aten._fft_c2c.default": _fft,
    "aten._fft_r2c.default": _fft_of_real,
    "aten._fft_c2r.default": _fft_to_real,
}
