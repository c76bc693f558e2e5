"""Sums of products by index letters, as products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from hidet.dims import Dim, product
from hidet.errors import ImportFailed
from hidet.frontend.emitter import Emitter
from hidet.graph import Value

Letters = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """A tensor and the letter of each axis; no letter occurs twice."""

    value: Value
    letters: Letters

    def extent(self, letter: str) -> Dim:
        return self.value.tensor.shape[self.letters.index(letter)]


def einsum(e: Emitter, equation: str, inputs: Sequence[Value]) -> Value:
    """numpy.einsum of an equation. Operands are joined from left to right, each pair by one matrix product.

    ImportFailed for what is no equation, or not one of these operands.
    """
    operands, result = _parsed(e, equation, [value.tensor.rank for value in inputs])
    terms = [_diagonals(e, value, letters) for value, letters in zip(inputs, operands, strict=True)]
    for number, term in enumerate(terms):
        # Letters that no other operand and no result has are summed first.
        needed = {*result, *(letter for other in (*terms[:number], *terms[number + 1 :]) for letter in other.letters)}
        terms[number] = _summed(e, term, [letter for letter in term.letters if letter not in needed])
    rest = [
        {*result, *(letter for term in terms[number + 1 :] for letter in term.letters)} for number in range(len(terms))
    ]
    joined = reduce(lambda left, step: _joined(e, left, terms[step], rest[step]), range(1, len(terms)), terms[0])
    joined = _summed(e, joined, [letter for letter in joined.letters if letter not in result])
    missing = [letter for letter in result if letter not in joined.letters]
    if missing:
        raise ImportFailed(f"Einsum {equation!r}: the result has index {missing[0]!r}, which no operand has")
    return e.transpose(joined.value, [joined.letters.index(letter) for letter in result])


def _parsed(e: Emitter, equation: str, ranks: Sequence[int]) -> tuple[list[Letters], Letters]:
    """Letters of the operands and of the result. The axes of an ellipsis are called "0", "1", … from the last on."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ImportFailed(f"Einsum {equation!r} names {len(parts)} operands, got {len(ranks)}")
    operands = [_spelled(equation, part, rank) for part, rank in zip(parts, ranks, strict=True)]
    hidden = sorted({letter for letters in operands for letter in letters if letter.isdigit()}, key=int, reverse=True)
    if arrow:
        before, dots, after = right.partition("...")
        result = (*before, *(hidden if dots else ()), *after)
    else:
        every = [letter for letters in operands for letter in letters if not letter.isdigit()]
        result = (*hidden, *sorted(letter for letter in set(every) if every.count(letter) == 1))
    wrong = [c for letters in (*operands, result) for c in letters if not (c.isalpha() or c.isdigit())]
    if wrong or len(set(result)) != len(result):
        raise ImportFailed(f"Einsum {equation!r} is no equation: expected letters, commas, '...' and one '->'")
    return operands, tuple(result)


def _spelled(equation: str, part: str, rank: int) -> Letters:
    before, dots, after = part.partition("...")
    count = rank - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise ImportFailed(f"Einsum {equation!r}: {part!r} names other axes than the {rank} of its operand")
    return (*before, *(str(number) for number in reversed(range(count))), *after)


def _diagonals(e: Emitter, value: Value, letters: Letters) -> _Term:
    """The operand with each letter once: equal ones walk along a diagonal."""
    while len(set(letters)) < len(letters):
        letter = next(c for c in letters if letters.count(c) > 1)
        first = letters.index(letter)
        second = letters.index(letter, first + 1)
        value = e.emit("diagonal", value, axis1=first, axis2=second)
        letters = (*(c for n, c in enumerate(letters) if n not in (first, second)), letter)
    return _Term(value, letters)


def _summed(e: Emitter, term: _Term, letters: Sequence[str]) -> _Term:
    if not letters:
        return term
    total = e.emit("sum", term.value, axes=tuple(term.letters.index(letter) for letter in letters))
    return _Term(e.cast(total, term.value.tensor.dtype), tuple(c for c in term.letters if c not in letters))


def _joined(e: Emitter, a: _Term, b: _Term, needed: set[str]) -> _Term:
    """The product of two terms, summed over letters that are not needed any more.

    Letters are: of both and kept (batch), of both and summed, of one alone. An axis of extent 1 repeats.
    """
    for letter in [c for c in a.letters if c in b.letters]:
        # An axis that repeats is no axis: dropping it leaves the other operand's.
        if a.extent(letter) == 1 and b.extent(letter) != 1:
            a = _dropped(e, a, letter)
        elif b.extent(letter) == 1 and a.extent(letter) != 1:
            b = _dropped(e, b, letter)
    common = [c for c in a.letters if c in b.letters]
    batch = [c for c in common if c in needed]
    folded = [c for c in common if c not in needed]
    rows, columns = ([c for c in t.letters if c not in common] for t in (a, b))
    matrices = (_matrix(e, a, batch, rows, folded), _matrix(e, b, batch, folded, columns))
    shape = [t.extent(c) for t, letters in ((a, batch), (a, rows), (b, columns)) for c in letters]
    result = e.emit("matmul", *matrices)
    return _Term(e.reshape(result, shape), (*batch, *rows, *columns))


def _dropped(e: Emitter, term: _Term, letter: str) -> _Term:
    axis = term.letters.index(letter)
    return _Term(e.emit("squeeze", term.value, axes=(axis,)), tuple(c for c in term.letters if c != letter))


def _matrix(e: Emitter, term: _Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> Value:
    """[batch, rows, columns], each the product of its letters' extents."""
    order = [term.letters.index(letter) for letter in (*batch, *rows, *columns)]
    shape = [product([term.extent(letter) for letter in letters]) for letters in (batch, rows, columns)]
    return e.reshape(e.transpose(term.value, order), shape)
