"""Reductions that people write in other words, in the form that other rules look for.

reshape(f(sum(x)))  = f(sum(x, keepdim=True)) where folded axes get extent 1
sum(x) / count      = mean(x)
sum(x) * 1 / count  = mean(x)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.dims import Dim, product
from hidet.dtypes import DType
from hidet.graph.graph import Node, Value
from hidet.graph.types import same_shape
from hidet.operators.rules import normalize_axes
from hidet.passes.graph.move_views import RESHAPES, apply_elementwise, is_passed
from hidet.passes.local import Rule, Site

# Element-wise operators between a reduction and the reshape: a square root, a sum, a product and a limit are usual.
_MOST_BETWEEN = 4


def keep_axes(site: Site) -> Value | None:
    """reshape(f(fold(x))) = f(fold(x, keepdim=True)), for f of numbers besides."""
    return _kept(site, site.node.inputs[0], site.node.outputs[0].tensor.shape, _MOST_BETWEEN)


def _kept(site: Site, value: Value | None, shape: Sequence[Dim], between: int) -> Value | None:
    """`value` in `shape`, by a reduction that keeps its axes; None where there is none or others read it."""
    node = None if value is None else site.producer(value)
    if node is None or value is None or not site.is_read_once(value):
        return None
    if node.op.family == "reduction":
        return _kept_fold(site, node, value, shape)
    if between == 0 or not is_passed(node):
        return None
    wide = [v for v in node.values if site.number(v) is None]
    if len(wide) != 1 or any(v.tensor.rank > 0 for v in node.values if v is not wide[0]):
        return None
    inner = _kept(site, wide[0], shape, between - 1)
    operands = [inner if v is wide[0] else v for v in node.inputs]
    return None if inner is None else apply_elementwise(site, node, operands, shape)


def _kept_fold(site: Site, node: Node, value: Value, shape: Sequence[Dim]) -> Value | None:
    """The result of a reduction with the axes that it folds kept, if that has `shape`."""
    # A reduction of a plug-in need not have the attributes of core's.
    name = next((name for name in ("axis", "axes") if name in node.attrs), None)
    if name is None or node.attrs.get("keepdim") is not False or len(node.values) != 1:
        return None
    (x,) = node.values
    axes = normalize_axes(node.op.name, node.attrs[name], x.tensor.rank)
    if not same_shape([1 if n in axes else extent for n, extent in enumerate(x.tensor.shape)], shape):
        return None
    if node.op.name in _EXTREMES:
        is_alone = value is node.outputs[0] and site.reads(node.outputs[1]) == 0
        return site.emit(_EXTREMES[node.op.name], x, axes=axes, keepdim=True) if is_alone else None
    return site.emit(node.op, x, **{**node.attrs, "keepdim": True}) if len(node.outputs) == 1 else None


_EXTREMES = {"max_with_index": "amax", "min_with_index": "amin"}
"""What gives the first result alone."""


def mean(site: Site) -> Value | None:
    """sum(x) / count and sum(x) * (1 / count), with the number of elements that a sum folds."""
    a, b = site.node.inputs
    is_quotient = site.node.op.name == "div"
    for total, factor in ((a, b),) if is_quotient else ((a, b), (b, a)):
        node = site.made_by(total, "sum")
        if node is None or total is None or not site.is_read_once(total):
            continue
        (x,) = node.values
        if not x.tensor.dtype.is_float:
            continue
        axes = normalize_axes("sum", node.attrs["axes"], x.tensor.rank)
        count = product([x.tensor.shape[axis] for axis in axes])
        if _is_count(site, factor, count, is_quotient, x.tensor.dtype):
            return site.emit("mean", x, axes=axes, keepdim=node.attrs["keepdim"])
    return None


def _is_count(site: Site, factor: Value | None, count: Dim, is_quotient: bool, dtype: DType) -> bool:
    """Whether `factor` is `count`, or the inverse of it, as `dtype` rounds it. To the last bit: an unbiased variance
    divides by the number of elements less one."""
    number = site.number(factor)
    if not isinstance(count, int):
        size = site.made_by(factor, "full")
        return is_quotient and size is not None and size.attrs["value"] == count
    if number is None or count == 0 or max(count, abs(number)) > dtype.max:
        return False
    rounded = dtype.numpy().type
    wanted = [rounded(count)] if is_quotient else [rounded(1 / count), rounded(1) / rounded(count)]
    return any(float(rounded(number)) == float(each) for each in wanted)


RULES: Mapping[str, Sequence[Rule]] = {
    "div": (mean,),
    "mul": (mean,),
    RESHAPES: (keep_axes,),
}
