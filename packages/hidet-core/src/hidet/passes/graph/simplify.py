"""Simplification: operators that do nothing, chains of views and casts, arithmetic with neutral numbers.

Rewriting is exact: values stay bit by bit what they are, signs of zero and NaN included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hidet.compute.definition import Compute
from hidet.dtypes import DType
from hidet.graph.graph import Graph, Value
from hidet.graph.types import same_shape
from hidet.ir.expr import Access, Const
from hidet.passes.graph.merge_updates import merge_update
from hidet.passes.graph.move_views import (
    RESHAPES,
    drop_expand,
    reshape_before_elementwise,
    split_axes_before_transpose,
    split_rows_before_product,
    transpose_after_elementwise,
)
from hidet.passes.local import Rule, Site, rewrite_locally

if TYPE_CHECKING:
    from hidet.context import CompileContext


@dataclass(frozen=True)
class Simplify:
    """Remove what computes nothing, and move reshapes out of the way of fusion."""

    name: ClassVar[str] = "simplify"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """Rounds over the graph until nothing changes."""
        return rewrite_locally(
            graph, ctx.registry.operators, RULES, (remove_identity, drop_expand, transpose_after_elementwise)
        )


def remove_identity(site: Site) -> Value | None:
    """x, for an operator whose every element is the same element of x.

    An operator that is no view gives memory of its own; it stays where a caller or another framework gets to see that.
    """
    node = site.node
    definition = node.definition
    if definition is None or len(definition.stages) != 1:
        return None
    (stage,) = definition.stages
    if not isinstance(stage, Compute) or not isinstance(stage.value, Access) or len(node.values) != 1:
        return None
    (source,) = node.values
    if node.op.kind != "view" and site.must_own_memory(node.outputs[0]):
        return None
    shape = node.outputs[0].tensor.shape
    if not same_shape(source.tensor.shape, shape):
        return None
    places = zip(stage.value.indices, stage.axes, shape, strict=True)
    if all(i is axis or (extent == 1 and isinstance(i, Const) and i.value == 0) for i, axis, extent in places):
        return source
    return None


def merge_transposes(site: Site) -> Value | None:
    """transpose(transpose(x)) = transpose(x)."""
    inner = site.made_by(site.node.inputs[0], "transpose")
    if inner is None:
        return None
    rank = site.node.outputs[0].tensor.rank
    first, second = ([axis % rank for axis in n.attrs["perm"]] for n in (inner, site.node))
    return site.emit("transpose", inner.inputs[0], perm=tuple(first[axis] for axis in second))


def transpose_as_reshape(site: Site) -> Value | None:
    """A transpose that moves axes of extent 1 alone is a reshape, and joins other reshapes."""
    x = site.node.inputs[0]
    assert x is not None
    moved = [axis % x.tensor.rank for axis in site.node.attrs["perm"]]
    real = [axis for axis in moved if x.tensor.shape[axis] != 1]
    return site.emit("reshape", x, shape=site.node.outputs[0].tensor.shape) if real == sorted(real) else None


def merge_reshapes(site: Site) -> Value | None:
    """reshape(reshape(x)) = reshape(x), whatever each of them is called."""
    inner = site.made_by(site.node.inputs[0], RESHAPES)
    return None if inner is None else site.emit("reshape", inner.inputs[0], shape=site.node.outputs[0].tensor.shape)


def merge_expands(site: Site) -> Value | None:
    """expand(expand(x)) = expand(x)."""
    inner = site.made_by(site.node.inputs[0], "expand")
    return None if inner is None else site.emit("expand", inner.inputs[0], shape=site.node.outputs[0].tensor.shape)


def merge_casts(site: Site) -> Value | None:
    """cast(cast(x)) = cast(x) where the inner one loses nothing."""
    inner = site.made_by(site.node.inputs[0], "cast")
    if inner is None or inner.inputs[0] is None:
        return None
    source = inner.inputs[0]
    if not holds_all(inner.outputs[0].tensor.dtype, source.tensor.dtype):
        return None
    return site.emit("cast", source, **site.node.attrs)


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`; False where types other than numbers are involved."""
    if wide == narrow or narrow.is_bool:
        return wide == narrow or wide.is_float or wide.is_int
    if not (wide.is_compute and narrow.is_compute):
        return False
    if narrow.is_float:
        digits, limit = wide.is_float and wide.epsilon <= narrow.epsilon, wide.is_float and wide.max >= narrow.max
        return digits and limit and wide.smallest_normal <= narrow.smallest_normal
    if narrow.is_int and wide.is_int:
        return wide.min <= narrow.min and narrow.max <= wide.max
    return narrow.is_int and wide.is_float and narrow.max <= 2 / wide.epsilon and narrow.max <= wide.max


