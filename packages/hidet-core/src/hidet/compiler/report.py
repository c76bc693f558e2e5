"""What became of a graph, as its compile report says."""

from __future__ import annotations

from collections.abc import Iterable

from hidet import dims
from hidet.compiler.clock import Clock
from hidet.compiler.lowered import LoweredGraph
from hidet.context import CompileContext
from hidet.graph.graph import Graph, Value
from hidet.host.report import chosen_parameters, count_nodes, program_uses
from hidet.runtime.compiled import CompileReport


def report_on(
    graph: Graph, optimized: Graph, lowered: LoweredGraph, modules: int, cached: int, clock: Clock, ctx: CompileContext
) -> CompileReport:
    """The report of a graph that was compiled into so many modules, `cached` of them from the cache."""
    parts = [*lowered.main, *lowered.prepare]
    return CompileReport(
        nodes=count_nodes(lowered.main),
        kernels=len({symbol for scheduled in lowered.main for symbol in scheduled.modules}),
        tasks=sum(len(scheduled.task_graph.tasks) for scheduled in parts),
        programs=sum(scheduled.programs for scheduled in parts),
        modules=modules,
        cached_modules=cached,
        seconds=clock.seconds,
        notes=tuple(note for scheduled in lowered.main for note in scheduled.notes),
        weight_bytes=_bytes_of([*graph.parameters, *graph.constants]),
        prepared_bytes=0 if optimized.prepare is None else _bytes_of(optimized.prepare.results),
        graph_nodes=len(graph.nodes),
        build_seconds={
            kind: tuple(seconds for scheduled in parts for seconds in scheduled.build_seconds[kind])
            for kind in ("injective", "template")
        },
        uses=program_uses(lowered.main, ctx.registry),
        chosen=chosen_parameters(parts),
    )


def _bytes_of(values: Iterable[Value]) -> int:
    """Bytes of tensors of fixed size."""
    sizes = (dims.product(value.tensor.shape) * value.tensor.dtype.nbytes for value in values)
    return sum(size for size in sizes if isinstance(size, int))
