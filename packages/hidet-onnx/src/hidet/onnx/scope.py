"""Names of values while importing: one scope for a graph, one inside it for each sub-graph and function body."""

from __future__ import annotations

from typing import Any

from hidet.errors import ImportFailed

Item = Any
"""What a name stands for: a `Value`, None for an absent optional input, or what a mapping of sequences makes."""


class Scope:
    """Names defined here, and those of the scopes around; a name is defined once in a scope."""

    def __init__(self, outer: Scope | None) -> None:
        self.outer = outer
        self._items: dict[str, Item] = {}

    def define(self, name: str, item: Item) -> None:
        """Give a name its meaning. ImportFailed when it has one in this scope."""
        if name in self._items:
            raise ImportFailed(f"name {name!r} is defined twice: every value of an ONNX graph has a name of its own")
        self._items[name] = item

    def find(self, name: str, reader: str) -> Item:
        """What a name stands for. ImportFailed when it is defined nowhere, or only later; `reader` says who asks."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._items:
                return scope._items[name]
            scope = scope.outer
        raise ImportFailed(f"{reader} is {name!r}, which no node before it computes, and which is no input")
