"""Dims as text: `2*s0 + 1`, `floordiv(s0 + 3, 4)`, `min(s0, 128)`, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hidet.dims.atom import Atom, Symbol
from hidet.dims.divide import ceildiv, floordiv, floordiv_unchecked, mod, mod_unchecked
from hidet.dims.expr import MAX_DEPTH, Dim, FloorDiv, Max, Min, Mod, Term, add, as_dim, multiply
from hidet.dims.extrema import maximum, minimum
from hidet.errors import ShapeError, suggestion


def dim_text(dim: Dim) -> str:
    """One line that `parse_dim` reads back as an equal Dim, given the same symbols."""
    if isinstance(dim, int):
        return str(dim)
    text = ""
    for term in dim.terms:
        negative, magnitude = _term_text(term)
        if text:
            text += f" - {magnitude}" if negative else f" + {magnitude}"
        else:
            text = f"-{magnitude}" if negative else magnitude
    if dim.constant:
        text += f" - {-dim.constant}" if dim.constant < 0 else f" + {dim.constant}"
    return text


def _term_text(term: Term) -> tuple[bool, str]:
    """Whether the coefficient is negative, and the term without that sign."""
    monomial, coefficient = term
    factors = "*".join(map(_atom_text, monomial))
    if coefficient.denominator != 1:
        factors = f"floordiv({factors}, {coefficient.denominator})"
    numerator = abs(coefficient.numerator)
    return coefficient < 0, factors if numerator == 1 else f"{numerator}*{factors}"


def _atom_text(atom: Atom) -> str:
    match atom:
        case Symbol(name):
            return name
        case FloorDiv(numerator, denominator):
            return f"floordiv({dim_text(numerator)}, {dim_text(denominator)})"
        case Mod(value, modulus):
            return f"mod({dim_text(value)}, {dim_text(modulus)})"
        case Min(operands):
            return f"min({', '.join(map(dim_text, operands))})"
        case Max(operands):
            return f"max({', '.join(map(dim_text, operands))})"
    raise AssertionError(f"unknown atom {atom!r}")


_TOKEN = re.compile(r"\s*(?:(?P<integer>\d+)|(?P<name>[^\W\d]\w*)|(?P<sign>//|[-+*%(),]))")
_PAIRS: dict[str, Callable[[Dim, Dim], Dim]] = {"floordiv": floordiv, "ceildiv": ceildiv, "mod": mod}
_PRINTED: dict[str, Callable[[Dim, Dim], Dim]] = {
    # Of numbers it is known whether they are positive.
    "floordiv": lambda a, b: floordiv(a, b) if isinstance(b, int) else floordiv_unchecked(a, b),
    "mod": lambda a, b: mod(a, b) if isinstance(b, int) else mod_unchecked(a, b),
}
_CHAINS: dict[str, Callable[[Dim, Dim], Dim]] = {"min": minimum, "max": maximum}
_PRODUCTS: dict[str, Callable[[Dim, Dim], Dim]] = {"*": multiply, "//": floordiv, "%": mod}


def parse_dim(text: str, symbols: Mapping[str, Symbol | Dim], *, is_printed: bool = False) -> Dim:
    """The Dim that `text` describes; + - * // % and floordiv, ceildiv, mod, min, max of what `symbols` names.

    is_printed: it is the text of a Dim, some of whose divisors were taken to be positive (`floordiv_unchecked`).
    Raises ShapeError with the column for text that is malformed, nests too deeply or names an unknown symbol.
    """
    parser = _Parser(text, symbols, is_printed)
    result = parser.sum(0)
    if parser.token:
        raise parser.error("an operator or the end")
    return result


class _Parser:
    """Recursive descent over one line; `token` is the current token, "" at the end."""

    def __init__(self, text: str, symbols: Mapping[str, Symbol | Dim], is_printed: bool) -> None:
        self.text = text
        self.is_printed = is_printed
        self.symbols = symbols
        self.end = 0
        self.advance()

    def advance(self) -> None:
        self.start = self.end
        match = _TOKEN.match(self.text, self.end)
        if match is None and self.text[self.end :].strip():
            self.token = self.text[self.end :].strip()[0]
            raise self.error("a number, a name or an operator")
        self.kind = match.lastgroup if match else None
        self.token = match.group(match.lastgroup) if match and match.lastgroup else ""
        self.end = match.end() if match else len(self.text)

    def error(self, expected: str) -> ShapeError:
        column = len(self.text[: self.start]) + 1
        found = repr(self.token) if self.token else "the end"
        return ShapeError(f"size {self.text!r}, column {column}: found {found}, expected {expected}")

    def expect(self, token: str) -> None:
        if self.token != token:
            raise self.error(repr(token))
        self.advance()

    def sum(self, depth: int) -> Dim:
        if depth > MAX_DEPTH:
            raise self.error(f"at most {MAX_DEPTH} levels of nesting")
        total = self.product(depth)
        while self.token in ("+", "-"):
            sign = 1 if self.token == "+" else -1
            self.advance()
            total = add(total, multiply(self.product(depth), sign))
        return total

    def product(self, depth: int) -> Dim:
        total = self.factor(depth)
        while self.token in _PRODUCTS:
            combine = _PRODUCTS[self.token]
            self.advance()
            total = combine(total, self.factor(depth))
        return total

    def factor(self, depth: int) -> Dim:
        sign = 1
        while self.token == "-":
            sign = -sign
            self.advance()
        return multiply(self.primary(depth), sign)

    def primary(self, depth: int) -> Dim:
        token, kind = self.token, self.kind
        if kind == "integer":
            self.advance()
            return int(token)
        if token == "(":
            self.advance()
            value = self.sum(depth + 1)
            self.expect(")")
            return value
        if kind != "name":
            raise self.error("a number, a name or '('")
        start = self.start
        self.advance()
        if self.token == "(":
            return self.call(token, depth + 1)
        if token not in self.symbols:
            self.start, self.token = start, token
            unknown = self.error("a known symbol")
            unknown.hint = suggestion(token, self.symbols)
            raise unknown
        return as_dim(self.symbols[token])

    def call(self, name: str, depth: int) -> Dim:
        combine = (_PRINTED.get(name) if self.is_printed else None) or _PAIRS.get(name) or _CHAINS.get(name)
        if combine is None:
            raise self.error(f"an operator, since {name!r} is no function; functions: {', '.join([*_PAIRS, *_CHAINS])}")
        self.advance()
        arguments = [self.sum(depth)]
        while self.token == ",":
            self.advance()
            arguments.append(self.sum(depth))
        if len(arguments) < 2 or (name in _PAIRS and len(arguments) > 2):
            raise self.error(f"{name} to have {'two' if name in _PAIRS else 'two or more'} arguments")
        self.expect(")")
        result, *others = arguments
        for other in others:
            result = combine(result, other)
        return result
