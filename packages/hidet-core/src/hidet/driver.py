"""`compile`: the table of contents of the compiler. Each step's value prints as text with HIDET_DUMP=directory."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hidet import dims
from hidet.context import CompileContext, Options, make_context, options_from
from hidet.dims import Dim
from hidet.errors import CompileError, HidetError, ImportFailed, LaunchError, OptionError
from hidet.fusion.fuse import fuse
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.printer import print_graph
from hidet.graph.types import TensorType
from hidet.graph.verify import subgraphs_of, verify_graph
from hidet.host.bind import bind_program, with_symbols
from hidet.host.code_cache import keep_modules, read_modules
from hidet.host.own_memory import with_own_memory
from hidet.host.program import HostCode, InnerProgram, build_host_program
from hidet.host.report import count_nodes, program_uses, warn_of_fallbacks
from hidet.host.size_checks import with_size_checks
from hidet.host.subgraph import close_subgraph
from hidet.host.units import CompileUnit, compile_units
from hidet.ir.func import Module
from hidet.passes.dump import dump, in_own_folder
from hidet.passes.manager import run_graph_passes, run_program_passes
from hidet.plugins.host import load_registry
from hidet.plugins.specs import FrontendSpec
from hidet.progress import CompileProgress
from hidet.runtime.artifact import segment_symbols
from hidet.runtime.bake import bake_prepared, needs_baking, with_own_constants
from hidet.runtime.compiled import CodeBundle, CompiledGraph, CompileReport
from hidet.runtime.executor import SegmentFunction
from hidet.runtime.module import CompiledModule
from hidet.runtime.program import HostProgram
from hidet.runtime.program_text import print_plans, print_program
from hidet.runtime.replay import REPLAY_AFTER
from hidet.runtime.signature import ModelGraph, Signature
from hidet.runtime.verify import verify_program
from hidet.schedule.schedule_text import print_schedules
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules
from hidet.schedule.task_text import print_tasks
from hidet.target import Binary, CompileJob


def compile(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> CompiledGraph:
    """Compile a graph, or a model that a frontend accepts (an nn.Module, a path to a model file).

    Weights of a model become part of the compiled graph: what is written to the model afterwards does not show.
    What comes back takes what the model takes, a graph's its inputs.

    example_inputs: arguments of the model that give dtypes and shapes where the model does not (torch), in order or by
    name; None otherwise.
    dynamic_shapes: which sizes of the example inputs may differ between calls, as `torch.export.export` takes it; None:
    none may. ImportFailed for models that say so themselves (graphs, model files, exported programs).
    target: "cpu", "cuda:1", …; "auto" is the device that the model is on. "cuda:sm_90a" and "cpu:haswell" name another
    machine to compile for: what comes back can be saved and looked at; where it cannot run, calling it raises
    LaunchError.
    shapes, values: for models in files (ONNX), shapes of inputs by name in place of those that the model says, and
    inputs that are built in with these elements, which the compiled graph takes no more.
    Raises a HidetError naming the operator and place that cannot be compiled; `ShapeNeeded` and `ValueNeeded` name
    inputs that need a shape, or elements.
    """
    fixed = {name: given for name, given in (("shapes", shapes), ("values", values)) if given}
    if isinstance(model, Graph):
        _refuse_dynamic_shapes(dynamic_shapes, "a graph")
        if fixed:
            raise ImportFailed(f"{' and '.join(fixed)} are given for a graph, whose inputs say what they are")
        return compile_graph(model, make_context(target, options))
    chosen = options_from(options)
    frontend = load_registry().frontend_for(model)
    if not frontend.dynamic_shapes:
        _refuse_dynamic_shapes(dynamic_shapes, f"a model of front-end {frontend.name}")
    if fixed and not frontend.fixes_inputs:
        raise ImportFailed(
            f"{' and '.join(fixed)} are given, which front-end {frontend.name} does not take",
            hint="give example_inputs, or an exported program",
        )
    own = frontend.target_for(model, example_inputs) if target == "auto" else None
    ctx = make_context(own or target, chosen.following(frontend.options_followed()))
    named = {**fixed, **({"dynamic_shapes": dynamic_shapes} if frontend.dynamic_shapes else {})}
    imported = _import(frontend, model, example_inputs, ctx, named)
    if isinstance(imported, Graph):
        return compile_graph(imported, ctx)
    return compile_graph(imported.graph, ctx, imported.signature)


def build_ir_module(
    module: Module, target: str = "auto", options: Options | Mapping[str, Any] | None = None
) -> CompiledModule:
    """See `hidet.drivers.build_ir_module`, which this is."""
    # That file compiles by means of this one.
    from hidet.drivers import build_ir_module as build

    return build(module, target, options)


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


def compile_graph(graph: Graph, ctx: CompileContext, signature: Signature | None = None) -> CompiledGraph:
    """The compiler, hand-over by hand-over. Raises the HidetError of the first step that fails.

    signature: how what is compiled is called; None: with the inputs of the graph.
    """
    if ctx.options.check_bounds:
        raise OptionError(
            "option check_bounds is for modules of kernels: kernels of graphs use pointers, which have no shapes",
            hint="give it to hidet.driver.build_ir_module",
        )
    with paused_gc():
        return _compile_graph(graph, in_own_folder(ctx, graph.name), signature)


def _compile_graph(graph: Graph, ctx: CompileContext, signature: Signature | None) -> CompiledGraph:
    clock = _Clock()
    with clock("graph"):
        verify_graph(graph)
        optimized = run_graph_passes(graph, ctx)
    with clock("build"):
        lowering = _Lowering(ctx)
        program = lowering.graph(optimized, "main")
        program = with_size_checks(program, graph)
        prepare = _Lowering(ctx)
        if optimized.prepare is not None:
            program = replace(program, prepare=prepare.graph(optimized.prepare.graph, "prepare"))
        parts = [*lowering.parts, *prepare.parts]
        warn_of_fallbacks([scheduled for scheduled, _ in parts], ctx.target.name)
        program, names = bind_program(program, ctx.target)
        dump(ctx, "host.txt", partial(print_program, program))
        dump(ctx, "plan.txt", partial(print_plans, program))
        main_parts, prepare_parts = (with_symbols(made.parts, names) for made in (lowering, prepare))
        units = compile_units(main_parts, prepare_parts, kernels_tell=ctx.target.device == "cpu")
    with clock("compile"):
        binaries, cached = compile_modules(units, ctx)
    bundle = CodeBundle(
        program=program,
        binaries=tuple(binaries),
        constants=tuple(lowering.constants),
        prepare_constants=tuple(prepare.constants),
        target=ctx.target.name,
        arch=ctx.target.arch,
        signature=signature,
    )
    given = [*lowering.constants, *prepare.constants]
    loaded: _Loaded | None = None
    try:
        loaded = _load(bundle, ctx, clock)
    except (CompileError, LaunchError):
        # Code for a machine that a user has named need not run on this one.
        if ctx.machine is None:
            raise
    bundle = with_own_constants(bundle if loaded is None else loaded.bundle, given)
    if ctx.options.verify:
        verify_program(bundle.program, bundle.constants, bundle.prepare_constants)
    report = CompileReport(
        nodes=count_nodes([scheduled for scheduled, _ in lowering.parts]),
        kernels=len({symbol for scheduled, _ in lowering.parts for symbol in scheduled.modules}),
        tasks=sum(len(scheduled.task_graph.tasks) for scheduled, _ in parts),
        programs=sum(scheduled.programs for scheduled, _ in parts),
        modules=len(binaries),
        cached_modules=cached,
        seconds=clock.seconds,
        notes=tuple(note for scheduled, _ in lowering.parts for note in scheduled.notes),
        weight_bytes=_bytes_of([*graph.parameters, *graph.constants]),
        prepared_bytes=0 if optimized.prepare is None else _bytes_of(optimized.prepare.results),
        graph_nodes=len(graph.nodes),
        build_seconds={
            kind: tuple(seconds for scheduled, _ in parts for seconds in scheduled.build_seconds[kind])
            for kind in ("injective", "template")
        },
        uses=program_uses([scheduled for scheduled, _ in lowering.parts], ctx.registry),
    )
    replay_after = REPLAY_AFTER[ctx.options.mode]
    if loaded is not None:
        return CompiledGraph(bundle, loaded.functions, report, loaded.code, ctx.target.memory, replay_after)

    def load() -> CompiledGraph:
        try:
            late = _load(bundle, ctx, clock)
        except (CompileError, LaunchError) as error:
            raise LaunchError(
                f"the graph is compiled for {ctx.target.name}:{ctx.machine}, and cannot run here: {error.message}",
                hint="compiled.save(path) writes it to a file, which hidet.load(path) runs on such a machine",
            ) from error
        return CompiledGraph(late.bundle, late.functions, report, late.code, ctx.target.memory, replay_after)

    return CompiledGraph(bundle, {}, report, load=load)


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """Code in memory, by symbol, and the bundle with what it prepared once and for all."""

    bundle: CodeBundle
    functions: Mapping[str, SegmentFunction]
    code: object


def _load(bundle: CodeBundle, ctx: CompileContext, clock: _Clock) -> _Loaded:
    """Load code where it runs. CompileError or LaunchError where that is not here."""
    with clock("load"):
        code = ctx.target.load(bundle.binaries, ctx.cache)
        functions = {symbol: code.function(symbol, ctx.options.threads) for symbol in segment_symbols(bundle.program)}
    if needs_baking(bundle.program):
        with clock("prepare"):
            bundle = bake_prepared(bundle, functions, ctx.target.memory)
    return _Loaded(bundle, functions, code)


class _Lowering:
    """From graphs to host programs: a graph and, inside it, the sub-graphs of its control operators.

    parts: what is to be compiled. constants: the store that all the programs index.
    """

    def __init__(self, ctx: CompileContext) -> None:
        self.ctx = ctx
        self.parts: list[tuple[ScheduledGraph, HostCode]] = []
        self.constants: list[Any] = []

    def graph(self, graph: Graph, name: str, *, is_inner: bool = False) -> HostProgram:
        """The program of an optimised graph; `name` prefixes the symbols of its segments."""
        import numpy

        graph = with_own_memory(graph, self.ctx.registry.operators, is_inner=is_inner)
        tasks = fuse(graph, self.ctx)
        folder = "" if name == "main" else f"{name}/"
        dump(self.ctx, f"{folder}tasks.hir", partial(print_graph, tasks.graph))
        dump(self.ctx, f"{folder}tasks.txt", partial(print_tasks, tasks))
        scheduled = select_schedules(tasks, self.ctx)
        dump(self.ctx, f"{folder}schedules.txt", partial(print_schedules, scheduled, self.ctx))
        for step in scheduled.steps:
            if isinstance(step, ScheduledTask):
                for kernel in step.program.lowered_from:
                    dump(self.ctx, f"{folder}{step.symbol}_{kernel.name}{kernel.ending}", kernel.text)
        controls = [node for node in graph.nodes if node.op.kind == "control"]
        types = scheduled.task_graph.types
        inner = {node: self._inner(node, types, f"{name}_{number}") for number, node in enumerate(controls)}
        host = build_host_program(scheduled, name, inner=inner, first_constant=len(self.constants))
        self.constants += [numpy.ascontiguousarray(graph.constants[value].numpy()) for value in host.constants]
        self.parts.append((scheduled, host))
        return host.program

    def _inner(self, node: Node, types: Mapping[Value, TensorType], name: str) -> tuple[InnerProgram, ...]:
        """The programs of a node's sub-graphs, which are optimised for the layout of what they capture."""
        programs = []
        for number, subgraph in enumerate(subgraphs_of(node)):
            closed, sizes = close_subgraph(node, subgraph, types)
            prefix = f"{name}_{number}"
            optimized = run_graph_passes(closed, self.ctx, prefix)
            program = self.graph(optimized, prefix, is_inner=True)
            program = with_size_checks(program, closed)
            if optimized.prepare is not None:
                program = replace(program, prepare=self.graph(optimized.prepare.graph, f"{prefix}_prepare"))
            programs.append(InnerProgram(program, sizes))
        return tuple(programs)


