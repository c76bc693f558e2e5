"""What a graph assumes of sizes, as checks of its host program."""

from __future__ import annotations

from hidet import dims
from hidet.graph.assumptions import assumptions
from hidet.graph.graph import Graph
from hidet.runtime.program import HostProgram, SizeCheck, defined_names


def size_checks(graph: Graph, program: HostProgram) -> tuple[SizeCheck, ...]:
    """Checks of the assumptions of `graph`, whose program this is, about sizes that its arguments and steps tell."""
    known = {source.name for source in program.symbols}
    known.update(name for step in program.steps for name in defined_names(step))
    return tuple(
        SizeCheck(a.left, a.right, a.is_equality, a.what, "" if a.loc is None else str(a.loc))
        for a in assumptions(graph)
        if all(symbol.name in known for dim in (a.left, a.right) for symbol in dims.symbols(dim))
    )
