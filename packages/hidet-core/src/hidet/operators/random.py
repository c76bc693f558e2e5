"""Random numbers, index-wise: element i of a result depends on (seed, offset, stream, i) alone.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with key = seed
and counter = (i, offset with stream in its high word), so results are reproducible, can be recomputed anywhere, and
fuse like any element-wise operator. Inputs `seed` and `offset` are i64 scalars drawn once a call; attribute `stream`
keeps the operators of one graph apart. They are pure: nodes with equal inputs and attributes give equal numbers.

Who calls the graph draws the scalars, or `random_state` does, which is not pure: a host operator, because it reads and
changes the state of numpy's generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute, number, single
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType, ValueType, contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.create import DEVICE
from hidet.operators.rules import arithmetic_dtype, require_dtype, require_rank, widen

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_U32, _U64 = dtypes.u32, dtypes.u64


def _low(value: Expr) -> Expr:
    """The low 32 bits of a u64."""
    return build.cast(build.binary("and", value, 0xFFFFFFFF), _U32)


def _high(value: Expr) -> Expr:
    """The high 32 bits of a u64."""
    return build.cast(build.binary("shr", value, 32), _U32)


def philox(counter: Sequence[Expr], key: Sequence[Expr]) -> tuple[Expr, Expr, Expr, Expr]:
    """Four random u32 words of Philox4x32-10 from four counter words and two key words, all u32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for step in range(_ROUNDS):
        if step:
            k0, k1 = k0 + _WEYL[0], k1 + _WEYL[1]
        first = build.cast(c0, _U64) * _MULTIPLIERS[0]
        second = build.cast(c2, _U64) * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            build.binary("xor", build.binary("xor", _high(second), c1), k0),
            _low(second),
            build.binary("xor", build.binary("xor", _high(first), c3), k1),
            _low(first),
        )
    return c0, c1, c2, c3


