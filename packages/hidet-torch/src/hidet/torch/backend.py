"""`torch.compile(model, backend="hidet")`: the functions that dynamo and AOTAutograd call."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import hidet
import torch
from hidet.cache import CacheKey
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, Options, make_context, options_from
from hidet.errors import OptionError
from hidet.torch import compat, compat_memory, compat_state
from hidet.torch.assemble import ImportedGraph
from hidet.torch.compiled_models import ModelRecord, current_record, in_same_record, recording
from hidet.torch.complex_parts import without_complex
from hidet.torch.composites import KeepWhole
from hidet.torch.config import compares_results, configured, prints_graphs, settings_by_name
from hidet.torch.correctness import reporting
from hidet.torch.decompositions import decompositions
from hidet.torch.devices import devices_of, split_by_device, targets_of_devices
from hidet.torch.export import settings_of_torch
from hidet.torch.fallback import EagerNode, NeedsTorch, fallback_warning, refusal, refused_by_torch
from hidet.torch.frozen import FrozenRunner
from hidet.torch.fx_nodes import mutated_inputs
from hidet.torch.importer import import_fx
from hidet.torch.kept_inputs import keep_overwritten
from hidet.torch.kept_traces import keep_trace, read_trace, trace_key
from hidet.torch.outputs import plan_outputs
from hidet.torch.recompute import fix_random_numbers
from hidet.torch.reports import deliver
from hidet.torch.runner import Runner
from hidet.torch.stand_ins import with_stand_ins
from hidet.torch.tensors import device_for
from hidet.torch.training import NeedsJointGraph, WaitingGraph, may_wait, records_gradients, require_repeatable
from torch import fx

_RECOMPILES = logging.getLogger("hidet.recompile")

Role = Literal["inference", "forward", "backward"]

# Of all modules torch.compile loads this one before it traces a function, which may call others of hidet.
compat.leave_untraced(hidet, "torch")


def compile_fx(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **unknown: object,
) -> Callable[..., Any]:
    """The dynamo backend: a callable with the signature of `gm`.

    example_inputs: fake tensors and symbolic sizes; nothing is read from them. mode, options: what the user gave to
    `torch.compile`; see `hidet.context.Options`, and `target`: what to compile for in the place of what is usual for
    the tensors' device. OptionError names an unknown option and the nearest valid one. A graph of tensors whose
    class only their own Python code understands runs in torch, with a warning.
    """
    if unknown:
        raise OptionError(f"backend hidet takes mode and options, got {', '.join(sorted(unknown))}")
    reason = compat.recompile_reason()
    if reason is not None:
        _RECOMPILES.info("compiled again because %s", reason)
    with settings_by_name(_mapping(options)) as kept:
        if prints_graphs():
            print(gm.graph)
        target, given = chosen_target(kept), torch_options(mode, kept)
        with recording() as record:
            return _compile(gm, example_inputs, target, record.with_budget(given))


def _compile(
    gm: fx.GraphModule, example_inputs: Sequence[Any], target: str | None, given: Options
) -> Callable[..., Any]:
    foreign = foreign_classes(example_inputs)
    if foreign:
        return _run_in_torch(gm, foreign, given)
    gm = with_stand_ins(gm)
    found = devices_of(gm, example_inputs)
    target_of = targets_of_devices(found, target)
    if len(found) > 1:
        return _compile_parts(gm, target_of, given)
    return _compile_on(next(iter(target_of.values()), "auto"), gm, example_inputs, given)


def _compile_parts(gm: fx.GraphModule, target_of: Mapping[torch.device, str], options: Options) -> Callable[..., Any]:
    """A graph of several devices: what is on one is compiled for it, and torch runs what is between them."""
    split = split_by_device(gm)
    if split.between and options.strict:
        raise refusal(split.between)
    if split.between:
        warnings.warn(fallback_warning(split.between), stacklevel=2)
        compat.count("eager_nodes", len(split.between))
    with warnings.catch_warnings():
        # AOTAutograd asks for it of all its inputs, some of which other parts have computed.
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        for part in split.parts:
            if part.device is not None:
                # Numbers that are computed on the CPU may be all that there is of it.
                target = target_of.get(part.device, str(part.device))
                compiled = _compile_on(target, part.gm, part.example_inputs, options)
                split.gm.set_submodule(part.name, _Compiled(compiled, part.is_bare))
    return split.gm.forward


class _Compiled(torch.nn.Module):
    """Calls what a part of a graph was compiled to. is_bare: its only result is returned without a tuple."""

    def __init__(self, run: Callable[..., Any], is_bare: bool) -> None:
        super().__init__()
        self.run = run
        self.is_bare = is_bare

    def forward(self, *arguments: Any) -> Any:
        results = self.run(*arguments)
        return results[0] if self.is_bare else results


def _compile_on(target: str, gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    ctx = make_context(target, options)
    run = _or_in_torch(_compile_dynamo, gm, example_inputs, ctx)
    if not compares_results():
        return run
    rounds = bool(ctx.options.tf32_products or ctx.options.tf32_convolutions)
    return reporting(gm, run, partial(_or_in_torch, compile_with_aot, ctx=ctx), rounds)


def _or_in_torch(
    compile_graph_of: Callable[[fx.GraphModule, Sequence[Any], CompileContext], Callable[..., Any]],
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
) -> Callable[..., Any]:
    """What a graph compiles to, or the graph itself where only torch runs it as eager mode does."""
    try:
        return compile_graph_of(gm, example_inputs, ctx)
    except NeedsTorch as error:
        return _run_in_torch(gm, error.nodes(), ctx.options)


def _compile_dynamo(gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext) -> Callable[..., Any]:
    if compat_memory.forgets_gradients(gm):
        _refuse("values with gradients are written to what was detached from an argument, which AOTAutograd forgets")
    if records_gradients(example_inputs) and may_wait(gm, example_inputs):
        try:
            return _compile_waiting(gm, example_inputs, ctx)
        except NeedsJointGraph:
            # Found while the inference graph was traced, before anything was compiled.
            pass
    return compile_with_aot(gm, example_inputs, ctx)


def _compile_waiting(gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext) -> Callable[..., Any]:
    with torch.no_grad():
        inference = compile_with_aot(gm, example_inputs, ctx, check=require_repeatable)

    def joint_backend(inner: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _or_in_torch(compile_with_aot, inner, inputs, ctx)

    recorded = in_same_record(joint_backend)

    def compile_joint() -> Callable[..., Any]:
        # Tracing anew gives the joint graph guards of its own, which sizes that change need.
        joint: Callable[..., Any] = torch.compile(compat.with_code(gm), backend=recorded)
        return joint

    return WaitingGraph(gm, inference, compile_joint)


def chosen_target(options: object) -> str | None:
    """The target that `options={"target": ...}` names; None leaves it to the device of the tensors."""
    target: object = options.get("target") if isinstance(options, Mapping) else None
    if target is not None and not isinstance(target, str):
        raise OptionError(f"option target takes the name of a target, got {target!r}", hint='"cpu", or "cuda"')
    return target


def torch_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Options as torch.compile passes them, without the target; those that follow `dynamo_config`, or torch, have its
    settings."""
    given = {**configured(), **_mapping(options)}
    given.pop("target", None)
    if mode is not None:
        given["mode"] = mode
    return options_from(given).following(settings_of_torch())


