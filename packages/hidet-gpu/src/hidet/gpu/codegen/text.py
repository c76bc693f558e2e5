"""C++ expressions as text that knows how tightly it binds."""

from __future__ import annotations

from typing import NamedTuple

ATOM = 16
UNARY = 14
PRODUCT = 13
SUM = 12
SHIFT = 11
ORDER = 10
EQUALITY = 9
BIT_AND = 8
BIT_XOR = 7
BIT_OR = 6
AND = 5
OR = 4
CHOICE = 3


class Text(NamedTuple):
    """An expression and its precedence. wide: the f32 that it is rounded from here; None for all else. place: the array
    and the number of an element that has a neighbour in the same word of registers; None for all else."""

    text: str
    precedence: int = ATOM
    wide: str | None = None
    place: str | None = None

    def inside(self, outer: int) -> str:
        """The text as an operand of something that binds with precedence `outer`."""
        return self.text if self.precedence >= outer else f"({self.text})"


def infix(a: Text, symbol: str, b: Text, precedence: int) -> Text:
    """`a symbol b`, grouped from the left."""
    return Text(f"{a.inside(precedence)} {symbol} {b.inside(precedence + 1)}", precedence)


def prefix(symbol: str, a: Text) -> Text:
    """`symbol a`; a second sign keeps its distance."""
    inner = a.inside(UNARY)
    return Text(f"{symbol}({inner})" if inner.startswith(symbol) else f"{symbol}{inner}", UNARY)


def cast(type_name: str, a: Text) -> Text:
    """`(type)a`."""
    return Text(f"({type_name}){a.inside(UNARY)}", UNARY)


def call(function: str, *arguments: Text) -> Text:
    """`function(a, b)`."""
    return Text(f"{function}({', '.join(a.text for a in arguments)})")


def choice(condition: Text, a: Text, b: Text) -> Text:
    """`condition ? a : b`."""
    return Text(f"{condition.inside(CHOICE + 1)} ? {a.inside(CHOICE + 1)} : {b.inside(CHOICE)}", CHOICE)
