"""Values of a program's symbols, read from the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hidet.errors import ShapeError
from hidet.runtime.program import SymbolSource

ReadSymbols = Callable[[Sequence[Any]], tuple[int, ...]]


def symbol_reader(sources: Sequence[SymbolSource]) -> ReadSymbols:
    """A function from arguments (tensors have a `shape`) to the values of the symbols, in the order of `sources`."""
    if not sources:
        return lambda arguments: ()
    if not all(source.is_plain for source in sources):
        return lambda arguments: tuple([_solved(source, arguments) for source in sources])
    places = [(source.input, source.axis) for source in sources]
    return lambda arguments: tuple(
        [arguments[number] if axis is None else arguments[number].shape[axis] for number, axis in places]
    )


def _solved(source: SymbolSource, arguments: Sequence[Any]) -> int:
    given = arguments[source.input]
    extent = given if source.axis is None else given.shape[source.axis]
    value, rest = divmod((extent - source.offset) * source.multiplier, source.divisor)
    if rest:
        raise ShapeError(
            f"{source_text(source)} is {extent}, which no value of {source.name} gives: {extent - source.offset} is no "
            f"multiple of {source.divisor}"
        )
    return int(value)


def source_text(source: SymbolSource, name: str = "") -> str:
    """The place of a source in words; `name` is that of the argument."""
    argument = f"argument {source.input}{f' ({name})' if name else ''}"
    return argument if source.axis is None else f"axis {source.axis} of {argument}"
