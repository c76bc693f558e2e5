"""`compile`, and `compile_graph`: graphs out of the cache, or by the steps of the compiler (`hidet.compiler.steps`).

With HIDET_DUMP=directory, what each step makes is written as text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hidet.cache import CacheKey
from hidet.compiler.clock import Clock
from hidet.compiler.collector import paused_gc
from hidet.compiler.kept_graphs import KeptGraph, graph_key, read_graph
from hidet.compiler.loading import load_graph
from hidet.compiler.lowered import LateLowered, LoweredGraph
from hidet.context import CompileContext, Options, make_context, make_context_on, options_from
from hidet.dims import Dim
from hidet.errors import HidetError, ImportFailed, OptionError
from hidet.graph.graph import Graph
from hidet.passes.dump import in_own_folder
from hidet.plugins.host import load_registry
from hidet.plugins.specs import FrontendSpec
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.signature import ModelGraph, Signature


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
    """Compile a graph, or a model that a frontend accepts (an nn.Module, a path to a model file) or has imported.

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
    try:
        imported = import_model(
            model,
            example_inputs,
            dynamic_shapes=dynamic_shapes,
            target=target,
            options=options,
            shapes=shapes,
            values=values,
        )
        return compile_graph(imported.graph, imported.ctx, imported.signature)
    except HidetError as error:
        if os.environ.get("HIDET_DEBUG") == "1":
            raise
        # It says where the model is wrong; how the compiler got there is nothing to its author.
        raise error.with_traceback(None) from error.__cause__


@dataclass(frozen=True, slots=True, eq=False)
class ImportedModel:
    """A model as a graph, and the compilation that was asked for. signature: as `compile_graph` takes it."""

    graph: Graph
    ctx: CompileContext
    signature: Signature | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPart:
    """A graph of a model that a framework has compiled through hidet. compiled: what runs it. replace: has another
    compiled form of it run from the next call on."""

    imported: ImportedModel
    compiled: CompiledGraph
    replace: Callable[[CompiledGraph], None]


def compiled_parts(
    model: Any, example_inputs: Sequence[Any] | Mapping[str, Any] | None = None
) -> Sequence[CompiledPart] | None:
    """The graphs of a model that a framework has compiled through hidet, such as what torch.compile returns; None for
    any other model.

    example_inputs: what it is called with where it was not called before. ImportFailed where no front-end knows it.
    """
    if isinstance(model, Graph):
        return None
    parts: Sequence[CompiledPart] | None = load_registry().frontend_for(model).parts_of(model, example_inputs)
    return parts


def import_model(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str = "auto",
    options: Options | Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ImportedModel:
    """The first half of `compile`, with the same arguments: what `compile_graph` takes."""
    fixed = {name: given for name, given in (("shapes", shapes), ("values", values)) if given}
    if isinstance(model, Graph):
        _refuse_dynamic_shapes(dynamic_shapes, "a graph")
        if fixed:
            raise ImportFailed(f"{' and '.join(fixed)} are given for a graph, whose inputs say what they are")
        return ImportedModel(model, make_context(target, options))
    if isinstance(model, ModelGraph):
        _refuse_dynamic_shapes(dynamic_shapes, "an imported model")
        if fixed or example_inputs is not None:
            raise ImportFailed(
                "an imported model is given with example inputs, shapes or values: it says what its inputs are",
                hint="give them to the function that imports it",
            )
        return ImportedModel(model.graph, make_context(target, options), model.signature)
    chosen = options_from(options)
    frontend = load_registry().frontend_for(model)
    if not frontend.dynamic_shapes:
        _refuse_dynamic_shapes(dynamic_shapes, f"a model of front-end {frontend.name}")
    if fixed and not frontend.fixes_inputs:
        raise ImportFailed(
            f"{' and '.join(fixed)} are given, which front-end {frontend.name} does not take",
            hint="give example_inputs, or an exported program",
        )
    device = frontend.device_of(model, example_inputs) if target == "auto" else None
    followed = chosen.following(frontend.options_followed())
    ctx = make_context(target, followed) if device is None else make_context_on(device, followed)
    named = {**fixed, **({"dynamic_shapes": dynamic_shapes} if frontend.dynamic_shapes else {})}
    imported = _import(frontend, model, example_inputs, ctx, named)
    if isinstance(imported, Graph):
        return ImportedModel(imported, ctx)
    return ImportedModel(imported.graph, ctx, imported.signature)


def compile_graph(graph: Graph, ctx: CompileContext, signature: Signature | None = None) -> CompiledGraph:
    """The compiled graph: out of the cache, or by the steps of the compiler, of which the first that fails raises its
    HidetError.

    signature: how what is compiled is called; None: with the inputs of the graph. Where the options ask for tuning, a
    plug-in measures schedules before.
    """
    options = ctx.options.with_budget()
    if options.tune is not None:
        tuned = ctx.registry.tune_graph(graph, replace(ctx, options=options), signature)
        if tuned is not None:
            return tuned
    if ctx.options.check_bounds:
        raise OptionError(
            "option check_bounds is for modules of kernels: kernels of graphs use pointers, which have no shapes",
            hint="give it to hidet.driver.build_ir_module",
        )
    ctx, clock = in_own_folder(ctx, graph.name), Clock()
    with paused_gc():
        with clock("cache"):
            key = graph_key(graph, ctx)
            kept = None if key is None else read_graph(key, ctx)
        if kept is not None:
            return _recalled(kept, lambda: graph, signature, clock, ctx)
        from hidet.compiler.steps import compile_stepwise

        compiled, lowered = compile_stepwise(graph, key, signature, clock, ctx)
    ctx.registry.graph_compiled(compiled, lambda: graph, lowered, ctx)
    return compiled


def recall_graph(key: CacheKey, graph: Callable[[], Graph], ctx: CompileContext) -> CompiledGraph | None:
    """What `compile_graph` gives for a graph that the cache has as a whole; None where it does not have it.

    key: as `graph_key`, or `key_of_text`, gives it. graph: is called where somebody wants to see the graph.
    """
    clock = Clock()
    with paused_gc():
        with clock("cache"):
            kept = read_graph(key, ctx)
        return None if kept is None else _recalled(kept, graph, None, clock, ctx)


def _recalled(
    kept: KeptGraph, graph: Callable[[], Graph], signature: Signature | None, clock: Clock, ctx: CompileContext
) -> CompiledGraph:
    """A graph that the cache has as a whole, as if it had been compiled; what its steps make is found when asked
    for."""
    modules = len(kept.bundle.binaries)
    report = replace(kept.report, modules=modules, cached_modules=modules, seconds=clock.seconds, is_kept=True)
    compiled = load_graph(replace(kept.bundle, signature=signature), report, clock, ctx)
    for binary in kept.bundle.binaries:
        ctx.registry.kernel_built(binary.name, ctx.target.name, None, binary.data, cached=True)
    ctx.registry.graph_compiled(compiled, graph, LateLowered(partial(_lower_again, graph, ctx)), ctx)
    return compiled


def _lower_again(graph: Callable[[], Graph], ctx: CompileContext) -> LoweredGraph:
    from hidet.compiler.steps import lower_again

    return lower_again(graph(), ctx)


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
