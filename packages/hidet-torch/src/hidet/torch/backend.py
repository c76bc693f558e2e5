"""`torch.compile(model, backend="hidet")`: the functions that dynamo and AOTAutograd call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from hidet.context import CompileContext, Options, make_context, options_from
from hidet.driver import compile_graph
from hidet.errors import ImportFailed, OptionError
from hidet.torch import compat
from hidet.torch.assemble import ImportedGraph
from hidet.torch.composites import KeepWhole
from hidet.torch.config import compares_results, configured, prints_graphs
from hidet.torch.correctness import reporting
from hidet.torch.decompositions import decompositions
from hidet.torch.export import settings_of_torch
from hidet.torch.fallback import fallback_warning
from hidet.torch.frozen import FrozenRunner
from hidet.torch.fx_nodes import location, mutated_inputs
from hidet.torch.importer import import_fx
from hidet.torch.reports import deliver
from hidet.torch.runner import Runner
from hidet.torch.training import NeedsJointGraph, WaitingGraph, may_wait, records_gradients, require_repeatable
from torch import fx

Role = Literal["inference", "forward", "backward"]


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
    `torch.compile`; see `hidet.context.Options`. OptionError names an unknown option and the nearest valid one;
    ImportFailed refuses tensor subclasses that torch cannot take apart.
    """
    if unknown:
        raise OptionError(f"backend hidet takes mode and options, got {', '.join(sorted(unknown))}")
    refuse_subclasses(example_inputs)
    if prints_graphs():
        print(gm.graph)
    ctx = make_context(target_of(gm, example_inputs), torch_options(mode, options))
    run = _compile_dynamo(gm, example_inputs, ctx)
    return reporting(gm, run, partial(compile_with_aot, ctx=ctx)) if compares_results() else run


def _compile_dynamo(gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext) -> Callable[..., Any]:
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
        return compile_with_aot(inner, inputs, ctx)

    def compile_joint() -> Callable[..., Any]:
        # Tracing anew gives the joint graph guards of its own, which sizes that change need.
        joint: Callable[..., Any] = torch.compile(gm, backend=joint_backend)
        return joint

    return WaitingGraph(gm, inference, compile_joint)


def torch_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Options as torch.compile passes them; those that follow `dynamo_config`, or torch, have its settings."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(
            f"options is a {type(options).__name__}: expected a mapping of names to values",
            hint='options={"threads": 4}',
        )
    given = {**configured(), **(options or {})}
    if mode is not None:
        given["mode"] = mode
    return options_from(given).following(settings_of_torch())


def compile_with_aot(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    ctx: CompileContext,
    check: Callable[[ImportedGraph], None] | None = None,
) -> Callable[..., Any]:
    """Compile a dynamo graph for inference, or forward and backward where gradients are recorded.

    check: looks at the imported inference graph and may raise before it is compiled.
    """
    with KeepWhole():
        return compat.run_aot(
            gm,
            example_inputs,
            inference_compiler=partial(compile_aten, ctx=ctx, role="inference", check=check),
            forward_compiler=partial(compile_aten, ctx=ctx, role="forward"),
            backward_compiler=partial(compile_aten, ctx=ctx, role="backward"),
            decompositions=decompositions(),
        )


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
    parameters = compat.static_input_indices() if role == "inference" else frozenset()
    if ctx.options.freeze and parameters:
        if check is not None:
            with compat.real_tensors():
                check(import_fx(gm, ctx, parameters=parameters, name=role))
        steady = sorted(parameters - set(mutated_inputs(gm)))
        return FrozenRunner(steady, partial(_compile_imported, gm, ctx, role, check, frozenset()))
    return _compile_imported(gm, ctx, role, check, parameters, {})


def _compile_imported(
    gm: fx.GraphModule,
    ctx: CompileContext,
    role: Role,
    check: Callable[[ImportedGraph], None] | None,
    parameters: frozenset[int],
    bound: Mapping[int, torch.Tensor],
) -> Runner:
    if role != "inference":
        # What the forward pass leaves for the backward pass is large, and would be copied out of every replay.
        ctx = replace(ctx, options=replace(ctx.options, mode="max-autotune-no-cudagraphs"))
    with compat.real_tensors():
        imported = import_fx(gm, ctx, parameters=parameters, name=role, bound=bound)
        if check is not None:
            check(imported)
        if imported.eager:
            warnings.warn(fallback_warning(imported.eager), stacklevel=2)
        compiled = compile_graph(imported.graph, ctx) if imported.graph.outputs or imported.graph.nodes else None
    runner = Runner(imported, compiled)
    compat.count("graphs")
    compat.count("eager_nodes", len(imported.eager))
    report = runner.report()
    if report is not None:
        deliver(report)
    return runner


def target_of(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> str:
    """The target for the device of a graph's tensors: "cpu", or "cuda:1".

    What is computed from no input (`torch.arange(8).to(x.device)`) is computed where the rest is, and CPU tensors of
    rank 0 are numbers, which torch takes on every device. ImportFailed for several devices, with a tensor on each.
    """
    given = [(f"argument {number}", value) for number, value in enumerate(example_inputs)]
    found: dict[torch.device, str] = {}
    for what, value in (*given, *_computed(gm)):
        if isinstance(value, torch.Tensor) and (value.device.type != "cpu" or value.dim() > 0):
            found.setdefault(value.device, what)
    if len(found) > 1:
        listed = ", ".join(f"{device} ({found[device]})" for device in sorted(found, key=str))
        raise ImportFailed(
            f"the graph has tensors on several devices: {listed}",
            hint="move the model and its inputs to one device, or leave the part on the other one out of the compiled "
            "function (torch.compiler.disable)",
        )
    device = next(iter(found), torch.device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise ImportFailed(f"the graph has tensors on device {device}: hidet compiles for cpu and cuda")
    return str(device)


def _computed(gm: fx.GraphModule) -> Iterator[tuple[str, object]]:
    """What a graph computes from tensors that it is given, and what it returns, with the places."""
    from_inputs: set[fx.Node] = set()
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder":
            if isinstance(value, torch.Tensor):
                from_inputs.add(node)
        elif node.op == "output":
            for returned in node.all_input_nodes:
                yield _what(returned), returned.meta.get("example_value")
        elif not from_inputs.isdisjoint(node.all_input_nodes):
            # A size of a tensor is a number, which is on no device.
            if not isinstance(value, int | torch.SymInt):
                from_inputs.add(node)
            yield _what(node), value


def _what(node: fx.Node) -> str:
    """What made a value, and where in the user's model."""
    loc = location(node)
    name = getattr(node.target, "__name__", str(node.target))
    return f"the result of {name}" if loc is None else f"the result of {name} at {loc}"


def refuse_subclasses(example_inputs: Sequence[Any]) -> None:
    """ImportFailed for a tensor subclass with data that only its own Python code understands."""
    for number, value in enumerate(example_inputs):
        plain = not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter)
        if not (plain or compat.is_fake(value) or compat.is_traceable_subclass(value)):
            raise ImportFailed(
                f"argument {number} is a {type(value).__module__}.{type(value).__qualname__}, a tensor subclass that "
                "cannot be taken apart into plain tensors",
                hint="convert it to a plain tensor before the compiled function",
            )
