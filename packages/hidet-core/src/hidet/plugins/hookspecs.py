"""Every hook of hidet, one page.

A plug-in module defines `HIDET_API = 1` and any of these functions, with any subset of the arguments shown: arguments
may be added here later, and are never removed. Hooks that return specs are called once, when the registry is built;
they must be cheap and import nothing heavy. A hook that raises is disabled with a warning, the rest of its plug-in
stays active. Hooks are called one by one, in the order of ownership: none of pluggy's markers (`tryfirst`, wrappers, …)
has an effect.
"""

# Hook specifications have no bodies.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from hidet.compiler.lowered import LoweredGraph
    from hidet.compute.routine import RoutineSpec
    from hidet.context import CompileContext
    from hidet.graph.graph import Graph
    from hidet.graph.operator import OperatorSpec
    from hidet.ir.intrinsic import IntrinsicFamily
    from hidet.plugins.specs import (
        AttributeSpec,
        CheckSpec,
        CommandTable,
        ExecutorSpec,
        FrontendSpec,
        HandlerSpec,
        OptionSpec,
        PassSpec,
        RewriteSpec,
        ScheduleSpec,
        StrategySpec,
        TargetSpec,
    )
    from hidet.runtime.compiled import CompiledGraph
    from hidet.runtime.signature import Signature
    from hidet.schedule.rule import Choice
    from hidet.schedule.task import Task
    from hidet.target import Target

hookspec = pluggy.HookspecMarker("hidet")


@hookspec
def hidet_operators() -> Iterable[OperatorSpec]:
    """New operators: signature, shape rule and compute definition, never an implementation for one target."""


@hookspec
def hidet_intrinsics() -> Iterable[IntrinsicFamily]:
    """New operations of the hardware that programs call: their signatures, meanings and spellings by target."""


@hookspec
def hidet_routines() -> Iterable[RoutineSpec]:
    """New algorithms that definitions of operators use: their meanings, and their programs for every target."""


@hookspec
def hidet_schedules() -> Iterable[ScheduleSpec]:
    """New ways to turn tasks into programs, asked by falling priority."""


@hookspec
def hidet_rewrites() -> Iterable[RewriteSpec]:
    """Rewrite rules of graphs, applied after the pass named by their stage."""


@hookspec
def hidet_passes() -> Iterable[PassSpec]:
    """Graph and program passes, placed by `after` and `before`."""


@hookspec
def hidet_targets() -> Iterable[TargetSpec]:
    """Targets: what code is generated for."""


@hookspec
def hidet_frontends() -> Iterable[FrontendSpec]:
    """Importers of foreign models, chosen by `accepts`."""


@hookspec
def hidet_handlers() -> Iterable[HandlerSpec]:
    """What operators of foreign models are written as: one spec an operator, beside a front-end's own table."""


@hookspec
def hidet_commands(cli: CommandTable) -> None:
    """Sub-commands of `hidet`: call `cli.add(name, load="pkg.mod:command", doc="...")`; "cache.log" is of a group."""


@hookspec
def hidet_checks() -> Iterable[CheckSpec]:
    """What `hidet doctor` looks at besides: libraries, drivers and compilers that a wheel needs."""


@hookspec
def hidet_options() -> Iterable[OptionSpec]:
    """Namespaced options, `options={"cuda.max_registers": 128}`; passes read them with `ctx.option(name)`."""


@hookspec
def hidet_tuning_strategies() -> Iterable[StrategySpec]:
    """Ways to look for the fastest point of a schedule's space, which `hidet.tune(strategy="name")` follows."""


@hookspec
def hidet_tuning_executors() -> Iterable[ExecutorSpec]:
    """Where programs that are tuned are compiled and measured: `hidet.tune(executor="name")`."""


@hookspec
def hidet_attributes() -> Iterable[AttributeSpec]:
    """Names of modules and classes of hidet that users call: `hidet.graph.PassContext`, `hidet.Tensor.layout`."""


@hookspec(firstresult=True)
def hidet_choose_schedule(
    task: Task, candidates: Sequence[Choice[Any, Any]], target: Target, ctx: CompileContext
) -> Choice[Any, Any] | None:
    """Choose among the candidates of a task, or one of them with other parameters (`dataclasses.replace(candidate,
    params=...)`); None leaves it to the next plug-in. Where all do, the first one is taken.

    Called once a task while compiling. candidates: in the order of priority; a rule is asked when its place is looked
    at, so that a hook which looks at none costs nothing. target: that of the compilation `ctx`.
    """


@hookspec(firstresult=True)
def hidet_tune_graph(graph: Graph, ctx: CompileContext, signature: Signature | None) -> CompiledGraph | None:
    """Compile a graph for which schedules are to be measured before; None leaves it to the next plug-in. Where all do,
    and where the hook fails, the graph is compiled without.

    ctx: `ctx.options.tune` is the `hidet.budget.Budget` to charge; with None there, `compile_graph` compiles at once.
    signature: as `compile_graph` takes it.
    """


@hookspec
def hidet_graph_facts(ctx: CompileContext) -> str | None:
    """What the plug-in's parts of a compilation depend on besides the graph, the options and the versions of wheels, as
    text: facts of a device, files, what users have registered. Graphs are kept in the cache as a whole under it, and
    read where it is the same. None: the graph is to be compiled step by step.

    Where the plug-in of the target, or one that implements `hidet_choose_schedule`, `hidet_pass_done` or
    `hidet_kernel_built`, has no such hook, graphs are always compiled step by step. "" is for what depends on nothing
    else; passes are not run for a graph that is read, and nobody hears of them.
    """


@hookspec
def hidet_pass_done(name: str, level: str, before: object, after: object, seconds: float) -> None:
    """A pass ran: `before is after` when it changed nothing. For dumps, timing and viewers; must not change either."""


@hookspec
def hidet_kernel_built(name: str, target: str, program: object | None, binary: bytes, cached: bool) -> None:
    """A module of kernels was compiled, or taken from the cache (`cached`).

    program: its thread IR as schedules built it, a hidet.ir.func.Module; None where the whole graph came out of the
    cache (see `hidet_graph_facts`). binary: the target's machine code.
    """


@hookspec
def hidet_graph_compiled(compiled: CompiledGraph, graph: Graph, lowered: LoweredGraph, ctx: CompileContext) -> None:
    """A graph was compiled. For reports, profiles and logs; must not change any of them.

    graph: as it was given. lowered: its tasks with the programs chosen for them, and what was compiled; who keeps it
    should keep it without the constants, which are the model's weights.
    """
