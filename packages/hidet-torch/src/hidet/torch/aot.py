"""Graphs that AOTAutograd traces: functional graphs of aten operators, imported and compiled for their roles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from hidet.compiler.workers import CompileWorkers, wanted_workers
from hidet.context import CompileContext
from hidet.torch import compat, compat_memory, compat_state
from hidet.torch.compiled_models import ModelRecord, current_record, in_same_record
from hidet.torch.complex_parts import without_complex
from hidet.torch.composites import KeepWhole
from hidet.torch.decompositions import decompositions
from hidet.torch.eager_nodes import NeedsTorch, fallback_warning, refused_by_torch
from hidet.torch.frozen import FrozenRunner
from hidet.torch.fx_nodes import mutated_inputs
from hidet.torch.imported import ImportedGraph
from hidet.torch.importer import import_fx
from hidet.torch.kept_inputs import keep_overwritten
from hidet.torch.kept_traces import KeptTrace, TraceKey, keep_trace, state_of
from hidet.torch.outputs import plan_outputs
from hidet.torch.recompute import fix_random_numbers
from hidet.torch.runner import Runner
from hidet.torch.running import called_directly, copies_tensors, refuse, run_imported, run_in_torch
from torch import fx

Role = Literal["inference", "forward", "backward"]


def compile_traced(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    check: Callable[[ImportedGraph], None] | None,
    key: TraceKey | None,
) -> tuple[Callable[..., Any], KeptTrace | None]:
    """Trace a dynamo graph and compile what comes of it; see `backend.compile_with_aot`. Dynamo calls the runner itself
    where AOTAutograd would do nothing else at run time. The second result is the trace, None where it was not kept.

    key: what the trace is kept under, where AOTAutograd would do nothing at run time; None keeps none.
    """
    direct: list[tuple[Runner, Sequence[tuple[int, frozenset[int]]]]] = []
    # What has a key has been asked that already.
    may_be_direct = key is not None or state_of(example_inputs) is not None

    def compile_inference(inner: fx.GraphModule, inputs: Sequence[Any]) -> Runner | FrozenRunner:
        runner = compile_aten(inner, inputs, ctx, "inference", check)
        if (
            isinstance(runner, Runner)
            and may_be_direct
            # What torch runs of a graph counts on AOTAutograd to switch gradients and autocast off.
            and not runner.imported.eager
            and len(inputs) == len(example_inputs)
            and compat_state.calls_compiler_alone()
        ):
            direct.append((runner, compat_state.dynamic_axes()))
        return runner

    # Of what has a key the cache has nothing. Children start while AOTAutograd traces.
    with CompileWorkers(0 if key is None else wanted_workers(_kinds_of(gm), ctx), ctx) as workers:
        ctx = replace(ctx, workers=workers)
        compiled = _trace(gm, example_inputs, ctx, compile_inference)
    if not direct:
        return compiled, None
    runner, axes = direct[-1]
    kept = None if key is None else keep_trace(key, runner.imported, ctx)
    return called_directly(runner, axes), kept


def _kinds_of(gm: fx.GraphModule) -> int:
    """About how many kinds of nodes the imported graph will have: functions by the shapes of their results."""
    return len({(node.target, getattr(node.meta.get("example_value"), "shape", None)) for node in gm.graph.nodes})


def _trace(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    compile_inference: Callable[..., Runner | FrozenRunner],
) -> Callable[..., Any]:
    try:
        with compat.closing_autocast(), compat_memory.correcting_memory_analysis(refuse), KeepWhole():
            return compat.run_aot(
                gm,
                example_inputs,
                inference_compiler=compile_inference,
                forward_compiler=partial(compile_aten, ctx=ctx, role="forward"),
                backward_compiler=in_same_record(partial(_compile_backward, ctx=ctx)),
                decompositions=decompositions(frozenset(ctx.registry.handlers_for("torch"))),
                before_partition=partial(fix_random_numbers, keep=ctx.options.eager_random),
                after_partition=keep_overwritten,
            )
    except (AssertionError, RuntimeError) as error:
        refused = refused_by_torch(error)
        if refused is None:
            raise
        raise refused from error


def _compile_backward(gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext) -> Callable[..., Any]:
    """A backward graph; in torch where only torch runs it, because its forward is compiled, and used, by then."""
    try:
        return compile_aten(gm, example_inputs, ctx, "backward")
    except NeedsTorch as error:
        return compat.boxed(run_in_torch(gm, error.nodes(), ctx.options))


def compile_aten(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    role: Role,
    check: Callable[[ImportedGraph], None] | None = None,
) -> Runner | FrozenRunner:
    """Compile one functional aten graph.

    Parameters are recognised for inference only: there they are prepared once. Training changes them at every step.
    """
    with compat.real_tensors():
        gm = without_complex(gm)
    parameters = compat.static_input_indices() if role == "inference" else frozenset()
    if ctx.options.freeze and parameters:
        if check is not None:
            with compat.real_tensors():
                check(import_fx(gm, ctx, parameters=parameters, name=role))
        steady = sorted(parameters - set(mutated_inputs(gm)))
        compile_bound = partial(_compile_imported, gm, ctx, role, current_record(), check, frozenset())
        return FrozenRunner(steady, compile_bound)
    if copies_tensors(ctx):
        # Copied in every call, parameters are new tensors each time: there is nothing to prepare once.
        parameters = frozenset()
    return _compile_imported(gm, ctx, role, current_record(), check, parameters, {})


def _compile_imported(
    gm: fx.GraphModule,
    ctx: CompileContext,
    role: Role,
    record: ModelRecord,
    check: Callable[[ImportedGraph], None] | None,
    parameters: frozenset[int],
    bound: Mapping[int, torch.Tensor],
) -> Runner:
    if role != "inference":
        # What the forward pass leaves for the backward pass is large, and would be copied out of every replay.
        level = ctx.options.search_level
        named = {name: value for name, value in ctx.options.plugin_options.items() if name != "compat.precision"}
        options = replace(ctx.options, mode="max-autotune-no-cudagraphs", search_space=level, plugin_options=named)
        ctx = replace(ctx, options=options)
    with compat.real_tensors():
        plan = partial(plan_outputs, saved_from=compat.first_saved_output()) if role == "forward" else plan_outputs
        imported = import_fx(gm, ctx, parameters=parameters, name=role, bound=bound, plan=plan)
        if check is not None:
            check(imported)
        if imported.eager and copies_tensors(ctx):
            first = imported.eager[0]
            raise NeedsTorch(
                f"{first.name} runs in torch ({first.reason}), which has no tensors on {ctx.target.device}",
                loc=first.loc,
            )
        if imported.eager:
            warnings.warn(fallback_warning(imported.eager), stacklevel=2)
        return run_imported(imported, ctx, record)
