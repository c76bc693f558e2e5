"""What a graph assumes of sizes, as checks of its host program."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dims
from hidet.graph.assumptions import assumptions
from hidet.graph.graph import Graph
from hidet.runtime.program import SizeCheck, SymbolSource


def size_checks(graph: Graph, symbols: Sequence[SymbolSource]) -> tuple[SizeCheck, ...]:
    """Checks of the assumptions of `graph` about sizes that its arguments tell; others are known to the host alone."""
    known = {source.name for source in symbols}
    return tuple(
        SizeCheck(a.left, a.right, a.is_equality, a.what, "" if a.loc is None else str(a.loc))
        for a in assumptions(graph)
        if all(symbol.name in known for dim in (a.left, a.right) for symbol in dims.symbols(dim))
    )
