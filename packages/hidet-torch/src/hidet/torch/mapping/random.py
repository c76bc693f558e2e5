"""Random numbers: index-wise Philox, from a seed and an offset that the caller draws from torch's generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet import dtypes
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.torch.emitter import TorchEmitter
from hidet.torch.fx_nodes import operator_name
from hidet.torch.mapping import table
from hidet.torch.mapping.elementwise import arithmetic
from hidet.torch.recompute import draw_state, seeded


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten.rand.default": _drawn("rand"),
        "aten.rand_like.default": _drawn("rand"),
        "aten.randn.default": _drawn("randn"),
        "aten.randn_like.default": _drawn("randn"),
        "aten.randint.default": _randint,
        "aten.randint.low": _randint_from,
        "aten.randint_like.default": _randint_like,
        "aten.randint_like.low_dtype": _randint_like_from,
        "aten.bernoulli.default": _bernoulli,
        "aten.bernoulli.p": _bernoulli_p,
        "aten.native_dropout.default": _native_dropout,
        "aten.dropout.default": _dropout,
        "aten.uniform.default": _uniform,
        "aten.normal_functional.default": _normal,
        "aten.exponential.default": _exponential,
        operator_name(draw_state): _draw_state,
        operator_name(seeded): _seeded,
    }


def _refuse_generator(generator: object) -> None:
    if generator is not None:
        raise UnsupportedOp("random numbers from a generator of the caller")


def _draw(e: TorchEmitter, core: str, **attrs: Any) -> Value:
    """Numbers in the shape of the result."""
    seed, offset, stream = e.random_source()
    return e.emit(core, seed, offset, shape=e.result.shape, stream=stream, **attrs)


def _drawn(core: str) -> Handler:
    def handle(e: TorchEmitter, *args: object, generator: object = None, **layout: object) -> Value:
        _refuse_generator(generator)
        return _draw(e, core, dtype=e.result.dtype)

    return handle


def _integers(e: TorchEmitter, low: Number, high: Number) -> Value:
    if not (isinstance(low, int) and isinstance(high, int)):
        raise UnsupportedOp("random integers below a symbolic size")
    return e.cast(_draw(e, "randint", low=low, high=high, dtype=dtypes.i64), e.result.dtype)


def _randint(e: TorchEmitter, high: int, size: object, *, generator: object = None, **layout: object) -> Value:
    _refuse_generator(generator)
    return _integers(e, 0, high)


def _randint_from(
    e: TorchEmitter, low: int, high: int, size: object, *, generator: object = None, **layout: object
) -> Value:
    _refuse_generator(generator)
    return _integers(e, low, high)


def _randint_like(e: TorchEmitter, x: Value, high: int, **layout: object) -> Value:
    return _integers(e, 0, high)


def _randint_like_from(e: TorchEmitter, x: Value, low: int, high: int, **layout: object) -> Value:
    return _integers(e, low, high)


def _bernoulli(e: TorchEmitter, p: Value, *, generator: object = None) -> Value:
    _refuse_generator(generator)
    seed, offset, stream = e.random_source()
    return e.emit("bernoulli", p, seed, offset, stream=stream)


def _bernoulli_p(e: TorchEmitter, x: Value, p: float = 0.5, *, generator: object = None) -> Value:
    _refuse_generator(generator)
    return e.cast(_hits(e, p), e.result.dtype)


def _hits(e: TorchEmitter, p: float) -> Value:
    """True with probability `p`."""
    drawn = _draw(e, "rand", dtype=dtypes.f32)
    return e.emit("less", drawn, e.constant(p, dtypes.f32))


def _native_dropout(e: TorchEmitter, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """x / (1 - p) where the mask is true, else 0; the mask."""
    if train is False or p == 0:
        return x, e.emit("full", shape=x.tensor.shape, value=True, dtype=dtypes.boolean)
    kept = _hits(e, 1 - p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    scaled = arithmetic(e, "mul", x, scale)
    return e.emit("where", kept, scaled, e.constant(0, x.tensor.dtype)), kept


def _dropout(e: TorchEmitter, x: Value, p: float, train: bool) -> Value:
    return _native_dropout(e, x, p, train)[0] if train else x


def _uniform(e: TorchEmitter, x: Value, from_: float = 0.0, to: float = 1.0, *, generator: object = None) -> Value:
    _refuse_generator(generator)
    return arithmetic(e, "add", arithmetic(e, "mul", _draw(e, "rand", dtype=e.result.dtype), to - from_), from_)


def _normal(e: TorchEmitter, x: Value, mean: float = 0.0, std: float = 1.0, *, generator: object = None) -> Value:
    _refuse_generator(generator)
    return arithmetic(e, "add", arithmetic(e, "mul", _draw(e, "randn", dtype=e.result.dtype), std), mean)


def _exponential(e: TorchEmitter, x: Value, lambd: float = 1.0, *, generator: object = None) -> Value:
    """-log(1 - u) / lambd for uniform u in [0, 1)."""
    _refuse_generator(generator)
    drawn = _draw(e, "rand", dtype=dtypes.f32)
    spread = e.emit("log1p", e.emit("neg", drawn))
    return e.cast(e.emit("mul", spread, e.constant(-1 / lambd, dtypes.f32)), e.result.dtype)


def _draw_state(e: TorchEmitter, number: int) -> Value:
    """Seed and offset of a call, moved to a place of this operator's own: the stream is the offset's high word."""
    seed, offset, stream = e.random_source()
    return e.emit("stack", seed, e.emit("bitwise_xor", offset, e.constant(stream << 32, dtypes.i64)), axis=0)


def _seeded(e: TorchEmitter, state: Value, operator: object, *args: Any, **kwargs: Any) -> Any:
    handler = table().get(operator_name(operator))
    if handler is None:
        raise UnsupportedOp(f"no core operator is mapped to {operator_name(operator)}")
    seed, offset = (e.emit("select", state, axis=0, index=number) for number in range(2))
    with e.drawing_from(seed, offset):
        return handler(e, *args, **kwargs)