def _mapping(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Options as a mapping. OptionError for what is none."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(
            f"options is a {type(options).__name__}: expected a mapping of names to values",
            hint='options={"threads": 4}',
        )
    return options or {}


def compile_with_aot(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    check: Callable[[ImportedGraph], None] | None = None,
) -> Callable[..., Any]:
    """Compile a dynamo graph for inference, or forward and backward where gradients are recorded.

    check: looks at the imported inference graph and may raise before it is compiled. NeedsTorch for a graph that
    AOTAutograd cannot trace, or that asks how tensors lie in their storages where torch does not tell.
    """
    key = _key_of_trace(gm, example_inputs, ctx, check)
    kept = None if key is None else read_trace(key, ctx)
    if kept is not None:
        with compat.real_tensors():
            return _called_directly(_run_imported(kept, ctx, current_record()))
    direct: list[Runner] = []

    def compile_inference(inner: fx.GraphModule, inputs: Sequence[Any]) -> Runner | FrozenRunner:
        runner = compile_aten(inner, inputs, ctx, "inference", check)
        if key is not None and isinstance(runner, Runner) and compat_state.calls_compiler_alone():
            direct.append(runner)
        return runner

    compiled = _trace(gm, example_inputs, ctx, compile_inference)
    if key is None or not direct or not keep_trace(key, direct[-1].imported, ctx):
        return compiled
    return _called_directly(direct[-1])


