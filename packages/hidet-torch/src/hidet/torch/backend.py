"""`torch.compile(model, backend="hidet")`: the functions that dynamo and AOTAutograd call."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import hidet
import torch
from hidet.compiler.collector import paused_gc
from hidet.context import CompileContext, Options, make_context
from hidet.errors import OptionError
from hidet.torch import compat, compat_memory
from hidet.torch.compat_sizes import leave_pools_unguarded
from hidet.torch.compat_untraced import leave_untraced
from hidet.torch.compiled_models import current_record, in_same_record, recording
from hidet.torch.config import compares_results, prints_graphs, settings_by_name
from hidet.torch.correctness import reporting
from hidet.torch.devices import devices_of, split_by_device, targets_of_devices
from hidet.torch.eager_nodes import EagerNode, NeedsTorch, fallback_warning, refusal
from hidet.torch.imported import ImportedGraph
from hidet.torch.kept_traces import TraceKey, read_trace, trace_key
from hidet.torch.running import called_directly, keeps_traces, refuse, run_in_torch, run_kept
from hidet.torch.settings import as_mapping, chosen_target, torch_options
from hidet.torch.training import NeedsJointGraph, WaitingGraph, may_wait, records_gradients, require_repeatable
from torch import fx

_RECOMPILES = logging.getLogger("hidet.recompile")

# Of all modules torch.compile loads this one before it traces a function, which may call others of hidet.
leave_untraced(hidet, "torch")
leave_pools_unguarded()


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
    # AOTAutograd allocates as much as the compiler does, and a full collection in the middle frees next to nothing.
    with paused_gc(), settings_by_name(as_mapping(options)) as kept:
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
        return run_in_torch(gm, foreign, given)
    gm = _with_stand_ins(gm)
    found = devices_of(gm, example_inputs)
    target_of = targets_of_devices(found, target)
    if len(found) > 1:
        return _compile_parts(gm, target_of, given)
    return _compile_on(next(iter(target_of.values()), "auto"), gm, example_inputs, given)


def _with_stand_ins(gm: fx.GraphModule) -> fx.GraphModule:
    # Who has registered any has loaded their module.
    stand_ins = sys.modules.get("hidet.torch.stand_ins")
    changed: fx.GraphModule = gm if stand_ins is None else stand_ins.with_stand_ins(gm)
    return changed


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
        return run_in_torch(gm, error.nodes(), ctx.options)


def _compile_dynamo(gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext) -> Callable[..., Any]:
    if compat_memory.forgets_gradients(gm):
        refuse("values with gradients are written to what was detached from an argument, which AOTAutograd forgets")
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
        with compat.without_precompile():
            joint: Callable[..., Any] = torch.compile(compat.with_code(gm), backend=recorded)
        return joint

    return WaitingGraph(gm, inference, compile_joint)


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
    if kept is None:
        from hidet.torch.aot import compile_traced

        run, kept = compile_traced(gm, example_inputs, ctx, check, key)
    else:
        with compat.real_tensors():
            run = called_directly(run_kept(kept, ctx, current_record()))
    name = compat.precompile_name(gm)
    # What is checked is called by a `WaitingGraph`, which records gradients: dynamo does not call it.
    if name is not None and key is not None and kept is not None and check is None:
        from hidet.torch.compat_precompile import keep_artifact

        keep_artifact(name, kept, key.compilation)
    return run


def _key_of_trace(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    check: Callable[[ImportedGraph], None] | None,
) -> TraceKey | None:
    """What the graph's trace is kept under, None where it is traced each time."""
    return trace_key(gm, example_inputs, ctx, check is not None) if keeps_traces(ctx) else None


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
