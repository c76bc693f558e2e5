"""The table of contents of the compiler: what is done with a graph that the cache does not have as a whole."""

from __future__ import annotations

from functools import partial

from hidet.cache import CacheKey
from hidet.compiler.binaries import begin_module, compile_modules
from hidet.compiler.clock import Clock
from hidet.compiler.kept_graphs import keep_graph
from hidet.compiler.loading import bundle_of, load_graph
from hidet.compiler.lowered import LoweredGraph
from hidet.compiler.lowering import lower_graph
from hidet.compiler.report import report_on
from hidet.compiler.workers import workers_of
from hidet.context import CompileContext
from hidet.graph.graph import Graph
from hidet.graph.verify import verify_graph
from hidet.host.report import has_warned
from hidet.host.units import compile_units
from hidet.passes.manager import run_graph_passes
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.signature import Signature


def compile_stepwise(
    graph: Graph, key: CacheKey | None, signature: Signature | None, clock: Clock, ctx: CompileContext
) -> tuple[CompiledGraph, LoweredGraph]:
    """Compile a graph, and keep it under a key unless that is None. signature: as `compile_graph` takes it."""
    with workers_of(graph, ctx) as workers:
        with clock("graph"):
            verify_graph(graph)
            optimized = run_graph_passes(graph, ctx)
        with clock("build"):
            begin = partial(begin_module, workers=workers, ctx=ctx) if workers.are_there else None
            lowered = lower_graph(optimized, graph, ctx, begin)
            units = compile_units(
                lowered.main_code, lowered.prepare_code, kernel_asserts_reach_host=ctx.target.device == "cpu"
            )
        with clock("compile"):
            binaries, cached = compile_modules(units, ctx, workers, together=key is None)
    report = report_on(graph, optimized, lowered, len(binaries), cached, clock, ctx)
    compiled = load_graph(bundle_of(lowered, binaries, signature, ctx), report, clock, ctx)
    # Who compiles the graph again is to be warned again, by the steps that do.
    if key is not None and not has_warned([*lowered.main, *lowered.prepare]):
        keep_graph(key, compiled.bundle, report, ctx)
    return compiled, lowered


def lower_again(graph: Graph, ctx: CompileContext) -> LoweredGraph:
    """What the steps would make of a graph that the cache has as a whole."""
    return lower_graph(run_graph_passes(graph, ctx), graph, ctx)
