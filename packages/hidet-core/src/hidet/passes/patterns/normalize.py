"""Normalisations that people write out: softmax, RMS norm and layer norm over the last axes, step by step.

A rule recognises the core of a norm without weight; further rules add the weight, the bias, and leave out the casts
that models put around it, because the operators of core compute in f32 themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.rules import arithmetic_dtype, normalize_axes
from hidet.passes.graph.move_views import RESHAPES
from hidet.passes.local import Rule, Site
from hidet.passes.patterns.axes import Axis, Frames, views_below, views_between
from hidet.passes.patterns.products import sum_with_number


def _reduced_axes(node: Node | None, source: Value | None) -> tuple[int, ...] | None:
    """The axes along which a reduction reads `source` and that it keeps with extent 1; None where it does not."""
    if node is None or source is None or node.inputs[0] is not source or not node.attrs["keepdim"]:
        return None
    given = node.attrs["axis"] if "axis" in node.attrs else node.attrs["axes"]
    return normalize_axes(node.op.name, given, source.tensor.rank)


def _last_reduced(node: Node | None, source: Value | None) -> int:
    """How many axes such a reduction folds, if they are the last ones; 0 otherwise."""
    axes = _reduced_axes(node, source)
    if not axes or source is None or axes != tuple(range(source.tensor.rank - len(axes), source.tensor.rank)):
        return 0
    return len(axes)


def _square_of(site: Site, value: Value | None) -> Value | None:
    """x for x * x, square(x) or x ** 2."""
    node = site.made_by(value, "square", "mul", "pow")
    if node is None or value is None or not site.is_read_once(value):
        return None
    source = node.inputs[0]
    if node.op.name == "mul":
        return source if source is node.inputs[1] else None
    return source if node.op.name == "square" or site.number(node.inputs[1]) == 2 else None


def _inverse_root(site: Site, factor: Value | None, reads: int = 1) -> Value | None:
    """v for 1 / sqrt(v), of a variance: rsqrt(v), v ** -0.5, or the inverse of a root. reads: how often it is read."""
    node = site.made_by(factor, "rsqrt", "pow", "reciprocal", "div")
    if node is None or factor is None or site.reads(factor) != reads:
        return None
    if node.op.name == "rsqrt":
        return node.inputs[0]
    if node.op.name == "pow":
        return node.inputs[0] if site.number(node.inputs[1]) == -0.5 else None
    if node.op.name == "div":
        return _root(site, node.inputs[1]) if site.number(node.inputs[0]) == 1 else None
    return _root(site, node.inputs[0])


def _root(site: Site, divisor: Value | None) -> Value | None:
    """v for sqrt(v), of a variance, or v ** 0.5."""
    node = site.made_by(divisor, "sqrt", "pow")
    if node is None or divisor is None or not site.is_read_once(divisor):
        return None
    return node.inputs[0] if node.op.name == "sqrt" or site.number(node.inputs[1]) == 0.5 else None


@dataclass(frozen=True, slots=True)
class Scaled:
    """x / sqrt(variance + eps), times `weight` if there is one."""

    x: Value
    variance: Value
    eps: float
    weight: Value | None = None


def _scaled_by_deviation(site: Site) -> Scaled | None:
    """x / sqrt(v + eps), x * (1 / sqrt(v + eps)) and x * (1 / sqrt(v + eps) * weight)."""
    a, b = site.node.inputs
    if site.node.op.name == "div":
        return _scaled(site, a, _root(site, b))
    return _scaled_by(site, a, b) or _scaled_by(site, b, a)


def _scaled_by(site: Site, x: Value | None, factor: Value | None, reads: int = 1) -> Scaled | None:
    """x times a factor that is read so often."""
    found = _scaled(site, x, _inverse_root(site, factor, reads))
    product = site.made_by(factor, "mul")
    if found is not None or product is None or factor is None or site.reads(factor) != reads:
        return found
    scale, weight = product.inputs
    return _scaled(site, x, _inverse_root(site, scale), weight) or _scaled(site, x, _inverse_root(site, weight), scale)


def _scaled(site: Site, x: Value | None, shifted: Value | None, weight: Value | None = None) -> Scaled | None:
    if x is None or shifted is None:
        return None
    variance, eps = sum_with_number(site, shifted) or (shifted, 0.0)
    return Scaled(x, variance, eps, weight) if site.is_read_once(variance) else None


def norm_core(site: Site) -> Value | None:
    """x / sqrt(mean(x ** 2) + eps), and the same of x - mean(x), over the last axes."""
    found = _scaled_by_deviation(site)
    if found is None or not site.node.outputs[0].tensor.dtype.is_float:
        return None
    norm = _layer_norm(site, found) or _rms_norm(site, found)
    return norm if norm is None or found.weight is None else site.emit("mul", norm, found.weight)


def _rms_norm(site: Site, found: Scaled) -> Value | None:
    mean = site.made_by(found.variance, "mean")
    if mean is None or _squares(site, found.variance) is not found.x:
        return None
    rank = _last_reduced(mean, mean.inputs[0])
    return site.emit("rms_norm", found.x, None, rank=rank, eps=found.eps) if rank else None


def _layer_norm(site: Site, found: Scaled) -> Value | None:
    """The norm where x is centred and the variance is that of what it is centred from."""
    source, rank = _centre(site, found.x)
    if source is None:
        return None
    # The difference serves its square and the quotient; where they are computed apart, each has its own.
    is_shared = _squares(site, found.variance) is found.x
    if site.reads(found.x) != (2 if is_shared else 1) or not _is_variance(site, found.variance, source, rank):
        return None
    return site.emit("layer_norm", source, None, None, rank=rank, eps=found.eps)


def _squares(site: Site, variance: Value) -> Value | None:
    """x for mean(x ** 2)."""
    node = site.made_by(variance, "mean")
    return None if node is None else _square_of(site, node.inputs[0])


def _is_variance(site: Site, variance: Value, source: Value, rank: int) -> bool:
    """Whether `variance` is that of `source` over its last `rank` axes, divided by the number of elements."""
    node = site.made_by(variance, "mean", "var", "var_mean")
    if node is None:
        return _is_difference_of_squares(site, variance, source, rank)
    if variance is not node.outputs[0]:
        return False
    if node.op.name == "mean":
        is_centred = _centre(site, _squares(site, variance)) == (source, rank)
        return is_centred and _last_reduced(node, node.inputs[0]) == rank
    return _last_reduced(node, source) == rank and bool(node.attrs["correction"] == 0)


def _centre(site: Site, difference: Value | None) -> tuple[Value | None, int]:
    """(x, r) for x - mean(x) over the last r axes; (None, 0) for other values."""
    node = site.made_by(difference, "sub")
    if node is None or node.attrs["alpha"] != 1:
        return None, 0
    x, mean = node.inputs
    made = site.made_by(mean, "var_mean")
    if made is None:
        rank = _last_averaged(site, _with_axes_dropped(site, mean), x)
    else:
        rank = _last_reduced(made, x) if mean is made.outputs[-1] else 0
    return (x, rank) if rank else (None, 0)


def _with_axes_dropped(site: Site, value: Value | None) -> Value | None:
    """What a view adds axes of extent 1 to, at its end; `value` where there is no such view."""
    node = site.made_by(value, RESHAPES)
    source = None if node is None else node.inputs[0]
    if value is None or source is None:
        return value
    added = value.tensor.rank - source.tensor.rank
    is_added = added > 0 and same_shape(value.tensor.shape, (*source.tensor.shape, *[1] * added))
    return source if is_added else value


def _last_averaged(site: Site, value: Value | None, source: Value | None) -> int:
    """How many last axes of `source` the mean `value` is over, whether it keeps them or not; 0 for what is no mean."""
    node = site.made_by(value, "mean")
    if node is None or source is None or node.inputs[0] is not source:
        return 0
    axes = normalize_axes("mean", node.attrs["axes"], source.tensor.rank)
    return len(axes) if axes == tuple(range(source.tensor.rank - len(axes), source.tensor.rank)) else 0


def _is_difference_of_squares(site: Site, variance: Value, source: Value, rank: int) -> bool:
    """Whether `variance` is mean(x * x) - mean(x) * mean(x), or 0 where rounding leaves less, for `source` x."""
    inner = _with_axes_dropped(site, variance)
    top = site.made_by(inner, "maximum")
    if top is not None:
        least, inner = sorted(top.inputs, key=lambda operand: site.number(operand) is None)
        if site.number(least) != 0 or not site.is_read_once(top.outputs[0]):
            return False
    node = site.made_by(inner, "sub")
    if node is None or node.attrs["alpha"] != 1 or not site.is_read_once(node.outputs[0]):
        return False
    squares, square = node.inputs
    average = site.made_by(squares, "mean")
    if average is None or squares is None or not site.is_read_once(squares):
        return False
    of_mean = _square_of(site, square)
    is_mean = _last_averaged(site, of_mean, source) == rank
    return (
        is_mean
        and _square_of(site, average.inputs[0]) is source
        and _last_averaged(site, squares, average.inputs[0]) == rank
    )


def norm_from_parts(site: Site) -> Value | None:
    """x * s + (b - mean(x) * s) = layer_norm(x) * weight + b, for s = 1 / sqrt(variance of x + eps) * weight.

    The offset may be b + -mean(x) * s, as Keras writes it.
    """
    if site.node.attrs["alpha"] != 1:
        return None
    a, b = site.node.inputs
    for product, offset in ((a, b), (b, a)):
        scaled = site.made_by(product, "mul")
        if scaled is None or not site.is_read_once(scaled.outputs[0]):
            continue
        for bias, factors in _offsets(site, offset):
            for x, scale in (scaled.inputs, reversed(scaled.inputs)):
                norm = _norm_of_parts(site, x, scale, factors)
                if norm is not None:
                    return site.emit("add", norm, bias)
    return None


def _offsets(site: Site, offset: Value | None) -> Iterator[tuple[Value | None, Sequence[Value | None]]]:
    """(b, (m, s)) for b - m * s, b + -m * s and -m * s + b, where nobody else reads the parts."""
    shift = site.made_by(offset, "sub", "add")
    if shift is None or shift.attrs["alpha"] != 1 or not site.is_read_once(shift.outputs[0]):
        return
    first, second = shift.inputs
    for bias, product in ((first, second), (second, first)) if shift.op.name == "add" else ((first, second),):
        moved = site.made_by(product, "mul")
        if moved is None or not site.is_read_once(moved.outputs[0]):
            continue
        if shift.op.name == "sub":
            yield bias, moved.inputs
            continue
        for number, factor in enumerate(moved.inputs):
            negative = site.made_by(factor, "neg")
            if negative is not None and factor is not None and site.is_read_once(factor):
                yield bias, (negative.inputs[0], moved.inputs[1 - number])


def _norm_of_parts(site: Site, x: Value | None, scale: Value | None, moved: Sequence[Value | None]) -> Value | None:
    """layer_norm(x) * weight, where `moved` are the factors mean(x) and scale, and `scale` is as above."""
    mean = next((v for v in moved if v is not scale), None)
    rank = _last_reduced(site.made_by(mean, "mean"), x)
    found = _scaled_by(site, x, scale, reads=2) if rank and scale in moved else None
    if found is None or not _is_variance(site, found.variance, found.x, rank):
        return None
    norm = site.emit("layer_norm", found.x, None, None, rank=rank, eps=found.eps)
    return norm if found.weight is None else site.emit("mul", norm, found.weight)


def norm_without_casts(site: Site) -> Value | None:
    """cast(norm(cast(x))) = norm(x), for a norm in the type that norm(x) computes in anyway."""
    norm = _plain_norm(site, site.node.inputs[0])
    wide = None if norm is None else site.made_by(norm.inputs[0], "cast")
    if norm is None or wide is None or wide.inputs[0] is None:
        return None
    source = wide.inputs[0]
    dtype = source.tensor.dtype
    if site.node.attrs["dtype"] != dtype or arithmetic_dtype(dtype) != wide.outputs[0].tensor.dtype:
        return None
    if any(parameter.tensor.dtype != dtype for parameter in norm.values[1:]):
        return None
    return site.emit(norm.op, source, *norm.inputs[1:], **norm.attrs)


def _plain_norm(site: Site, value: Value | None) -> Node | None:
    """The norm that made `value`, if nobody else reads it."""
    norm = site.made_by(value, "rms_norm", "layer_norm")
    return norm if value is not None and norm is not None and site.is_read_once(value) else None


def norm_weight(site: Site) -> Value | None:
    """norm(x) * weight."""
    a, b = site.node.inputs
    for value, weight in ((a, b), (b, a)):
        norm = _plain_norm(site, value)
        if norm is None or weight is None or norm.inputs[1] is not None:
            continue
        if norm.op.name == "layer_norm" and norm.inputs[2] is not None:
            continue
        parameter = _parameter(site, norm, weight)
        if parameter is not None:
            return site.emit(norm.op, norm.inputs[0], parameter, *norm.inputs[2:], **norm.attrs)
    return None


def norm_bias(site: Site) -> Value | None:
    """layer_norm(x) + bias."""
    a, b = site.node.inputs
    for value, bias in ((a, b), (b, a)):
        norm = _plain_norm(site, value)
        if norm is None or norm.op.name != "layer_norm" or bias is None or norm.inputs[2] is not None:
            continue
        parameter = _parameter(site, norm, bias)
        if site.node.attrs["alpha"] == 1 and parameter is not None:
            return site.emit(norm.op, *norm.inputs[:2], parameter, **norm.attrs)
    return None


def _parameter(site: Site, norm: Node, parameter: Value) -> Value | None:
    """`parameter` in the shape of the axes that a norm folds, if it is that but for leading axes, along which it is the
    same."""
    x = norm.outputs[0].tensor
    repeated = site.made_by(parameter, "expand")
    if repeated is not None and repeated.inputs[0] is not None:
        parameter = repeated.inputs[0]
    inner = x.shape[x.rank - norm.attrs["rank"] :]
    leading = parameter.tensor.rank - len(inner)
    if parameter.tensor.dtype != x.dtype or not same_shape(parameter.tensor.shape, (*[1] * leading, *inner)):
        return None
    if not leading:
        return parameter
    inserted = site.made_by(parameter, RESHAPES)
    source = None if inserted is None else inserted.inputs[0]
    if source is not None and same_shape(source.tensor.shape, inner):
        return source
    return site.emit("reshape", parameter, shape=inner)


def softmax(site: Site) -> Value | None:
    """e / sum(e) and e * (1 / sum(e)) with e = exp(x - max(x))."""
    for powers, divisor in _quotients(site):
        exp, total = site.made_by(powers, "exp"), site.made_by(divisor, "sum")
        if exp is None or total is None or site.reads(exp.outputs[0]) != 2 or not site.is_read_once(total.outputs[0]):
            continue
        shifted = exp.inputs[0]
        if shifted is None or not site.is_read_once(shifted):
            continue
        x, axis = _below_top(site, shifted)
        if x is not None and _reduced_axes(total, powers) == (axis,):
            return site.emit("softmax", x, axis=axis)
    return None


def log_softmax(site: Site) -> Value | None:
    """s - log(sum(exp(s))) with s = x - max(x)."""
    shifted, offset = site.node.inputs
    log = site.made_by(offset, "log")
    total = None if log is None else site.made_by(log.inputs[0], "sum")
    exp = None if total is None else site.made_by(total.inputs[0], "exp")
    if log is None or total is None or exp is None or shifted is None or exp.inputs[0] is not shifted:
        return None
    if site.node.attrs["alpha"] != 1 or site.reads(shifted) != 2:
        return None
    if not all(site.is_read_once(node.outputs[0]) for node in (log, total, exp)):
        return None
    x, axis = _below_top(site, shifted)
    is_whole = x is not None and _reduced_axes(total, exp.outputs[0]) == (axis,)
    return site.emit("log_softmax", x, axis=axis) if is_whole else None


def _quotients(site: Site) -> list[tuple[Value | None, Value | None]]:
    """(a, b) for a / b and for products with an inverse, a * (1 / b)."""
    a, b = site.node.inputs
    if site.node.op.name == "div":
        return [(a, b)]
    found: list[tuple[Value | None, Value | None]] = []
    for kept, factor in ((a, b), (b, a)):
        node = site.made_by(factor, "reciprocal", "div")
        if node is None or factor is None or not site.is_read_once(factor):
            continue
        if node.op.name == "reciprocal" or site.number(node.inputs[0]) == 1:
            found.append((kept, node.inputs[-1]))
    return found


def _below_top(site: Site, difference: Value) -> tuple[Value | None, int]:
    """(x, axis) for x - max(x) along one axis; (None, 0) for other values."""
    node = site.made_by(difference, "sub")
    if node is None or node.attrs["alpha"] != 1:
        return None, 0
    x, largest = node.inputs
    top = site.made_by(largest, "amax", "max_with_index")
    axes = _reduced_axes(top, x)
    if x is None or not x.tensor.dtype.is_float:
        return None, 0
    if top is not None and largest is top.outputs[0] and axes is not None and len(axes) == 1:
        return x, axes[0]
    axis = None if largest is None else _axis_of_top(site, x, largest)
    return (None, 0) if axis is None else (x, axis)


def _axis_of_top(site: Site, x: Value, largest: Value) -> int | None:
    """The axis of x along which `largest` is its maximum, where both are views of a tensor and its maximum."""
    below, of_top = views_below(site, largest)
    top = site.made_by(below, "amax", "max_with_index")
    source = None if top is None else top.inputs[0]
    if top is None or source is None or below is not top.outputs[0]:
        return None
    given = top.attrs["axis"] if "axis" in top.attrs else top.attrs["axes"]
    reduced = normalize_axes(top.op.name, given, source.tensor.rank)
    frames = Frames()
    whole = frames.add_shape(source.tensor.shape)
    kept = [() if axis in reduced else pieces for axis, pieces in enumerate(frames[whole])]
    if not top.attrs["keepdim"]:
        kept = [pieces for axis, pieces in enumerate(kept) if axis not in reduced]
    found = _viewed(frames, frames.add(kept), of_top)
    made = _viewed(frames, whole, views_between(site, x, source))
    if found is None or made is None or len(found) != len(made):
        return None
    folded = [axis for axis, (ours, theirs) in enumerate(zip(made, found, strict=True)) if ours != theirs]
    is_whole = len(folded) == 1 and len(reduced) == 1 and found[folded[0]] == ()
    return folded[0] if is_whole and made[folded[0]] == frames[whole][reduced[0]] else None


def _viewed(frames: Frames, frame: int, views: Sequence[Node] | None) -> list[Axis] | None:
    """The axes of what views, from the last to the first, make of a tensor with those of a frame."""
    for view in reversed(views or ()):
        next_frame = frames.view(frame, view)
        if next_frame is None:
            return None
        frame = next_frame
    return None if views is None else frames[frame]


RULES: Mapping[str, Sequence[Rule]] = {
    "mul": (norm_core, norm_weight, softmax),
    "div": (norm_core, softmax),
    "add": (norm_bias, norm_from_parts),
    "sub": (log_softmax,),
    "cast": (norm_without_casts,),
}
