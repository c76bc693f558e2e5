"""`compile`: the table of contents of the compiler. Each step's value prints as text with HIDET_DUMP=directory."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hidet import dims
from hidet.context import CompileContext, Options, make_context
from hidet.errors import HidetError
from hidet.graph.graph import Graph, Value
from hidet.graph.verify import verify_graph
from hidet.passes.graph.fuse import fuse
from hidet.passes.manager import run_graph_passes, run_program_passes
from hidet.progress import CompileProgress
from hidet.runtime.artifact import segment_symbols
from hidet.runtime.bake import bake_prepared
from hidet.runtime.compiled import CodeBundle, CompiledGraph, CompileReport
from hidet.schedule.cache_key import module_key
from hidet.schedule.host import HostCode, build_host_program
from hidet.schedule.report import count_nodes, warn_of_fallbacks
from hidet.schedule.select import ScheduledGraph, select_schedules
from hidet.schedule.size_checks import size_checks
from hidet.schedule.units import CompileUnit, compile_units
from hidet.target import Binary, CompileJob


def compile(
    model: Any,
    example_inputs: Sequence[Any] | None = None,
    *,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
) -> CompiledGraph:
    """Compile a graph, or a model that a frontend accepts (an nn.Module, a path to a model file).

    example_inputs: tensors that give dtypes and shapes where the model does not (torch); None otherwise.
    target: "auto", "cpu", … Raises a HidetError naming the operator and place that cannot be compiled.
    """
    ctx = make_context(target, options)
    graph = model if isinstance(model, Graph) else _import(model, example_inputs, ctx)
    return compile_graph(graph, ctx)


@contextmanager
def paused_gc() -> Iterator[None]:
    """Keep the cycle collector out of a compilation: IR has no cycles, and one full collection of a process that holds
    a framework costs more than compiling a small model."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def compile_graph(graph: Graph, ctx: CompileContext) -> CompiledGraph:
    """The compiler, hand-over by hand-over. Raises the HidetError of the first step that fails."""
    with paused_gc():
        return _compile_graph(graph, ctx)


def _compile_graph(graph: Graph, ctx: CompileContext) -> CompiledGraph:
    clock = _Clock()
    with clock("graph"):
        verify_graph(graph)
        optimized = run_graph_passes(graph, ctx)
    with clock("build"):
        main = _lower(optimized, ctx, "main")
        prepare = None if optimized.prepare is None else _lower(optimized.prepare.graph, ctx, "prepare")
        parts = [part for part in (main, prepare) if part is not None]
        warn_of_fallbacks([part.scheduled for part in parts], ctx.target.name)
        units = compile_units([(part.scheduled, part.host) for part in parts])
    with clock("compile"):
        binaries, cached = compile_modules(units, ctx)
    with clock("load"):
        code = ctx.target.load(binaries, ctx.cache)
    program = replace(main.host.program, size_checks=size_checks(graph, main.host.program.symbols))
    if prepare is not None:
        assert optimized.prepare is not None
        places = {value: number for number, value in enumerate(optimized.inputs)}
        sources = tuple(places[value] for value in optimized.prepare.parameters)
        program = replace(program, prepare=prepare.host.program, prepare_inputs=sources)
    bundle = CodeBundle(
        program=program,
        binaries=tuple(binaries),
        constants=_arrays(main),
        prepare_constants=() if prepare is None else _arrays(prepare),
        target=ctx.target.name,
        arch=ctx.target.arch,
    )
    functions = {symbol: code.function(symbol, ctx.options.threads) for symbol in segment_symbols(program)}
    if prepare is not None and not prepare.host.program.inputs:
        with clock("prepare"):
            bundle = bake_prepared(bundle, functions)
    report = CompileReport(
        nodes=count_nodes(main.scheduled),
        kernels=len(main.scheduled.modules),
        tasks=sum(len(part.scheduled.task_graph.tasks) for part in parts),
        programs=sum(part.scheduled.programs for part in parts),
        modules=len(binaries),
        cached_modules=cached,
        seconds=clock.seconds,
        notes=main.scheduled.notes,
        weight_bytes=_bytes_of([*graph.parameters, *graph.constants]),
        prepared_bytes=0 if optimized.prepare is None else _bytes_of(optimized.prepare.results),
    )
    return CompiledGraph(bundle, functions, report, keep_alive=code)


@dataclass(frozen=True, slots=True, eq=False)
class _Lowered:
    graph: Graph
    scheduled: ScheduledGraph
    host: HostCode


def _lower(graph: Graph, ctx: CompileContext, name: str) -> _Lowered:
    scheduled = select_schedules(fuse(graph, ctx), ctx)
    return _Lowered(graph, scheduled, build_host_program(scheduled, name))


def compile_modules(units: Mapping[str, CompileUnit], ctx: CompileContext) -> tuple[list[Binary], int]:
    """Machine code of every module, from the cache where it is there; also how many were.

    Modules are lowered when their code is not there, or when somebody wants to see them lowered.
    """
    keys = {name: module_key(name, unit, ctx) for name, unit in units.items()}
    found = {name: ctx.cache.get(key) for name, key in keys.items()}
    is_watched = ctx.options.verify or ctx.options.dump is not None
    lowered = {
        name: run_program_passes(unit.module, ctx) for name, unit in units.items() if found[name] is None or is_watched
    }
    jobs = [CompileJob(name, lowered[name], units[name].effort) for name, data in found.items() if data is None]
    with CompileProgress() as progress:
        fresh = {binary.name: binary for binary in ctx.target.compile(jobs, progress.update)} if jobs else {}
    for name, binary in fresh.items():
        ctx.cache.put(keys[name], binary.data)
    stored = {name: Binary(name, data) for name, data in found.items() if data is not None}
    binaries = [fresh.get(name) or stored[name] for name in units]
    for binary in binaries:
        program = units[binary.name].module
        ctx.registry.kernel_built(binary.name, ctx.target.name, program, binary.data, binary.name in stored)
    return binaries, len(stored)


def _bytes_of(values: Iterable[Value]) -> int:
    """Bytes of tensors of fixed size."""
    sizes = (dims.product(value.tensor.shape) * value.tensor.dtype.nbytes for value in values)
    return sum(size for size in sizes if isinstance(size, int))


def _arrays(part: _Lowered) -> tuple[Any, ...]:
    import numpy

    constants = part.graph.constants
    return tuple(numpy.ascontiguousarray(constants[value].numpy()) for value in part.host.constants)


def _import(model: Any, example_inputs: Sequence[Any] | None, ctx: CompileContext) -> Graph:
    spec = ctx.registry.frontend_for(model)
    import_model: Any = spec.resolve()
    graph = import_model(model, example_inputs, ctx)
    if not isinstance(graph, Graph):
        raise HidetError(f"frontend {spec.name} returned a {type(graph).__name__}, expected a Graph")
    return graph


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - start
