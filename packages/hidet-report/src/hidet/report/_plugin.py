"""Plug-in module of hidet-report: what it offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hidet.plugins.specs import AttributeSpec

if TYPE_CHECKING:
    from hidet.compiler.lowered import LoweredGraph
    from hidet.context import CompileContext
    from hidet.graph.graph import Graph
    from hidet.plugins.specs import CommandTable
    from hidet.runtime.compiled import CompiledGraph

HIDET_API = 1


def hidet_attributes() -> Iterable[AttributeSpec]:
    """`compiled.profile(*inputs)`, `compiled.report().html(path)`, what notebooks show."""
    return [
        AttributeSpec(name="hidet.notebook.html_of", load="hidet.report.notebook:html_of"),
        AttributeSpec(
            name="hidet.runtime.CompileReport.html",
            load="hidet.report.page:write_page",
            doc="a page about the compilation",
        ),
        AttributeSpec(
            name="hidet.runtime.CompiledGraph.profile",
            load="hidet.report.profiling:profile",
            doc="how long each kernel takes on some inputs",
        ),
        AttributeSpec(
            name="hidet.runtime.CompiledGraph.with_ranges",
            load="hidet.report.ranges:with_ranges",
            doc="the same model with a function around each task, for profilers",
        ),
    ]


def hidet_commands(cli: CommandTable) -> None:
    """Those that measure a model, look at it or find its faults, the log of compilations, and completion in shells."""
    cli.add(
        "accuracy",
        load="hidet.report.accuracy_command:check_model",
        doc="Compare each kernel of MODEL with float64.",
    )
    cli.add("bench", load="hidet.report.bench_command:bench", doc="Measure the latency of MODEL, beside other systems.")
    cli.add("cache.log", load="hidet.report.log_command:log", doc="Show what was compiled when, and how long it took.")
    cli.add("completion", load="hidet.report.log_command:completion", doc="Print what completes commands in a shell.")
    cli.add(
        "minify",
        load="hidet.report.minify_command:minify_model_file",
        doc="Find the smallest part of MODEL with the same fault.",
    )
    cli.add("report", load="hidet.report.report_command:report_model", doc="Write a page about what became of MODEL.")
    cli.add(
        "profile", load="hidet.report.profile_command:profile_model", doc="Say how long each kernel of MODEL takes."
    )


def hidet_graph_facts() -> str:
    """Nothing: what is kept of a compilation changes none of it."""
    return ""


def hidet_pass_done(name: str, level: str, before: Any, after: Any, seconds: float) -> None:
    """Graph passes, for the differences that they make."""
    if level == "graph":
        from hidet.report.origin import note_pass

        note_pass(name, before, after, seconds)


def hidet_kernel_built(name: str, target: str, cached: bool) -> None:
    """Modules, for logs."""
    from hidet.report.logs import configure, log_module

    configure()
    log_module(name, target, cached)


def hidet_graph_compiled(compiled: CompiledGraph, graph: Graph, lowered: LoweredGraph, ctx: CompileContext) -> None:
    """What graphs were made from, for profiles, reports and logs; pages, where HIDET_REPORT names a folder for them."""
    from hidet.report.compile_log import note
    from hidet.report.logs import configure, log_graph, logs_graphs
    from hidet.report.origin import keep_origin, origin_of

    configure()
    note(graph, compiled.report(), ctx)
    keep_origin(compiled, graph, lowered, ctx)
    if logs_graphs():
        log_graph(origin_of(compiled.report()))
    folder = os.environ.get("HIDET_REPORT")
    if folder:
        from hidet.report.page import write_numbered

        write_numbered(compiled.report(), folder)
