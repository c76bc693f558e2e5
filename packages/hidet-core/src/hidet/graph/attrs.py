"""Immutable attribute mappings of graph nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Attrs(Mapping[str, Any]):
    """A frozen, hashable mapping; values are numbers, strings, None, dtypes, dims, sub-graphs or tuples of those."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items = {k: _freeze(v) for k, v in (items or {}).items()}
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple((k, type(v), v) for k, v in self._items.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attrs) or len(self) != len(other):
            return False
        pairs = ((v, other._items.get(k)) for k, v in self._items.items())
        return all(type(a) is type(b) and a == b for a, b in pairs)

    def __repr__(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self._items.items())


def _freeze(value: Any) -> Any:
    return tuple(_freeze(v) for v in value) if isinstance(value, list | tuple) else value
