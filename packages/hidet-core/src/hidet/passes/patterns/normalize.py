"""Normalisations that people write out: softmax, RMS norm and layer norm over the last axis, step by step.

A rule recognises the core of a norm without weight; further rules add the weight, the bias, and leave out the casts
that models put around it, because the operators of core compute in f32 themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.rules import arithmetic_dtype
from hidet.passes.local import Rule, Site
from hidet.passes.patterns.products import sum_with_number


def _is_over(node: Node | None, source: Value | None, axis: int) -> bool:
    """Whether a reduction reads `source` along `axis` alone and keeps it with extent 1."""
    if node is None or source is None or node.inputs[0] is not source or not node.attrs["keepdim"]:
        return False
    axes = node.attrs["axes"]
    given = (axes,) if isinstance(axes, int) else axes
    rank = source.tensor.rank
    return given is not None and rank > 0 and [a % rank for a in given] == [axis % rank]


def _square_of(site: Site, value: Value | None) -> Value | None:
    """x for x * x, square(x) or x ** 2."""
    node = site.made_by(value, "square", "mul", "pow")
    if node is None or value is None or not site.is_read_once(value):
        return None
    source = node.inputs[0]
    if node.op.name == "mul":
        return source if source is node.inputs[1] else None
    return source if node.op.name == "square" or site.number(node.inputs[1]) == 2 else None


def _scaled_by_deviation(site: Site) -> tuple[Value, Value, float] | None:
    """(x, v, eps) for x * rsqrt(v + eps) and for x / sqrt(v + eps)."""
    a, b = site.node.inputs
    is_product = site.node.op.name == "mul"
    for x, factor in ((a, b), (b, a)) if is_product else ((a, b),):
        root = site.made_by(factor, "rsqrt" if is_product else "sqrt")
        if root is None or x is None or factor is None or not site.is_read_once(factor):
            continue
        shifted = sum_with_number(site, root.inputs[0])
        if shifted is not None and site.is_read_once(shifted[0]):
            return x, *shifted
    return None


def norm_core(site: Site) -> Value | None:
    """x / sqrt(mean(x ** 2) + eps), and the same of x - mean(x)."""
    found = _scaled_by_deviation(site)
    if found is None or not site.node.outputs[0].tensor.dtype.is_float:
        return None
    x, variance, eps = found
    centred = site.made_by(x, "sub")
    mean = site.made_by(variance, "mean")
    if mean is not None and _is_over(mean, mean.inputs[0], -1) and _square_of(site, mean.inputs[0]) is x:
        source = None if centred is None else _centre(site, centred)
        if source is not None and site.reads(x) == 2:
            return site.emit("layer_norm", source, None, None, rank=1, eps=eps)
        return site.emit("rms_norm", x, None, rank=1, eps=eps)
    spread = site.made_by(variance, "var")
    if spread is not None and centred is not None and site.reads(x) == 1:
        source = _centre(site, centred)
        if _is_over(spread, source, -1) and spread.attrs["correction"] == 0:
            return site.emit("layer_norm", source, None, None, rank=1, eps=eps)
    return None


def _centre(site: Site, difference: Node) -> Value | None:
    """x for x - mean(x) over the last axis."""
    x, mean = difference.inputs
    is_centred = _is_over(site.made_by(mean, "mean"), x, -1) and difference.attrs["alpha"] == 1
    return x if is_centred else None


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
        if _has_inner_shape(norm, weight):
            return site.emit(norm.op, norm.inputs[0], weight, *norm.inputs[2:], **norm.attrs)
    return None


def norm_bias(site: Site) -> Value | None:
    """layer_norm(x) + bias."""
    a, b = site.node.inputs
    for value, bias in ((a, b), (b, a)):
        norm = _plain_norm(site, value)
        if norm is None or norm.op.name != "layer_norm" or bias is None or norm.inputs[2] is not None:
            continue
        if site.node.attrs["alpha"] == 1 and _has_inner_shape(norm, bias):
            return site.emit(norm.op, *norm.inputs[:2], bias, **norm.attrs)
    return None


def _has_inner_shape(norm: Node, parameter: Value) -> bool:
    x = norm.outputs[0].tensor
    return parameter.tensor.dtype == x.dtype and same_shape(
        parameter.tensor.shape, x.shape[x.rank - norm.attrs["rank"] :]
    )


def softmax(site: Site) -> Value | None:
    """e / sum(e) with e = exp(x - max(x))."""
    powers, total = site.node.inputs
    exp, top = site.made_by(powers, "exp"), site.made_by(total, "sum")
    if exp is None or top is None or powers is None or total is None or exp.inputs[0] is None:
        return None
    shifted = site.made_by(exp.inputs[0], "sub")
    if (
        shifted is None
        or site.reads(powers) != 2
        or not site.is_read_once(total)
        or not site.is_read_once(exp.inputs[0])
    ):
        return None
    x, largest = shifted.inputs
    assert x is not None
    for axis in range(x.tensor.rank):
        over = _is_over(top, powers, axis) and _is_over(site.made_by(largest, "amax"), x, axis)
        if over and shifted.attrs["alpha"] == 1 and x.tensor.dtype.is_float:
            return site.emit("softmax", x, axis=axis)
    return None


RULES: Mapping[str, Sequence[Rule]] = {
    "mul": (norm_core, norm_weight),
    "div": (norm_core, softmax),
    "add": (norm_bias,),
    "cast": (norm_without_casts,),
}
