"""Products seen as a number times factors, so that one pattern covers every order in which people multiply."""

from __future__ import annotations

from dataclasses import dataclass, field

from hidet.graph.graph import Value
from hidet.passes.local import Site


@dataclass(slots=True)
class Product:
    """`number` times the product of `factors`."""

    number: float = 1.0
    factors: list[Value] = field(default_factory=list)


def product_of(site: Site, value: Value, root: bool = True) -> Product:
    """`value` taken apart through mul, div by a number, square and whole powers that nobody else reads.

    Only for floating-point values; `root` values may have other readers.
    """
    node = site.node if value in site.node.outputs else site.made_by(value, "mul", "div", "square", "pow", "neg")
    if node is None or not (root or site.is_read_once(value)):
        return Product(1.0, [value])
    left, right = (*node.inputs, None)[:2]
    assert left is not None
    number = site.number(right)
    if node.op.name == "mul" and right is not None:
        return _times(_part(site, left), _part(site, right))
    if node.op.name == "div" and number:
        inner = _part(site, left)
        return Product(inner.number / number, inner.factors)
    if node.op.name == "square" or (node.op.name == "pow" and number in (2, 3)):
        inner = _part(site, left)
        times = 2 if node.op.name == "square" else int(number or 0)
        return Product(inner.number**times, inner.factors * times)
    if node.op.name == "neg":
        inner = _part(site, left)
        return Product(-inner.number, inner.factors)
    return Product(1.0, [value])


def _part(site: Site, value: Value) -> Product:
    number = site.number(value)
    if number is not None and not isinstance(number, bool):
        return Product(float(number))
    return product_of(site, value, root=False)


def _times(a: Product, b: Product) -> Product:
    return Product(a.number * b.number, [*a.factors, *b.factors])


def sum_with_number(site: Site, value: Value | None) -> tuple[Value, float] | None:
    """(x, c) for value = x + c, if nobody else reads the sum."""
    node = site.made_by(value, "add")
    if node is None or value is None or not site.is_read_once(value) or node.attrs["alpha"] != 1:
        return None
    for position in (0, 1):
        number = site.number(node.inputs[1 - position])
        source = node.inputs[position]
        if number is not None and source is not None:
            return source, float(number)
    return None


def is_near(number: float, wanted: float, value: Value) -> bool:
    """Whether `number` is `wanted` as the type of `value` rounds it."""
    return abs(number - wanted) <= max(1e-6, 2 * value.tensor.dtype.unit_roundoff) * abs(wanted)
