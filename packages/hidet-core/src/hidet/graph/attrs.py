"""Immutable attribute mappings of graph nodes."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any


class Attrs(Mapping[str, Any]):
    """A frozen, hashable mapping; values are numbers, strings, None, dtypes, dims, types, sub-graphs or tuples.

    Two are equal when nodes that differ in them alone compute the same: 1, 1.0 and True differ, and so do 0.0 and -0.0,
    while NaN equals NaN.
    """

    __slots__ = ("_items", "_key")

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        given = {} if items is None else items
        self._items = {k: _freeze(v) if isinstance(v, _ROWS) else v for k, v in given.items()}
        self._key: frozenset[tuple[str, object]] | None = None

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # Those that Mapping would give are made of calls of the above, and every pass asks.
    def keys(self) -> KeysView[str]:
        """Names, in the order of the operator's attributes."""
        return self._items.keys()

    def values(self) -> ValuesView[Any]:
        """Values, in that order."""
        return self._items.values()

    def items(self) -> ItemsView[str, Any]:
        """Pairs of both."""
        return self._items.items()

    @property
    def key(self) -> frozenset[tuple[str, object]]:
        """What equality and hash go by."""
        if self._key is None:
            self._key = frozenset([(name, _exact(value)) for name, value in self._items.items()])
        return self._key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attrs) and self.key == other.key

    def __repr__(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self._items.items())


_ROWS = (list, tuple)


def _freeze(value: Any) -> Any:
    return tuple([_freeze(v) for v in value]) if isinstance(value, _ROWS) else value


def _exact(value: Any) -> object:
    """A key that tells values apart by type and bits."""
    if isinstance(value, tuple):
        return tuple([_exact(item) for item in value])
    if isinstance(value, float):
        return type(value), value.hex()
    if isinstance(value, complex):
        return complex, value.real.hex(), value.imag.hex()
    return type(value), value
