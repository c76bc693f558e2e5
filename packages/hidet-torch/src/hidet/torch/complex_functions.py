"""What aten operators do to the real and imaginary parts of complex tensors, in torch's own real operators.

Each function is called as `function(dtype, *args, **kwargs)` with the arguments of its operator, complex tensors being
`Complex`, and the type of the parts of its first result, None where that is real. It returns what the operator does,
and raises for what it does not know, which runs in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from hidet.errors import UnsupportedOp
from hidet.torch import compat
from hidet.torch.complex_numbers import (
    ELEMENTARY,
    PARTS,
    Complex,
    Operand,
    angle_of,
    complex_of,
    in_one_shape,
    inverse,
    inverse_root,
    operand,
    product,
    quotient,
    size_of,
    square_root,
    sum_of,
)
from hidet.torch.fourier import transform, transform_of_real, transform_to_real
from torch import Tensor

Function = Callable[..., Any]


@cache
def functions() -> Mapping[str, Function]:
    """Functions by the names of their operators."""
    found: dict[str, Function] = {}
    for name, (function, *overloads) in _ARITHMETIC.items():
        found |= {f"aten.{name}.{overload}": function for overload in overloads}
    found |= {f"aten.{name}.default": _unary(function) for name, function in ELEMENTARY.items()}
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
    if target is torch.reshape and args[0].pairs is not None:
        # The pairs often lie in one piece, of which this is a view; either part alone would be copied.
        return Complex.of(torch.reshape(args[0].pairs, (*args[1], 2)))
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


def _mul(dtype: torch.dtype, a: Any, b: Any) -> Complex:
    return complex_of(product(operand(a, dtype), operand(b, dtype)))


def _div(dtype: torch.dtype, a: Any, b: Any, *, rounding_mode: str | None = None) -> Complex:
    if rounding_mode is not None:
        raise UnsupportedOp(f"complex division with rounding_mode={rounding_mode!r}")
    return complex_of(quotient(operand(a, dtype), operand(b, dtype)))


def _add(dtype: torch.dtype, a: Any, b: Any, alpha: Any = 1) -> Complex:
    other = operand(b, dtype)
    return complex_of(sum_of(operand(a, dtype), other if alpha == 1 else product(other, operand(alpha, dtype))))


def _sub(dtype: torch.dtype, a: Any, b: Any, alpha: Any = 1) -> Complex:
    other = operand(b, dtype)
    return complex_of(sum_of(operand(a, dtype), other if alpha == 1 else product(other, operand(alpha, dtype)), -1))


def _rsub(dtype: torch.dtype, a: Any, b: Any, alpha: Any = 1) -> Complex:
    return _sub(dtype, b, a, alpha)


def _addcmul(dtype: torch.dtype, x: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    found = product(operand(a, dtype), operand(b, dtype))
    return complex_of(sum_of(operand(x, dtype), found if value == 1 else product(found, operand(value, dtype))))


def _addcdiv(dtype: torch.dtype, x: Any, a: Any, b: Any, *, value: Any = 1) -> Complex:
    found = quotient(operand(a, dtype), operand(b, dtype))
    return complex_of(sum_of(operand(x, dtype), found if value == 1 else product(found, operand(value, dtype))))


def _matmul(name: str) -> Function:
    operator = getattr(torch, name)

    def function(dtype: torch.dtype, a: Any, b: Any) -> Complex:
        return complex_of(_matrix_product(operator, operand(a, dtype), operand(b, dtype)))

    return function


def _matrix_product(operator: Function, a: Operand, b: Operand) -> Operand:
    (p, q), (r, s) = a, b
    if q is None or s is None:
        return operator(p, r), operator(p, s) if q is None else operator(q, r)
    return operator(p, r) - operator(q, s), operator(p, s) + operator(q, r)


def _addmm(name: str) -> Function:
    operator = getattr(torch, name)

    def function(dtype: torch.dtype, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Complex:
        found = _matrix_product(operator, operand(a, dtype), operand(b, dtype))
        if alpha != 1:
            found = product(found, operand(alpha, dtype))
        if beta == 0:
            return complex_of(found)
        scaled = operand(x, dtype) if beta == 1 else product(operand(x, dtype), operand(beta, dtype))
        return complex_of(sum_of(scaled, found))

    return function


def _equal(_: Any, a: Any, b: Any) -> Tensor:
    (p, q), (r, s) = _of_common_type(a, b)
    found: Tensor = (p == r) & ((0 if q is None else q) == (0 if s is None else s))
    return found


def _not_equal(_: Any, a: Any, b: Any) -> Tensor:
    return _equal(_, a, b).logical_not()


def _of_common_type(a: Any, b: Any) -> tuple[Operand, Operand]:
    types = [x.real.dtype for x in (a, b) if isinstance(x, Complex)]
    types += [x.dtype for x in (a, b) if isinstance(x, Tensor) and x.is_floating_point() and x.dim()]
    wide = torch.float64 if torch.float64 in types else torch.float32
    return operand(a, wide), operand(b, wide)


def _where(dtype: torch.dtype, condition: Tensor, x: Any, y: Any) -> Complex:
    (p, q), (r, s) = operand(x, dtype), operand(y, dtype)
    return in_one_shape(
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


def _polar_parts(size: Any, angle: Any) -> Complex:
    return in_one_shape(size * torch.cos(angle), size * torch.sin(angle))


def _power(dtype: torch.dtype, base: Any, exponent: Any) -> Complex:
    if isinstance(base, Complex) and not isinstance(exponent, Tensor | Complex):
        z = base.each(lambda part: part.to(dtype))
        if exponent in (0.5, -0.5):
            return square_root(z) if exponent > 0 else inverse_root(z)
        if exponent in (-3, -2, -1, 1, 2, 3):
            found = z
            for _ in range(abs(int(exponent.real)) - 1):
                found = _mul(dtype, found, z)
            return found if exponent.real > 0 else inverse(found)
        if exponent == 0:
            return Complex(torch.ones_like(z.real), torch.zeros_like(z.real))
    (p, q), (c, d) = operand(base, dtype), operand(exponent, dtype)
    if not isinstance(p, Tensor):
        p, q = (None if part is None else torch.full((), part, dtype=dtype, device=c.device) for part in (p, q))
    z = Complex(p, torch.zeros_like(p) if q is None else q)
    size, angle = size_of(z), angle_of(z)
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
    return Complex.of(x)


def _view_as_real(_: Any, z: Complex) -> Tensor:
    return torch.stack([z.real, z.imaginary], -1)


def _from_parts(dtype: torch.dtype, real: Tensor, imaginary: Tensor) -> Complex:
    return in_one_shape(real.to(dtype), imaginary.to(dtype))


def _polar(dtype: torch.dtype, size: Tensor, angle: Tensor) -> Complex:
    return _polar_parts(size, angle)


def _to_copy(part: Any, x: Any, *, dtype: torch.dtype | None = None, **layout: Any) -> Any:
    if layout.pop("device", None) is not None:
        raise UnsupportedOp("complex numbers on their way to another device")
    if part is None:
        return x.real.to(dtype)
    return complex_of(operand(x, part)).each(torch.clone)


def _norm(_: Any, x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(size_of(x), order, dim, keepdim, dtype=dtype)
    return norm


def _cat(dtype: torch.dtype, tensors: Sequence[Any], dim: int = 0) -> Complex:
    parts = [complex_of(operand(x, dtype)) for x in tensors]
    return Complex(torch.cat([z.real for z in parts], dim), torch.cat([z.imaginary for z in parts], dim))


def _stack(dtype: torch.dtype, tensors: Sequence[Any], dim: int = 0) -> Complex:
    parts = [complex_of(operand(x, dtype)) for x in tensors]
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
    return complex_of(transform((z.real, z.imaginary), dim, normalization, forward))


def _fft_of_real(_: Any, x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    return complex_of(transform_of_real(x, dim, normalization, onesided))


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
