"""Values of symbolic sizes, learnt from the shapes of actual arrays."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

from hidet import dims
from hidet.dims import Dim, Symbol
from hidet.errors import ShapeError


def sole_symbol(dim: Dim) -> Symbol | None:
    """The symbol that `dim` consists of, None for any other dim."""
    if isinstance(dim, int):
        return None
    found = dims.symbols(dim)
    return found[0] if len(found) == 1 and dim == dims.as_dim(found[0]) else None


def bind_shape(bindings: MutableMapping[str, int], shape: Sequence[Dim], actual: Sequence[int], what: str) -> None:
    """Add the symbols that are whole extents of `shape` to `bindings`, as an array of shape `actual` gives them.

    Raises ShapeError naming `what` when the ranks differ, or a symbol's facts forbid its value.
    """
    if len(shape) != len(actual):
        raise ShapeError(f"{what} has shape {tuple(actual)}, expected {len(shape)} axes: ({_text(shape)})")
    for dim, extent in zip(shape, actual, strict=True):
        symbol = sole_symbol(dim)
        if symbol is None or symbol.name in bindings:
            continue
        if not symbol.admits(extent):
            raise ShapeError(f"{what} has shape {tuple(actual)}, but {symbol.facts()}")
        bindings[symbol.name] = extent


def check_shape(bindings: Mapping[str, int], shape: Sequence[Dim], actual: Sequence[int], what: str) -> None:
    """Raise ShapeError naming `what` unless `shape` has the extents `actual` under `bindings`."""
    expected = tuple(dims.evaluate(dim, bindings) for dim in shape)
    if expected != tuple(actual):
        given = ", ".join(f"{name}={value}" for name, value in bindings.items())
        raise ShapeError(
            f"{what} has shape {tuple(actual)}, expected ({_text(shape)}) = {expected} with {given or '-'}"
        )


def _text(shape: Sequence[Dim]) -> str:
    return ", ".join(map(str, shape))
