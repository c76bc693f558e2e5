"""What is compiled together: all of a small graph as one module, else each kernel alone and host code as one more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet.host.program import HostCode
from hidet.ir.func import Function, Module
from hidet.ir.structural import structural_hash
from hidet.ir.visit import asserts_reach_host
from hidet.schedule.cost import is_below
from hidet.schedule.select import ScheduledGraph, rename_module
from hidet.schedule.shared_functions import exported, shared_group, split_shared

SMALL_GRAPH_FLOPS = 10_000_000
"""Below this many operations a call is over before better code could pay for the time it takes to make."""
EFFORT = 3
"""Of kernels that every call runs, in graphs that are not small."""


@dataclass(frozen=True, slots=True, eq=False)
class CompileUnit:
    """A module to compile.

    digest: what its content is known by, equal for equal modules. effort: the optimisation level it is worth: 3, 1
    where a call is short or code runs once, or 0 for code without loops.
    """

    module: Module
    digest: str
    effort: int


Part = tuple[ScheduledGraph, HostCode]


def compile_units(
    main: Sequence[Part], prepare: Sequence[Part] = (), *, kernel_asserts_reach_host: bool = True
) -> dict[str, CompileUnit]:
    """The modules of a graph and its prepare graph by name, each kernel in one of them only.

    kernel_asserts_reach_host: whether the host function that launched a kernel learns of an assertion that failed in
    it, as on a CPU. Modules with such kernels are compiled with the host code, which stops there.
    """
    parts = [*main, *prepare]
    often = {name for scheduled, _ in main for name in scheduled.modules}
    kernels = {name: module for scheduled, _ in parts for name, module in scheduled.modules.items()}
    hashes = {name: digest for scheduled, _ in parts for name, digest in scheduled.hashes.items()}
    segments = {name: module for _, code in parts for name, module in code.modules.items()}
    if not segments:
        return {}
    host = merge_modules(segments.values(), segments)
    host_digest = structural_hash(*[pair for _, code in parts for pair in code.digests.items()])
    if is_below((task for scheduled, _ in parts for task in scheduled.task_graph.tasks), SMALL_GRAPH_FLOPS):
        merged = merge_modules([host, *kernels.values()], segments)
        return {"graph": CompileUnit(merged, structural_hash(host_digest, *hashes.items()), effort=1)}
    asserting = {
        name: module for name, module in kernels.items() if asserts_reach_host(module, kernel_asserts_reach_host)
    }
    units: dict[str, CompileUnit] = {}
    for name, module in kernels.items():
        if name in asserting:
            continue
        # What only the prepare graph runs, it runs once.
        own = kernel_units(name, module, hashes[name], EFFORT if name in often else 1)
        units.update({unit: own[unit] for unit in own if unit not in units})
    # A segment is straight-line code that gains nothing from optimisation, and is long.
    if not asserting:
        return {**units, "host": CompileUnit(host, host_digest, effort=0)}
    digest = structural_hash(host_digest, *[(name, hashes[name]) for name in asserting])
    return {**units, "host": CompileUnit(merge_modules([host, *asserting.values()], segments), digest, effort=3)}


def kernel_units(name: str, module: Module, digest: str, effort: int) -> dict[str, CompileUnit]:
    """A program's module, known by a digest, by its name; and each group of shared functions that it calls."""
    own, libraries = split_shared(module)
    units = {name: CompileUnit(own, digest, effort)}
    for library in libraries:
        # Their names are made of their content.
        names = [function.name for function in library.functions]
        units[library.entry] = CompileUnit(library, structural_hash(*names), EFFORT)
    return units


def merge_modules(modules: Iterable[Module], visible: Mapping[str, object]) -> Module:
    """One module with the functions of all. The visible ones stay callable from outside; the first is the entry.

    Names that a linker sees must be different; device functions that happen to have the same name are told apart, and
    shared ones stand there once.
    """
    functions: list[Function] = []
    externals: dict[str, None] = {}
    defined: set[str] = set()
    for given in modules:
        module = replace(
            given, functions=tuple(f for f in given.functions if f.name not in defined or shared_group(f) is None)
        )
        clashes = {f.name: f"{module.entry}_{f.name}" for f in module.functions if f.name in defined}
        renamed = rename_module(module, clashes) if clashes else module
        functions += [exported(f) if f.name in visible else f for f in renamed.functions]
        externals.update(dict.fromkeys(module.externals))
        defined.update(f.name for f in renamed.functions)
    linked = tuple(name for name in externals if name not in defined)
    return Module(tuple(functions), next(iter(visible)), linked)
