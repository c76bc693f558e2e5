"""What dynamo and AOTAutograd get for a graph: what runs it compiled, or the graph itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from hidet.compiler.graphs import compile_graph, recall_graph
from hidet.context import CompileContext, Options
from hidet.torch import compat, compat_state
from hidet.torch.compiled_models import ModelRecord
from hidet.torch.eager_nodes import EagerNode, NeedsTorch, fallback_warning, refusal
from hidet.torch.imported import ImportedGraph
from hidet.torch.kept_traces import KeptTrace
from hidet.torch.reports import deliver
from hidet.torch.runner import Runner
from hidet.torch.tensors import device_for
from torch import fx


def run_imported(imported: ImportedGraph, ctx: CompileContext, record: ModelRecord) -> Runner:
    """Compile what was imported, and tell who wants to know."""
    compiled = compile_graph(imported.graph, ctx) if imported.graph.outputs or imported.graph.nodes else None
    return _noted(Runner(imported, compiled), ctx, record)


def run_kept(kept: KeptTrace, ctx: CompileContext, record: ModelRecord) -> Runner:
    """Take what was imported before out of the cache, compiled; compile it where it is not there."""
    compiled = recall_graph(kept.key, lambda: kept.imported.graph, ctx)
    if compiled is None:
        return run_imported(kept.imported, ctx, record)
    return _noted(Runner(kept.imported, compiled), ctx, record)


def _noted(runner: Runner, ctx: CompileContext, record: ModelRecord) -> Runner:
    record.add(runner, ctx)
    compat.count("graphs")
    compat.count("eager_nodes", len(runner.imported.eager))
    report = runner.report()
    if report is not None:
        deliver(report)
    return runner


def called_directly(runner: Runner, dynamic_axes: Sequence[tuple[int, frozenset[int]]] = ()) -> Callable[..., Any]:
    """What dynamo calls where AOTAutograd would do nothing but call the runner, and mark axes of its results.

    dynamic_axes: numbers of results and axes of each, as `compat_state.dynamic_axes` gives them.
    """

    def call(*arguments: Any) -> Sequence[Any]:
        results = runner(list(arguments))
        for number, axes in dynamic_axes:
            compat_state.mark_axes(results[number], axes)
        return results

    return call


def refuse(reason: str) -> None:
    """Leave a graph to torch."""
    raise NeedsTorch(reason)


def run_in_torch(gm: fx.GraphModule, nodes: Sequence[EagerNode], options: Options) -> Callable[..., Any]:
    """The graph itself, with a warning that names what keeps it in torch. UnsupportedOp under `strict`."""
    if options.strict:
        raise refusal(nodes)
    warnings.warn(fallback_warning(nodes), stacklevel=2)
    compat.count("eager_nodes", len(nodes))
    return gm.forward


def keeps_traces(ctx: CompileContext) -> bool:
    """Whether options and target allow to take a graph that was traced before."""
    options = ctx.options
    return not options.freeze and options.with_budget().tune is None and not copies_tensors(ctx)


def copies_tensors(ctx: CompileContext) -> bool:
    """Whether calls copy tensors to a device that torch has none on."""
    return ctx.target.memory is not None and device_for(ctx.target.device).type == "cpu"