def compile_modules(units: Mapping[str, CompileUnit], ctx: CompileContext) -> tuple[list[Binary], int]:
    """Machine code of every module, from the cache where it is there; also how many were.

    Modules are lowered when their code is not there, or when somebody wants to see them lowered.
    """
    stored = read_modules(units, ctx)
    is_watched = ctx.options.verify or ctx.options.dump is not None
    lowered = {
        name: run_program_passes(unit.module, ctx) for name, unit in units.items() if name not in stored or is_watched
    }
    for name, module in lowered.items():
        _dump_listings(CompileJob(name, module, units[name].effort), ctx)
    jobs = [CompileJob(name, lowered[name], units[name].effort) for name in units if name not in stored]
    with CompileProgress() as progress:
        made = ctx.target.compile(jobs, progress.update) if jobs else []
    fresh = {binary.name: binary.data for binary in made}
    if fresh:
        keep_modules(units, stored, fresh, ctx)
    binaries = [Binary(name, fresh.get(name) or stored[name]) for name in units]
    for binary in binaries:
        program = units[binary.name].module
        ctx.registry.kernel_built(binary.name, ctx.target.name, program, binary.data, binary.name in stored)
    return binaries, len(stored)


def _dump_listings(job: CompileJob, ctx: CompileContext) -> None:
    """Write what the target makes of a module, beside its thread IR; before it is compiled, which may fail."""
    if ctx.options.dump is None:
        return
    for ending, text in ctx.target.listings(job):
        dump(ctx, f"program_{job.module.entry}{ending}", partial(str, text))


def _bytes_of(values: Iterable[Value]) -> int:
    """Bytes of tensors of fixed size."""
    sizes = (dims.product(value.tensor.shape) * value.tensor.dtype.nbytes for value in values)
    return sum(size for size in sizes if isinstance(size, int))


def _refuse_dynamic_shapes(dynamic_shapes: Any, what: str) -> None:
    if dynamic_shapes is not None:
        raise ImportFailed(
            f"{what} was given with dynamic_shapes: it says itself which of its sizes differ between calls",
            hint="leave dynamic_shapes out, and give the model symbolic sizes where it is made",
        )


def _import(
    frontend: FrontendSpec, model: Any, example_inputs: Any, ctx: CompileContext, named: Mapping[str, Any]
) -> Graph | ModelGraph:
    import_model: Any = frontend.resolve()
    imported = import_model(model, example_inputs, ctx, **named)
    if not isinstance(imported, Graph | ModelGraph):
        raise HidetError(
            f"frontend {frontend.name} returned a {type(imported).__name__}, expected a Graph or a ModelGraph"
        )
    return imported


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - start
