"""Functions that many programs have in common: named by what they do, so that one compiled copy serves all.

A schedule makes a group of them with `share_functions`, once a process, and calls them by the names it gets back. A
large graph compiles each group as a module of its own; in a small graph's only module each function stands once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from hidet.ir.func import EXPORTED, SHARED, Function, Module
from hidet.ir.structural import structural_hash


def share_functions(functions: Sequence[Function]) -> tuple[Function, ...]:
    """A group of device functions that call no others, under names that equal groups, and no others, have too."""
    suffix = structural_hash(*functions)[:16]
    return tuple(replace(f, name=f"{f.name}_{suffix}", attributes=(*f.attributes, (SHARED, suffix))) for f in functions)


def shared_group(function: Function) -> object | None:
    """What the functions of a group have in common; None for a function that belongs to one program alone."""
    return dict(function.attributes).get(SHARED)


def split_shared(module: Module) -> tuple[Module, list[Module]]:
    """The module without its shared functions, which it links, and a module for each group of these."""
    groups: dict[object, list[Function]] = {}
    own: list[Function] = []
    for function in module.functions:
        group = shared_group(function)
        (own if group is None else groups.setdefault(group, [])).append(function)
    if not groups:
        return module, []
    libraries = [_library(tuple(functions)) for functions in groups.values()]
    names = [f.name for functions in groups.values() for f in functions]
    return Module(tuple(own), module.entry, tuple(dict.fromkeys((*module.externals, *names)))), libraries


@functools.lru_cache(maxsize=256)
def _library(functions: tuple[Function, ...]) -> Module:
    """The module of a group; kept, because nearly every program of a model has the same ones."""
    return Module(tuple(map(exported, functions)), functions[0].name)


def exported(function: Function) -> Function:
    """The function, callable from other modules."""
    is_exported = EXPORTED in function.attributes
    return function if is_exported else replace(function, attributes=(*function.attributes, EXPORTED))
