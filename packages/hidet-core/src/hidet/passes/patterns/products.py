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


def product_of(site: Site, value: Value, root: bool = True, through_casts: bool = False) -> Product:
    """`value` taken apart through mul, div by a number, square and whole powers that nobody else reads.

    Only for floating-point values; `root` values may have other readers. through_casts: casts between floats count as
    nothing, of which those that round have no other readers either.
    """
    if through_casts:
        value = _before_casts(site, value)
    node = site.node if value in site.node.outputs else site.made_by(value, "mul", "div", "square", "pow", "neg")
    if node is None or not (root or site.is_read_once(value)):
        return Product(1.0, [value])
    left, right = (*node.inputs, None)[:2]
    assert left is not None
    number = site.number(right)
    if node.op.name == "mul" and right is not None:
        return _times(_part(site, left, through_casts), _part(site, right, through_casts))
    if node.op.name == "div" and number:
        inner = _part(site, left, through_casts)
        return Product(inner.number / number, inner.factors)
    if node.op.name == "square" or (node.op.name == "pow" and number in (2, 3)):
        inner = _part(site, left, through_casts)
        times = 2 if node.op.name == "square" else int(number or 0)
        return Product(inner.number**times, inner.factors * times)
    if node.op.name == "neg":
        inner = _part(site, left, through_casts)
        return Product(-inner.number, inner.factors)
    return Product(1.0, [value])


def _part(site: Site, value: Value, through_casts: bool) -> Product:
    number = site.number(value)
    if number is not None and not isinstance(number, bool):
        return Product(float(number))
    return product_of(site, value, root=False, through_casts=through_casts)


def _before_casts(site: Site, value: Value) -> Value:
    """What `value` was before it was cast from float to float."""
    while True:
        node = site.made_by(value, "cast")
        source = None if node is None else node.inputs[0]
        if source is None or not (source.tensor.dtype.is_float and value.tensor.dtype.is_float):
            return value
        widens = source.tensor.dtype.nbytes < value.tensor.dtype.nbytes
        if not (widens or site.is_read_once(value)):
            return value
        value = source


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
