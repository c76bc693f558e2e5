"""What a graph assumes of sizes, as checks of its host program."""

from __future__ import annotations

from dataclasses import replace

from hidet import dims
from hidet.dims import Dim
from hidet.graph.assumptions import assumptions, unproved_fits
from hidet.graph.graph import Graph
from hidet.loc import Loc
from hidet.runtime.program import HostProgram, NumberCheck, SizeCheck, defined_names


def with_size_checks(program: HostProgram, graph: Graph) -> HostProgram:
    """`program` with checks of what its graph takes for granted about sizes that its arguments and steps tell."""
    known = {source.name for source in program.symbols}
    known.update(name for step in program.steps for name in defined_names(step))

    def is_known(*sizes: Dim) -> bool:
        return all(symbol.name in known for size in sizes for symbol in dims.symbols(size))

    return replace(
        program,
        size_checks=tuple(
            SizeCheck(a.left, a.right, a.is_equality, a.what, _place(a.loc))
            for a in assumptions(graph)
            if is_known(a.left, a.right)
        ),
        number_checks=tuple(
            NumberCheck(fit.value, fit.dtype, fit.what, _place(loc))
            for fit, loc in unproved_fits(graph)
            if is_known(fit.value)
        ),
    )


def _place(loc: Loc | None) -> str:
    return "" if loc is None else str(loc)
