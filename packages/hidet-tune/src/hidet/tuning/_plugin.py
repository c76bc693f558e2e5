"""Plug-in module of hidet-tune: what it offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hidet.plugins.specs import ExecutorSpec, OptionSpec, StrategySpec

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.graph.graph import Graph
    from hidet.plugins.specs import CommandTable
    from hidet.runtime.compiled import CompiledGraph
    from hidet.runtime.signature import Signature
    from hidet.schedule.rule import Choice
    from hidet.schedule.task import Task

HIDET_API = 1


def hidet_options() -> Iterable[OptionSpec]:
    """Where choices are kept, and how they are looked for."""
    return [
        OptionSpec(
            name="tune.store",
            type=str,
            default="",
            # The code of a program depends on its parameters, which are in its thread IR.
            affects_cache=False,
            doc='file of tuned choices, "off" for none; by default HIDET_TUNE_STORE, else beside the kernel cache',
        ),
        OptionSpec(
            name="tune.nearest_sizes",
            type=bool,
            default=True,
            affects_cache=False,
            doc="whether tasks of sizes that were not measured take the choice for the nearest sizes that were",
        ),
        OptionSpec(
            name="tune.strategy",
            type=str,
            default="halving",
            affects_cache=False,
            doc="how points of a space are searched: a strategy by name",
        ),
        OptionSpec(
            name="tune.executor",
            type=str,
            default="local",
            affects_cache=False,
            doc="where programs are compiled and measured: an executor by name",
        ),
    ]


def hidet_commands(cli: CommandTable) -> None:
    """`hidet tune`, and what tuning goes by: `hidet measure`, `hidet schedules`."""
    cli.add("measure", load="hidet.tuning.measure_command:measure", doc="Measure what cost models know of a device.")
    cli.add(
        "schedules",
        load="hidet.tuning.schedules_command:schedules",
        doc="Show what schedule rules may choose, and why.",
    )
    cli.add(
        "tune", load="hidet.tuning.command:tune_group", doc="Measure schedules of a model; look into what was kept."
    )


def hidet_tuning_strategies() -> Iterable[StrategySpec]:
    """The strategies of hidet-tune; the first one is taken where none is named."""
    return [
        StrategySpec(
            name="halving",
            load="hidet.tuning.strategy_orders:SuccessiveHalving",
            doc="those that rules expect to be fast first; the better half is measured longer, and so on",
        ),
        StrategySpec(name="exhaustive", load="hidet.tuning.strategy_orders:Exhaustive", doc="every point"),
        StrategySpec(name="random", load="hidet.tuning.strategy_orders:RandomSearch", doc="points by chance"),
        StrategySpec(
            name="evolution", load="hidet.tuning.strategy_evolution:Evolution", doc="variations of the best so far"
        ),
        StrategySpec(
            name="learned",
            load="hidet.tuning.strategy_learned:Learned",
            doc="what measurements of this and other sizes teach; needs hidet-tune[learned]",
        ),
    ]


def hidet_tuning_executors() -> Iterable[ExecutorSpec]:
    """The executors of hidet-tune."""
    return [
        ExecutorSpec(name="local", load="hidet.tuning.executor:LocalExecutor", doc="a process of this machine"),
        ExecutorSpec(
            name="ray",
            load="hidet.tuning.executor_ray:RayExecutor",
            doc="nodes of a Ray cluster; needs hidet-tune[ray]",
        ),
    ]


def hidet_graph_facts(ctx: CompileContext) -> str:
    """What the store has measured."""
    from hidet.tuning.choose import choices_digest

    return choices_digest(ctx)


def hidet_choose_schedule(
    task: Task, candidates: Sequence[Choice[Any, Any]], ctx: CompileContext
) -> Choice[Any, Any] | None:
    """The parameters that were measured to be the fastest for a task."""
    from hidet.tuning.choose import choose

    return choose(task, candidates, ctx)


def hidet_tune_graph(graph: Graph, ctx: CompileContext, signature: Signature | None) -> CompiledGraph | None:
    """Options, or a mode, ask for measurements."""
    from hidet.tuning.asked import tune_graph

    return tune_graph(graph, ctx, signature)
