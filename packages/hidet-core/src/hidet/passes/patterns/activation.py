"""Activations that people write out: silu, and gelu in both forms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hidet.graph.graph import Value
from hidet.graph.types import same_shape
from hidet.passes.local import Rule, Site
from hidet.passes.patterns.products import Product, is_near, product_of, sum_with_number


def silu(site: Site) -> Value | None:
    """x * sigmoid(x)."""
    a, b = site.node.inputs
    for x, gate in ((a, b), (b, a)):
        node = site.made_by(gate, "sigmoid")
        if node is not None and gate is not None and node.inputs[0] is x and site.is_read_once(gate):
            return site.emit("silu", x)
    return None


def gelu(site: Site) -> Value | None:
    """0.5 * x * (1 + erf(x / sqrt(2))), 0.5 * x * erfc(-x / sqrt(2)), and
    0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))).

    torch computes products of 16-bit floats with numbers in f32 and rounds each: such casts between are left out.
    """
    result = site.node.outputs[0]
    if not result.tensor.dtype.is_float:
        return None
    found = product_of(site, result, through_casts=True)
    if len(found.factors) != 2 or not is_near(found.number, 0.5, result):
        return None
    for x, gate in (found.factors, reversed(found.factors)):
        if _is_complement(site, gate, x) and same_shape(x.tensor.shape, result.tensor.shape):
            return site.emit("gelu", x)
        shifted = sum_with_number(site, gate)
        if shifted is None or shifted[1] != 1 or not same_shape(x.tensor.shape, result.tensor.shape):
            continue
        curve = site.made_by(shifted[0], "erf", "tanh")
        if curve is None or curve.inputs[0] is None or not site.is_read_once(shifted[0]):
            continue
        inner = product_of(site, curve.inputs[0], root=False, through_casts=True)
        if curve.op.name == "erf" and inner.factors == [x] and is_near(inner.number, math.sqrt(0.5), x):
            return site.emit("gelu", x)
        if curve.op.name == "tanh" and _is_tanh_argument(site, inner, x):
            return site.emit("gelu", x, approximate="tanh")
    return None


def _is_complement(site: Site, gate: Value, x: Value) -> bool:
    """erfc(-x / sqrt(2))."""
    node = site.made_by(gate, "erfc")
    if node is None or node.inputs[0] is None or not site.is_read_once(gate):
        return False
    inner = product_of(site, node.inputs[0], root=False, through_casts=True)
    return inner.factors == [x] and is_near(inner.number, -math.sqrt(0.5), x)


def _is_tanh_argument(site: Site, argument: Product, x: Value) -> bool:
    """sqrt(2 / pi) * (x + 0.044715 * x ** 3)."""
    if len(argument.factors) != 1 or not is_near(argument.number, math.sqrt(2 / math.pi), x):
        return False
    (total,) = argument.factors
    node = site.made_by(total, "add")
    if node is None or not site.is_read_once(total) or node.attrs["alpha"] != 1:
        return False
    for first, second in (node.inputs, reversed(node.inputs)):
        if first is not x or second is None:
            continue
        cube = product_of(site, second, root=False, through_casts=True)
        if cube.factors == [x, x, x] and is_near(cube.number, 0.044715, x):
            return True
    return False


RULES: Mapping[str, Sequence[Rule]] = {"mul": (silu, gelu)}
