"""Plug-in module of hidet-script: scripts as operators of graphs. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.compute.routine import RoutineSpec
    from hidet.context import CompileContext
    from hidet.graph import Graph
    from hidet.plugins.specs import AttributeSpec, CommandTable, ScheduleSpec
    from hidet.runtime.compiled import CompiledGraph

HIDET_API = 1


def hidet_attributes() -> Iterable[AttributeSpec]:
    """What notebooks show."""
    from hidet.plugins.specs import AttributeSpec

    return [AttributeSpec(name="hidet.notebook.html_of", load="hidet.utils.notebook:html_of")]


def hidet_routines() -> Iterable[RoutineSpec]:
    """What a node that calls a script does."""
    from hidet.script_operator.operator import ROUTINE

    return [ROUTINE]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """Calls of scripts."""
    from hidet.plugins.specs import ANY, ScheduleSpec

    return [
        ScheduleSpec(
            name="script",
            ops=("script",),
            targets=(ANY,),
            load="hidet.script_operator.schedule:ScriptRule",
            doc="calls of scripts that users have registered as operators",
        )
    ]


def hidet_commands(cli: CommandTable) -> None:
    """`hidet cache log`, `hidet completion`."""
    cli.add("cache.log", load="hidet.utils.commands:log", doc="Show what was compiled when, and how long it took.")
    cli.add("completion", load="hidet.utils.commands:completion", doc="Print what completes commands in a shell.")


def hidet_graph_compiled(compiled: CompiledGraph, graph: Graph, ctx: CompileContext) -> None:
    """The log of compilations."""
    from hidet.utils.compile_log import note

    note(graph, compiled.report(), ctx)
