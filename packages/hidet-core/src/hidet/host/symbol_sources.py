"""Which arguments of a call tell the values of symbols: extents and integers that are linear in one symbol."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from hidet import dims
from hidet.dims import Dim, DimExpr, Symbol
from hidet.errors import CompileError
from hidet.graph.types import DimType, TensorType, ValueType
from hidet.runtime.program import SymbolSource


def symbol_sources(inputs: Sequence[ValueType]) -> dict[str, SymbolSource]:
    """For every symbol that arguments of these types determine, the one that does so most directly.

    An extent that is the symbol itself comes before one that gives it by a subtraction or multiplication, and that
    before one that has to be divided.
    """
    found: dict[str, SymbolSource] = {}
    # Most are tensors of fixed shape, weights above all.
    telling = [(n, t) for n, t in enumerate(inputs) if not isinstance(t, TensorType) or DimExpr in map(type, t.shape)]
    for number, type_ in telling:
        for axis, dim in _sizes(type_):
            source = _solve(dim, number, axis)
            if source is not None:
                known = found.get(source.name)
                if known is None or _effort(source) < _effort(known):
                    found[source.name] = source
    return found


def require_sources(used: Iterable[Dim], sources: Container[str], inputs: Mapping[str, ValueType]) -> None:
    """CompileError that names a symbol of `used` that is not in `sources`. `inputs`: types of the graph's inputs."""
    for dim in used:
        if isinstance(dim, int):
            continue
        for symbol in dims.symbols(dim):
            if symbol.name not in sources:
                raise CompileError(
                    f"the size {symbol.name} cannot be told from the arguments: {_occurrences(symbol, inputs)}",
                    hint="add an input that has this size as an extent, or pass it as an integer input",
                )


def _sizes(type_: ValueType) -> list[tuple[int | None, DimExpr]]:
    """Symbolic extents of a tensor by axis, or the integer itself with None."""
    if isinstance(type_, DimType):
        return [(None, type_.dim)] if isinstance(type_.dim, DimExpr) else []
    if isinstance(type_, TensorType):
        return [(axis, extent) for axis, extent in enumerate(type_.shape) if isinstance(extent, DimExpr)]
    return []


def _solve(dim: DimExpr, number: int, axis: int | None) -> SymbolSource | None:
    """The source of s in dim = p/q * s + offset; None for any other dim."""
    if len(dim.terms) != 1:
        return None
    ((monomial, coefficient),) = dim.terms
    if len(monomial) != 1 or not isinstance(monomial[0], Symbol):
        return None
    sign = 1 if coefficient > 0 else -1
    return SymbolSource(
        monomial[0].name, number, axis, dim.constant, sign * coefficient.denominator, abs(coefficient.numerator)
    )


def _effort(source: SymbolSource) -> int:
    return 0 if source.is_plain else 1 if source.divisor == 1 else 2


def _occurrences(symbol: Symbol, inputs: Mapping[str, ValueType]) -> str:
    places = [
        f"{dim}{'' if axis is None else f' at axis {axis}'} of input {name}"
        for name, type_ in inputs.items()
        for axis, dim in _sizes(type_)
        if symbol in dims.symbols(dim)
    ]
    return f"it occurs only as {', '.join(places)}" if places else "no input has it"