def _key_of_trace(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    check: Callable[[ImportedGraph], None] | None,
) -> CacheKey | None:
    """What the graph's trace is kept under, None where it is traced each time."""
    options = ctx.options
    if options.freeze or options.with_budget().tune is not None or _copies_tensors(ctx):
        return None
    return trace_key(gm, example_inputs, ctx, check is not None)


def _called_directly(runner: Runner) -> Callable[..., Any]:
    """What dynamo calls where AOTAutograd would do nothing but call the runner."""

    def call(*arguments: Any) -> Sequence[Any]:
        return runner(list(arguments))

    return call


def _trace(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    compile_inference: Callable[..., Runner | FrozenRunner],
) -> Callable[..., Any]:
    try:
        with compat.closing_autocast(), compat_memory.correcting_memory_analysis(_refuse), KeepWhole():
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


def _refuse(reason: str) -> None:
    raise NeedsTorch(reason)


def _run_in_torch(gm: fx.GraphModule, nodes: Sequence[EagerNode], options: Options) -> Callable[..., Any]:
    """The graph itself, with a warning that names what keeps it in torch. UnsupportedOp under `strict`."""
    if options.strict:
        raise refusal(nodes)
    warnings.warn(fallback_warning(nodes), stacklevel=2)
    compat.count("eager_nodes", len(nodes))
    return gm.forward


def _compile_backward(gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext) -> Callable[..., Any]:
    """A backward graph; in torch where only torch runs it, because its forward is compiled, and used, by then."""
    try:
        return compile_aten(gm, example_inputs, ctx, "backward")
    except NeedsTorch as error:
        return compat.boxed(_run_in_torch(gm, error.nodes(), ctx.options))


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
    if _copies_tensors(ctx):
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
        if imported.eager and _copies_tensors(ctx):
            first = imported.eager[0]
            raise NeedsTorch(
                f"{first.name} runs in torch ({first.reason}), which has no tensors on {ctx.target.device}",
                loc=first.loc,
            )
        if imported.eager:
            warnings.warn(fallback_warning(imported.eager), stacklevel=2)
        return _run_imported(imported, ctx, record)


def _run_imported(imported: ImportedGraph, ctx: CompileContext, record: ModelRecord) -> Runner:
    """Compile what was imported, and tell who wants to know."""
    compiled = compile_graph(imported.graph, ctx) if imported.graph.outputs or imported.graph.nodes else None
    runner = Runner(imported, compiled)
    record.add(runner, ctx)
    compat.count("graphs")
    compat.count("eager_nodes", len(imported.eager))
    report = runner.report()
    if report is not None:
        deliver(report)
    return runner


def _copies_tensors(ctx: CompileContext) -> bool:
    """Whether calls copy tensors to a device that torch has none on."""
    return ctx.target.memory is not None and device_for(ctx.target.device).type == "cpu"


def foreign_classes(example_inputs: Sequence[Any]) -> list[EagerNode]:
    """What keeps a graph in torch: arguments of tensor subclasses that cannot be taken apart into plain tensors.

    Results of operators on them have a class that their own Python code, or torch's for subclasses, decides on.
    """
    return [
        EagerNode(
            f"all that is computed with argument {number}",
            f"{type(value).__module__}.{type(value).__qualname__} is a tensor subclass that cannot be taken apart",
            None,
        )
        for number, value in enumerate(example_inputs)
        if isinstance(value, torch.Tensor)
        and not (compat.is_plain_class(type(value)) or compat.is_fake(value) or compat.is_traceable_subclass(value))
    ]
