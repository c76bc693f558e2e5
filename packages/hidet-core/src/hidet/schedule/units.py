"""What is compiled together: all of a small graph as one module, else each kernel alone and host code as one more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet.ir.func import EXPORTED, Function, Module
from hidet.schedule.cost import graph_flops
from hidet.schedule.host import HostCode
from hidet.schedule.select import ScheduledGraph

SMALL_GRAPH_FLOPS = 10_000_000
"""Below this many operations a call is over before better code could pay for the time it takes to make."""


@dataclass(frozen=True, slots=True, eq=False)
class CompileUnit:
    """A module to compile, and the optimisation level it is worth: 3, or 1 for code whose run time does not matter."""

    module: Module
    effort: int


def compile_units(parts: Sequence[tuple[ScheduledGraph, HostCode]]) -> dict[str, CompileUnit]:
    """The modules of a graph and its prepare graph by name, each kernel in one of them only."""
    kernels = {name: module for scheduled, _ in parts for name, module in scheduled.modules.items()}
    segments = {name: module for _, host in parts for name, module in host.modules.items()}
    if not segments:
        return {}
    if graph_flops(task for scheduled, _ in parts for task in scheduled.task_graph.tasks) < SMALL_GRAPH_FLOPS:
        return {"graph": CompileUnit(merge_modules([*kernels.values(), *segments.values()], segments), effort=1)}
    units = {name: CompileUnit(module, effort=3) for name, module in kernels.items()}
    # A segment is straight-line code that gains nothing from optimisation.
    units["host"] = CompileUnit(merge_modules(segments.values(), segments), effort=1)
    return units


def merge_modules(modules: Iterable[Module], exported: Mapping[str, object]) -> Module:
    """One module with the functions of all; names must be different. The exported ones stay callable from outside."""
    functions: list[Function] = []
    externals: dict[str, None] = {}
    for module in modules:
        functions += [_exported(f) if f.name in exported else f for f in module.functions]
        externals.update(dict.fromkeys(module.externals))
    defined = {function.name for function in functions}
    linked = tuple(name for name in externals if name not in defined)
    return Module(tuple(functions), next(iter(exported)), linked)


def _exported(function: Function) -> Function:
    return replace(function, attributes=(*function.attributes, EXPORTED))