def _words(seed: Operand, offset: Operand, stream: int, place: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """The random words of the element at row-major position `place`."""
    key, position = build.cast(seed[()], _U64), build.cast(place, _U64)
    base = build.cast(offset[()], _U64)
    upper = build.binary("xor", _high(base), stream)
    return philox((_low(position), _high(position), _low(base), upper), (_low(key), _high(key)))


def _fraction(words: Sequence[Expr], dtype: DType) -> Expr:
    """A number in [0, 1) with as many random bits as `dtype` holds exactly, in its arithmetic type."""
    digits = dtype.mantissa_bits + 1
    wide = arithmetic_dtype(dtype)
    if digits <= 32:
        bits = build.binary("shr", words[0], 32 - digits)
    else:
        whole = build.binary("or", build.binary("shl", build.cast(words[0], _U64), 32), build.cast(words[1], _U64))
        bits = build.binary("shr", whole, 64 - digits)
    return build.cast(bits, wide) * number(2.0**-digits, wide)


def _require_scalars(name: str, seed: Operand, offset: Operand) -> None:
    for operand in (seed, offset):
        require_rank(name, operand, at_least=0, at_most=0)
        if operand.dtype != dtypes.i64:
            raise DTypeError(f"operator {name} takes i64 scalars for seed and offset, got {operand.dtype}")


Draw = Callable[..., Expr]


def _definition(name: str, seed: Operand, offset: Operand, stream: int, shape: Sequence[Dim], draw: Draw) -> Definition:
    """`draw(words)` for every element of `shape`."""
    _require_scalars(name, seed, offset)
    strides = contiguous_strides(shape)
    stage = compute(name, shape, lambda *axes: draw(_words(seed, offset, stream, build.flatten(axes, strides))))
    return single((seed, offset), stage)


def _require_float(name: str, dtype: DType) -> None:
    if not (dtype.is_float and dtype.is_compute):
        raise DTypeError(f"operator {name} makes floating-point numbers, got dtype {dtype}")


def _rand(
    seed: Operand, offset: Operand, *, shape: Sequence[Dim], dtype: DType, stream: int, device: str
) -> Definition:
    _require_float("rand", dtype)
    return _definition("rand", seed, offset, stream, shape, lambda words: build.cast(_fraction(words, dtype), dtype))


def _randn(
    seed: Operand, offset: Operand, *, shape: Sequence[Dim], dtype: DType, stream: int, device: str
) -> Definition:
    """Box and Muller, "A note on the generation of random normal deviates", 1958."""
    _require_float("randn", dtype)
    kind = dtypes.f64 if dtype == dtypes.f64 else dtypes.f32

    def draw(words: Sequence[Expr]) -> Expr:
        # 1 - u is in (0, 1], where the logarithm is finite.
        radius = build.unary("sqrt", build.unary("log", 1 - _fraction(words[:2], kind)) * -2)
        return build.cast(radius * build.unary("cos", _fraction(words[2:], kind) * (2 * math.pi)), dtype)

    return _definition("randn", seed, offset, stream, shape, draw)


def _randint(
    seed: Operand,
    offset: Operand,
    *,
    low: int,
    high: int,
    shape: Sequence[Dim],
    dtype: DType,
    stream: int,
    device: str,
) -> Definition:
    count = high - low
    if not 0 < count <= 2**63:
        raise ShapeError(f"operator randint: no integers from {low} up to, not including, {high}")

    def draw(words: Sequence[Expr]) -> Expr:
        if count <= 2**32:
            # The high word of a 32-bit fraction times the count: uniform up to count / 2^32.
            chosen = build.binary("shr", build.cast(words[0], _U64) * count, 32)
        else:
            pair = build.binary("or", build.binary("shl", build.cast(words[0], _U64), 32), build.cast(words[1], _U64))
            chosen = pair % count
        return build.cast(build.cast(chosen, dtypes.i64) + low, dtype)

    return _definition("randint", seed, offset, stream, shape, draw)


def _bernoulli(p: Operand, seed: Operand, offset: Operand, *, dtype: DType | None, stream: int) -> Definition:
    require_dtype("bernoulli", p, "float")
    _require_scalars("bernoulli", seed, offset)
    strides = contiguous_strides(p.shape)
    target = p.dtype if dtype is None else dtype
    kind = dtypes.f64 if p.dtype == dtypes.f64 else dtypes.f32

    def value(*axes: Expr) -> Expr:
        drawn = _fraction(_words(seed, offset, stream, build.flatten(axes, strides)), kind)
        return build.select(drawn < widen(p[axes]), number(1, target), number(0, target))

    return single((p, seed, offset), compute("bernoulli", p.shape, value))


def _infer(types: Sequence[TensorType], attrs: Attrs) -> Sequence[ValueType]:
    return (TensorType(attrs["dtype"], attrs["shape"], device=attrs["device"]),)


_STREAM = Attribute("stream", 0, "number of this operator in its graph")
_SHAPE = Attribute("shape")
_DTYPE = Attribute("dtype", dtypes.f32)


def _spec(name: str, define: Callable[..., Definition], doc: str, *attributes: Attribute) -> OperatorSpec:
    return OperatorSpec(
        name=name,
        inputs=("seed", "offset"),
        attributes=(*attributes, _STREAM, DEVICE),
        define=define,
        infer=_infer,
        doc=doc,
    )


def _draw_state(*, attrs: Attrs) -> tuple[Any, Any]:
    import numpy

    seed, offset = numpy.random.randint(0, 2**63 - 1, size=2, dtype=numpy.int64)
    return numpy.asarray(seed), numpy.asarray(offset)


def _infer_state(types: Sequence[TensorType], attrs: Attrs) -> Sequence[ValueType]:
    return TensorType(dtypes.i64, ()), TensorType(dtypes.i64, ())


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="random_state",
        inputs=(),
        kind="host",
        infer=_infer_state,
        call=_draw_state,
        evaluate=lambda values, attrs: _draw_state(attrs=attrs),
        is_random=True,
        doc="Seed and offset for random operators, other ones every time it runs, from numpy's global generator: "
        "numpy.random.seed makes them reproducible.",
    ),
    _spec("rand", _rand, "Uniform numbers in [0, 1) of a floating-point type; torch.rand.", _SHAPE, _DTYPE),
    _spec(
        "randn",
        _randn,
        "Normal numbers of mean 0 and variance 1 of a floating-point type; torch.randn.",
        _SHAPE,
        _DTYPE,
    ),
    _spec(
        "randint",
        _randint,
        "Uniform integers from low up to, not including, high, converted to any type; torch.randint.",
        Attribute("low", 0),
        Attribute("high"),
        _SHAPE,
        Attribute("dtype", dtypes.i64),
    ),
    OperatorSpec(
        name="bernoulli",
        inputs=("p", "seed", "offset"),
        attributes=(Attribute("dtype", None, "None is the type of p"), _STREAM),
        define=_bernoulli,
        doc="1 with probability p[...], else 0, in the shape of p; torch.bernoulli. p: floating-point.",
    ),
)
