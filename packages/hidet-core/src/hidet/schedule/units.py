"""What is compiled together: all of a small graph as one module, else each kernel alone and host code as one more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet.ir.func import EXPORTED, SHARED, Function, Module
from hidet.ir.structural import structural_hash
from hidet.schedule.cost import graph_flops
from hidet.schedule.host import HostCode
from hidet.schedule.select import ScheduledGraph, rename_calls, rename_module

SMALL_GRAPH_FLOPS = 10_000_000
"""Below this many operations a call is over before better code could pay for the time it takes to make."""


@dataclass(frozen=True, slots=True, eq=False)
class CompileUnit:
    """A module to compile.

    digest: what its content is known by, equal for equal modules. effort: the optimisation level it is worth: 3, or 1
    for code whose run time does not matter.
    """

    module: Module
    digest: str
    effort: int


def compile_units(parts: Sequence[tuple[ScheduledGraph, HostCode]]) -> dict[str, CompileUnit]:
    """The modules of a graph and its prepare graph by name, each kernel in one of them only."""
    kernels = {name: module for scheduled, _ in parts for name, module in scheduled.modules.items()}
    hashes = {name: digest for scheduled, _ in parts for name, digest in scheduled.hashes.items()}
    segments = {name: module for _, code in parts for name, module in code.modules.items()}
    if not segments:
        return {}
    host = merge_modules(segments.values(), segments)
    host_digest = structural_hash(host)
    if graph_flops(task for scheduled, _ in parts for task in scheduled.task_graph.tasks) < SMALL_GRAPH_FLOPS:
        merged = merge_modules([host, *kernels.values()], segments)
        return {"graph": CompileUnit(merged, structural_hash(host_digest, *hashes.items()), effort=1)}
    units: dict[str, CompileUnit] = {}
    for name, module in kernels.items():
        own, libraries = split_shared(module)
        units[name] = CompileUnit(own, hashes[name], effort=3)
        for library in libraries:
            if library.entry not in units:
                units[library.entry] = CompileUnit(library, structural_hash(library), effort=3)
    # A segment is straight-line code that gains nothing from optimisation.
    return {**units, "host": CompileUnit(host, host_digest, effort=1)}


def split_shared(module: Module) -> tuple[Module, list[Module]]:
    """The module without its shared functions, and a module for each group of these; equal groups have equal names."""
    groups: dict[object, list[Function]] = {}
    for function in module.functions:
        group = dict(function.attributes).get(SHARED)
        if group is not None:
            groups.setdefault(group, []).append(function)
    if not groups:
        return module, []
    names: dict[str, str] = {}
    libraries = []
    for functions in groups.values():
        suffix = structural_hash(*functions)[:16]
        named = {f.name: f"{f.name}_{suffix}" for f in functions}
        exported = tuple(_exported(replace(f, name=named[f.name])) for f in functions)
        libraries.append(Module(exported, exported[0].name))
        names.update(named)
    rest = Module(tuple(f for f in module.functions if f.name not in names), module.entry)
    externals = tuple(dict.fromkeys((*module.externals, *names.values())))
    return replace(rename_calls(rest, names), externals=externals), libraries


def merge_modules(modules: Iterable[Module], exported: Mapping[str, object]) -> Module:
    """One module with the functions of all. The exported ones stay callable from outside; the first is the entry.

    Names that a linker sees must be different; device functions that share a name are told apart.
    """
    functions: list[Function] = []
    externals: dict[str, None] = {}
    defined: set[str] = set()
    for module in modules:
        clashes = {f.name: f"{module.entry}_{f.name}" for f in module.functions if f.name in defined}
        renamed = rename_module(module, clashes) if clashes else module
        functions += [_exported(f) if f.name in exported else f for f in renamed.functions]
        externals.update(dict.fromkeys(module.externals))
        defined.update(f.name for f in renamed.functions)
    linked = tuple(name for name in externals if name not in defined)
    return Module(tuple(functions), next(iter(exported)), linked)


def _exported(function: Function) -> Function:
    return (
        function if EXPORTED in function.attributes else replace(function, attributes=(*function.attributes, EXPORTED))
    )
