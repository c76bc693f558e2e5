"""Plug-in module of the built-ins: core offers its own operators and passes through the same hooks as any plug-in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import ANY, FALLBACK_PRIORITY, FrontendSpec, PassSpec, ScheduleSpec

if TYPE_CHECKING:
    from hidet.compute.routine import RoutineSpec
    from hidet.graph.operator import OperatorSpec
    from hidet.ir.intrinsic import IntrinsicFamily
    from hidet.plugins.specs import CommandTable, FrontendSpec, PassSpec, ScheduleSpec

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """Core's operators, one module a family."""
    from hidet.operators import all_operators

    return all_operators()


def hidet_intrinsics() -> Iterable[IntrinsicFamily]:
    """Those of every target."""
    from hidet.ir.common_intrinsics import COMMON

    return [COMMON]


def hidet_routines() -> Iterable[RoutineSpec]:
    """Sorting, what rests on it, and the other algorithms of core's operators."""
    from hidet.compute.routines import ROUTINES

    return ROUTINES


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """The fallback nest, last for every operator on every target."""
    return [
        ScheduleSpec(
            name="fallback",
            ops=(ANY,),
            targets=(ANY,),
            priority=FALLBACK_PRIORITY,
            prologue="gather",
            epilogue="element-wise",
            load="hidet.schedule.fallback:FallbackRule",
            doc="a plain loop nest for any task",
        ),
    ]


def hidet_commands(cli: CommandTable) -> None:
    """Those that a plug-in may replace; `hidet.plugins.specs.OWN_COMMANDS` are none of them."""
    cli.add("compile", load="hidet.cli.model:compile_model", doc="Compile MODEL and say what became of it.")
    cli.add("run", load="hidet.cli.model:run_model", doc="Run MODEL and say what comes out.")
    cli.add("opt", load="hidet.cli.opt:opt", doc="Run passes over the text of a graph or of thread IR.")
    cli.add("verify", load="hidet.cli.verify:verify", doc="Check a saved model without running it.")


def hidet_frontends() -> Iterable[FrontendSpec]:
    """Graphs in text form, and graphs of symbolic tensors."""
    return [
        FrontendSpec(
            name="text",
            accepts=lambda model: isinstance(model, str | os.PathLike) and os.fspath(model).endswith(".hir"),
            load="hidet.graph.text_file:import_text",
            doc="a graph as hidet prints it: a path ending in .hir",
        ),
        FrontendSpec(
            name="flow",
            # Its module is imported where there is such an object.
            accepts=lambda model: any(c.__module__ == "hidet.api.flow.graph" for c in type(model).__mro__),
            load="hidet.api.flow.graph:import_flow_graph",
            device="hidet.api.flow.graph:device_of_flow_graph",
            doc="a hidet.FlowGraph, as hidet.trace_from gives",
        ),
    ]


def hidet_passes() -> Iterable[PassSpec]:
    """Core's graph passes. `after` and `before` order them; targets and plug-ins order theirs against these names."""
    order = (
        "unfold-control",
        "decompose",
        "fold-constants",
        "check-positions",
        "simplify",
        "common-subexpr",
        "recompose",
        "fold-conv-batch-norm",
        "narrow-captures",
        "eliminate-dead",
        "materialize-outputs",
        "assign-layout",
        "attention-layout",
        "split-prepare",
    )
    return [
        PassSpec(
            name=name,
            level="graph",
            after=order[:position],
            load=f"hidet.passes.graph.{name.replace('-', '_')}:{''.join(map(str.capitalize, name.split('-')))}",
        )
        for position, name in enumerate(order)
    ]
