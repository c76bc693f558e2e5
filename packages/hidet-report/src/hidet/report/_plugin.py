"""Plug-in module of hidet-report: what it offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hidet.plugins.specs import AttributeSpec

if TYPE_CHECKING:
    from hidet.compiler.lowering import LoweredGraph
    from hidet.context import CompileContext
    from hidet.graph.graph import Graph
    from hidet.plugins.specs import CommandTable
    from hidet.runtime.compiled import CompiledGraph

HIDET_API = 1


def hidet_attributes() -> Iterable[AttributeSpec]:
    """`compiled.profile(*inputs)`."""
    return [
        AttributeSpec(
            name="hidet.runtime.CompiledGraph.profile",
            load="hidet.report.profiling:profile",
            doc="how long each kernel takes on some inputs",
        ),
    ]


def hidet_commands(cli: CommandTable) -> None:
    """`hidet profile`."""
    cli.add(
        "profile", load="hidet.report.profile_command:profile_model", doc="Say how long each kernel of MODEL takes."
    )


def hidet_pass_done(name: str, level: str, before: Any, after: Any, seconds: float) -> None:
    """Graph passes, for the differences that they make."""
    if level == "graph":
        from hidet.report.origin import note_pass

        note_pass(name, before, after, seconds)


def hidet_graph_compiled(compiled: CompiledGraph, graph: Graph, lowered: LoweredGraph, ctx: CompileContext) -> None:
    """What graphs were made from, for profiles and reports."""
    from hidet.report.origin import keep_origin

    keep_origin(compiled, graph, lowered, ctx)
