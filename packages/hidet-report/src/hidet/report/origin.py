"""What compiled graphs were made from, kept as long as they are, without the elements of their weights."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from hidet.compiler.lowered import LateLowered
from hidet.errors import HidetError
from hidet.graph.graph import Constant, Graph, Prepare
from hidet.runtime.program import Segment

if TYPE_CHECKING:
    from hidet.compiler.lowered import LoweredGraph
    from hidet.context import CompileContext
    from hidet.host.units import Part
    from hidet.runtime.compiled import CompiledGraph, CompileReport
    from hidet.schedule.select import ScheduledGraph


@dataclass(frozen=True, slots=True, eq=False)
class PassRun:
    """A graph pass as it ran: `before is after` where it changed nothing. Constants have no elements."""

    name: str
    before: Graph
    after: Graph
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class OriginPart:
    """The tasks of a graph, or of a sub-graph of a control operator, and the segments that run them, in order."""

    scheduled: ScheduledGraph
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """What a compiled graph was made from. Graphs have no elements of constants.

    graph: as it was given. passes: those of the graph itself, then of its sub-graphs. parts: the graph, then its
    sub-graphs; prepare: work on constants alone, likewise. compiled: the graph; None once nobody has it any more.
    """

    graph: Graph
    passes: tuple[PassRun, ...]
    parts: tuple[OriginPart, ...]
    prepare: tuple[OriginPart, ...]
    ctx: CompileContext
    compiled: weakref.ref[CompiledGraph]


_ORIGINS: dict[int, tuple[weakref.ref[CompileReport], Origin | Callable[[], Origin]]] = {}
"""By the identity of their compile reports, which have no hash. Those of graphs that came out of the cache are made
when somebody asks, by the steps that were left out."""


class _Passes(threading.local):
    """Passes that have run in this thread since it last finished a graph."""

    def __init__(self) -> None:
        self.runs: list[PassRun] = []


_PASSES = _Passes()


def note_pass(name: str, before: Graph, after: Graph, seconds: float) -> None:
    """Remember a graph pass for the graph that this thread is compiling."""
    runs = _PASSES.runs
    known = runs[-1].after if runs and _is_bare_of(runs[-1].after, before) else without_elements(before)
    runs.append(PassRun(name, known, known if after is before else without_elements(after), seconds))


def keep_origin(compiled: CompiledGraph, graph: Graph, lowered: LoweredGraph, ctx: CompileContext) -> None:
    """Remember what a graph was made from."""
    make = partial(_origin, weakref.ref(compiled), graph, lowered, ctx)
    report = compiled.report()
    key = id(report)
    ref = weakref.ref(report, lambda _: _ORIGINS.pop(key, None))
    _ORIGINS[key] = ref, make if isinstance(lowered, LateLowered) else make()


def _origin(compiled: weakref.ref[CompiledGraph], graph: Graph, lowered: LoweredGraph, ctx: CompileContext) -> Origin:
    main, prepare = lowered.main_code, lowered.prepare_code
    runs, _PASSES.runs = _PASSES.runs, []
    # Passes of a compilation that failed come before those of this one.
    starts = [number for number, run in enumerate(runs) if _is_bare_of(run.before, graph)]
    own = runs[starts[0] :] if starts else []
    return Origin(
        own[0].before if own else without_elements(graph),
        tuple(own),
        _parts(main),
        _parts(prepare),
        replace(ctx, options=replace(ctx.options, dump=None, tune=None)),
        compiled,
    )


def _is_bare_of(bare: Graph, graph: Graph) -> bool:
    return bare.nodes is graph.nodes and bare.inputs is graph.inputs and bare.outputs is graph.outputs


def origin_of(report: CompileReport) -> Origin:
    """What the graph was made from that a report is about. HidetError where it was not compiled by this process."""
    found = _ORIGINS.get(id(report))
    if found is None or found[0]() is not report:
        raise HidetError(
            "nothing is known of how the graph was compiled: it is from a file, or hidet-report was not active",
            hint="ask where the model is compiled",
        )
    ref, origin = found
    if not isinstance(origin, Origin):
        origin = origin()
        _ORIGINS[id(report)] = ref, origin
    return origin


def without_elements(graph: Graph) -> Graph:
    """The graph with constants that have no elements, in those that prepare them, too."""
    prepare = graph.prepare
    if prepare is not None:
        prepare = Prepare(without_elements(prepare.graph), prepare.results)
    return replace(graph, constants=dict.fromkeys(graph.constants, _NOTHING), prepare=prepare)


_NOTHING = Constant(None)


def _parts(code: Sequence[Part]) -> tuple[OriginPart, ...]:
    """The graph, and its sub-graphs, which are compiled before it."""
    parts: list[OriginPart] = []
    for scheduled, host in code:
        graph = scheduled.task_graph
        bare = replace(scheduled, task_graph=replace(graph, graph=without_elements(graph.graph)))
        # Modules are in the order of the steps that run them.
        count = sum(isinstance(step, Segment) for step in host.program.steps)
        assert count == len(host.modules)
        parts.append(OriginPart(bare, tuple(host.modules)))
    return (*parts[-1:], *parts[:-1])
