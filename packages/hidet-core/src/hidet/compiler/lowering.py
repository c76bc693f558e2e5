"""From an optimised graph to its host program: memory, tasks, schedules, segments; sub-graphs alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy

from hidet.compiler.lowered import LoweredGraph
from hidet.context import CompileContext
from hidet.fusion.fuse import fuse
from hidet.graph.graph import Graph, Node, Value, subgraphs_of
from hidet.graph.printer import print_graph
from hidet.graph.types import TensorType
from hidet.host.bind import bind_program, with_symbols
from hidet.host.own_memory import OwnMemory
from hidet.host.program import HostCode, InnerProgram, build_host_program
from hidet.host.report import warn_of_fallbacks
from hidet.host.size_checks import with_size_checks
from hidet.host.subgraph import close_subgraph
from hidet.passes.dump import dump
from hidet.passes.manager import run_graph_passes, run_late_pass
from hidet.runtime.program import HostProgram
from hidet.runtime.program_text import print_plans, print_program
from hidet.schedule.schedule_text import print_schedules
from hidet.schedule.select import OnBuilt, ScheduledGraph, ScheduledTask, select_schedules
from hidet.schedule.task_text import print_tasks
from hidet.target import overlaps_launches


def lower_graph(optimized: Graph, graph: Graph, ctx: CompileContext, on_built: OnBuilt | None = None) -> LoweredGraph:
    """The host program of a graph that passes have made of `graph`, whose assumptions of sizes it checks.

    on_built: hears of each program that is built for what every call runs.
    """
    lowering, preparing = _Lowering(ctx, on_built), _Lowering(ctx)
    program = with_size_checks(lowering.graph(optimized, "main"), graph)
    if optimized.prepare is not None:
        program = replace(program, prepare=preparing.graph(optimized.prepare.graph, "prepare"))
    main, prepare = (tuple(scheduled for scheduled, _ in made.parts) for made in (lowering, preparing))
    warn_of_fallbacks([*main, *prepare], ctx.target.name)
    program, names = bind_program(program, ctx.target)
    dump(ctx, "host.txt", partial(print_program, program))
    dump(ctx, "plan.txt", partial(print_plans, program))
    return LoweredGraph(
        program,
        tuple(lowering.constants),
        tuple(preparing.constants),
        main_code=with_symbols(lowering.parts, names),
        prepare_code=with_symbols(preparing.parts, names),
        main=main,
        prepare=prepare,
    )


class _Lowering:
    """From graphs to host programs: a graph and, inside it, the sub-graphs of its control operators.

    parts: what is to be compiled. constants: the store that all the programs index.
    """

    def __init__(self, ctx: CompileContext, on_built: OnBuilt | None = None) -> None:
        self.ctx = ctx
        self.on_built = on_built
        self.parts: list[tuple[ScheduledGraph, HostCode]] = []
        self.constants: list[Any] = []

    def graph(self, graph: Graph, name: str, *, is_inner: bool = False) -> HostProgram:
        """The program of an optimised graph; `name` prefixes the symbols of its segments."""
        folder = "" if name == "main" else f"{name}/"
        graph = run_late_pass(OwnMemory(is_inner), graph, self.ctx, folder)
        tasks = fuse(graph, self.ctx, folder)
        dump(self.ctx, f"{folder}tasks.hir", partial(print_graph, tasks.graph))
        dump(self.ctx, f"{folder}tasks.txt", partial(print_tasks, tasks))
        scheduled = select_schedules(tasks, self.ctx, self.on_built)
        dump(self.ctx, f"{folder}schedules.txt", partial(print_schedules, scheduled, self.ctx))
        for step in scheduled.steps:
            if isinstance(step, ScheduledTask):
                for kernel in step.program.lowered_from:
                    dump(self.ctx, f"{folder}{step.symbol}_{kernel.name}{kernel.ending}", kernel.text)
        controls = [node for node in graph.nodes if node.op.kind == "control"]
        types = scheduled.task_graph.types
        inner = {node: self._inner(node, types, f"{name}_{number}") for number, node in enumerate(controls)}
        host = build_host_program(
            scheduled,
            name,
            overlaps=overlaps_launches(self.ctx.target),
            inner=inner,
            first_constant=len(self.constants),
        )
        self.constants += [numpy.ascontiguousarray(graph.constants[value].numpy()) for value in host.constants]
        self.parts.append((scheduled, host))
        return host.program

    def _inner(self, node: Node, types: Mapping[Value, TensorType], name: str) -> tuple[InnerProgram, ...]:
        """The programs of a node's sub-graphs, which are optimised for the layout of what they capture."""
        programs = []
        for number, subgraph in enumerate(subgraphs_of(node)):
            closed, sizes = close_subgraph(node, subgraph, types)
            prefix = f"{name}_{number}"
            optimized = run_graph_passes(closed, self.ctx, prefix)
            program = self.graph(optimized, prefix, is_inner=True)
            program = with_size_checks(program, closed)
            if optimized.prepare is not None:
                program = replace(program, prepare=self.graph(optimized.prepare.graph, f"{prefix}_prepare"))
            programs.append(InnerProgram(program, sizes))
        return tuple(programs)
