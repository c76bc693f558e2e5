"""Expressions that Python functions get: operands, which compute with the types that scripts have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hidet.errors import DTypeError
from hidet.ir.expr import Expr
from hidet.lang import operators


class Operand:
    """An expression handed to a Python function that a script calls while it is translated.

    Operators build expressions with the types that scripts have. It has no truth value: Python cannot branch on what is
    known at run time only.
    """

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]  # equality builds an expression

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __bool__(self) -> bool:
        raise DTypeError(
            "a value known at run time only has no truth value while the script is translated",
            hint="move the branch into the script, or use a conditional expression there",
        )

    def __eq__(self, other: object) -> Any:
        return _apply("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return _apply("ne", self, other)

    def __neg__(self) -> Any:
        return Operand(operators.unary("neg", self.expr))

    def __invert__(self) -> Any:
        return Operand(operators.unary("not", self.expr))

    def __abs__(self) -> Any:
        return Operand(operators.unary("abs", self.expr))


def _apply(op: str, a: object, b: object) -> Any:
    result = operators.binary(op, unwrapped(a), unwrapped(b))
    return Operand(result) if isinstance(result, Expr) else result


def _forward(op: str) -> Callable[[object, object], Any]:
    return lambda a, b: _apply(op, a, b)


def _reflected(op: str) -> Callable[[object, object], Any]:
    return lambda a, b: _apply(op, b, a)


for _method, _op in {
    **{name: name for name in ("add", "sub", "mul", "floordiv", "mod", "pow", "and", "or", "xor")},
    "truediv": "div",
    "lshift": "shl",
    "rshift": "shr",
}.items():
    setattr(Operand, f"__{_method}__", _forward(_op))
    setattr(Operand, f"__r{_method}__", _reflected(_op))
for _op in ("lt", "le", "gt", "ge"):
    setattr(Operand, f"__{_op}__", _forward(_op))


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with `change(part)` in place of every part of the tuples, lists, dictionaries and slices that it is
    made of; itself where that changes nothing, so that a list stays the list that others know."""
    container = _CONTAINERS.get(type(value))
    if container is None:
        return change(value)
    parts, make = container
    before = tuple(parts(value))
    after = [rebuilt(part, change) for part in before]
    return value if all(a is b for a, b in zip(before, after, strict=True)) else make(value, after)


_CONTAINERS: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[[Any, Sequence[Any]], Any]]] = {
    tuple: (iter, lambda value, parts: tuple(parts)),
    list: (iter, lambda value, parts: list(parts)),
    dict: (lambda value: value.values(), lambda value, parts: dict(zip(value, parts, strict=True))),
    slice: (lambda value: (value.start, value.stop, value.step), lambda value, parts: slice(*parts)),
}
"""class -> what a container is made of, and one like a given one made of other parts"""


def wrapped(value: Any) -> Any:
    """`value` with expressions in it, also those in containers, as operands."""
    return rebuilt(value, lambda part: Operand(part) if isinstance(part, Expr) else part)


def unwrapped(value: Any) -> Any:
    """The inverse of `wrapped`."""
    return rebuilt(value, lambda part: part.expr if isinstance(part, Operand) else part)
