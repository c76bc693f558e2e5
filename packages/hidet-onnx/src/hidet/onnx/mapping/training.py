"""Steps of optimisers, domain ai.onnx.preview.training. Each takes R, T and the tensors to optimise: all X, all G, …"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hidet.errors import ImportFailed
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    domain = "ai.onnx.preview.training"
    return {(f"{domain}.Adagrad", 1): _adagrad, (f"{domain}.Adam", 1): _adam, (f"{domain}.Momentum", 1): _momentum}


Step = Callable[..., tuple[Value, ...]]


def _each(e: Emitter, inputs: tuple[Value, ...], roles: int, step: Step) -> tuple[Value, ...]:
    """`step` of every optimised tensor; results in the order all new X, all new second results, …"""
    count, rest = divmod(len(inputs), roles)
    if rest or not count:
        raise ImportFailed(f"{e.operator}: {len(inputs)} tensors, expected a multiple of {roles} beside R and T")
    results = [step(*inputs[number::count]) for number in range(count)]
    return tuple(result[role] for role in range(len(results[0])) for result in results)


def _times(e: Emitter, x: Value, factor: float) -> Value:
    return e.emit("mul", x, e.constant(factor, x.tensor.dtype))


def _regularized(e: Emitter, x: Value, gradient: Value, coefficient: float) -> Value:
    """The gradient of the loss + coefficient / 2 * the squared norm of x."""
    return e.emit("add", _times(e, x, coefficient), gradient)


def _adagrad(
    e: Emitter,
    rate: Value,
    count: Value,
    *inputs: Value,
    decay_factor: float,
    epsilon: float,
    norm_coefficient: float,
) -> tuple[Value, ...]:
    """Duchi, Hazan and Singer, 2011: each coordinate's rate falls with its accumulated squared gradient."""
    one = e.constant(1.0, rate.tensor.dtype)
    decay = e.emit("add", one, _times(e, e.cast(count, rate.tensor.dtype), decay_factor))
    current = e.emit("div", rate, decay)

    def step(x: Value, gradient: Value, squares: Value) -> tuple[Value, ...]:
        g = _regularized(e, x, gradient, norm_coefficient)
        total = e.emit("add", squares, e.emit("square", g))
        scale = e.emit("add", e.emit("sqrt", total), e.constant(epsilon, x.tensor.dtype))
        move = e.emit("div", e.emit("mul", e.cast(current, x.tensor.dtype), g), scale)
        return e.emit("sub", x, move), total

    return _each(e, inputs, 3, step)


def _adam(
    e: Emitter,
    rate: Value,
    count: Value,
    *inputs: Value,
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> tuple[Value, ...]:
    """Kingma and Ba, 2015; the averages' start at 0 is corrected from the second update on."""
    dtype = rate.tensor.dtype
    one, updates = e.constant(1.0, dtype), e.cast(count, dtype)

    def left(base: float) -> Value:
        return e.emit("sub", one, e.emit("pow", e.constant(base, dtype), updates))

    corrected = e.emit("div", e.emit("mul", rate, e.emit("sqrt", left(beta))), left(alpha))
    current = e.emit("where", e.emit("greater", updates, e.constant(0.0, dtype)), corrected, rate)

    def step(x: Value, gradient: Value, average: Value, squares: Value) -> tuple[Value, ...]:
        g = _regularized(e, x, gradient, norm_coefficient)
        mean = e.emit("add", _times(e, average, alpha), _times(e, g, 1 - alpha))
        spread = e.emit("add", _times(e, squares, beta), _times(e, e.emit("square", g), 1 - beta))
        scale = e.emit("add", e.emit("sqrt", spread), e.constant(epsilon, x.tensor.dtype))
        move = e.emit("div", e.emit("mul", e.cast(current, x.tensor.dtype), mean), scale)
        return _times(e, e.emit("sub", x, move), 1 - norm_coefficient_post), mean, spread

    return _each(e, inputs, 4, step)


def _momentum(
    e: Emitter,
    rate: Value,
    count: Value,
    *inputs: Value,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Value, ...]:
    """Momentum, or that of Nesterov; the first update takes the whole gradient."""
    if mode not in ("standard", "nesterov"):
        raise ImportFailed(f"Momentum: mode is {mode!r}, expected 'standard' or 'nesterov'")
    dtype = rate.tensor.dtype
    is_later = e.emit("greater", count, e.constant(0, count.tensor.dtype))
    share = e.emit("where", is_later, e.constant(beta, dtype), e.constant(1.0, dtype))

    def step(x: Value, gradient: Value, velocity: Value) -> tuple[Value, ...]:
        g = _regularized(e, x, gradient, norm_coefficient)
        moved = e.emit("add", _times(e, velocity, alpha), e.emit("mul", e.cast(share, x.tensor.dtype), g))
        direction = moved if mode == "standard" else e.emit("add", g, _times(e, moved, alpha))
        return e.emit("sub", x, e.emit("mul", e.cast(rate, x.tensor.dtype), direction)), moved

    return _each(e, inputs, 3, step)