def drop_neutral(site: Site) -> Value | None:
    """x * 1, x / 1, x ** 1, x - 0, for integers and -0.0 x + 0, and the maximum (minimum) of x and the lowest (highest)
    number there is."""
    node = site.node
    x, y = node.inputs
    assert x is not None and y is not None
    if node.attrs.get("alpha", 1) != 1 or x.tensor.dtype.is_bool:
        return None
    pairs = ((x, y),) if node.op.name in ("sub", "div", "pow") else ((x, y), (y, x))
    for kept, other in pairs:
        number = site.number(other)
        if number is None or not same_shape(kept.tensor.shape, node.outputs[0].tensor.shape):
            continue
        if _is_neutral(node.op.name, number, kept.tensor.dtype) and not site.must_own_memory(node.outputs[0]):
            return kept
    return None


def _is_neutral(op: str, number: int | float | bool, dtype: DType) -> bool:
    if op in ("mul", "div", "pow"):
        return number == 1
    if op in ("maximum", "minimum"):
        # NaN stays NaN: these operators hand it on, whichever operand it is.
        if dtype.is_float:
            return number == (-math.inf if op == "maximum" else math.inf)
        return dtype.is_int and number == (dtype.min if op == "maximum" else dtype.max)
    if not dtype.is_float:
        return number == 0
    # x + 0.0 turns -0.0 into 0.0; x + -0.0 and x - 0.0 do not.
    return number == 0 and math.copysign(1, number) == (-1 if op == "add" else 1)


# Joined tensors read by one kernel; each is a loop of its own.
_MOST_JOINED = 32
_JOINED_AT_ONCE = 16


def join_in_steps(site: Site) -> Value | None:
    """A join of many tensors joins some of them at a time: equal parts share one kernel, and compile time stays linear
    in their number."""
    node = site.node
    if len(node.values) <= _MOST_JOINED:
        return None
    axis = node.attrs["axis"] % node.outputs[0].tensor.rank
    parts = [
        site.emit(node.op, *node.values[first : first + _JOINED_AT_ONCE], axis=axis)
        for first in range(0, len(node.values), _JOINED_AT_ONCE)
    ]
    return site.emit("concat", *parts, axis=axis)


def known_condition(site: Site) -> Value | None:
    """where(c, x, y) = x where c is true everywhere, y where it is false everywhere, if that has the result's shape."""
    condition, x, y = site.node.inputs
    holds = site.truth(condition)
    if holds is None or site.must_own_memory(site.node.outputs[0]):
        return None
    return x if holds else y


RULES: Mapping[str, Sequence[Rule]] = {
    "transpose": (merge_transposes, remove_identity, transpose_as_reshape),
    RESHAPES: (merge_reshapes, split_rows_before_product, split_axes_before_transpose, reshape_before_elementwise),
    "expand": (merge_expands,),
    "cast": (merge_casts,),
    "where": (known_condition,),
    **dict.fromkeys(("concat", "stack"), (join_in_steps,)),
    **dict.fromkeys(("mul", "sub", "add", "div", "pow", "maximum", "minimum"), (drop_neutral,)),
    **dict.fromkeys(("slice_scatter", "select_scatter"), (merge_update,)),
}
