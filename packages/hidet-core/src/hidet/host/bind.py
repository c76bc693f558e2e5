"""Names for the segments of a program that only code which was compiled for this very program has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hidet.errors import ArtifactError
from hidet.host.program import HostCode
from hidet.host.units import Part
from hidet.ir.func import Module
from hidet.runtime.identity import prepare_identity, program_identity, with_identity
from hidet.runtime.program import HostProgram, Segment, map_subprograms, programs_of
from hidet.target import Target


def bind_program(program: HostProgram, target: Target) -> tuple[HostProgram, Mapping[str, str]]:
    """The program with segments named by its identity, and new names by old ones; as it is where it cannot be saved."""
    try:
        names = _names(program, program_identity(program, target.name, target.arch))
        if program.prepare is not None:
            names |= _names(program.prepare, prepare_identity(program, target.name, target.arch))
    except ArtifactError:
        return program, {}

    def named(part: HostProgram) -> HostProgram:
        steps = (replace(s, symbol=names[s.symbol]) if isinstance(s, Segment) else s for s in part.steps)
        return replace(part, steps=tuple(steps))

    def all_named(part: HostProgram) -> HostProgram:
        return named(map_subprograms(part, named))

    prepare = None if program.prepare is None else all_named(program.prepare)
    return replace(all_named(program), prepare=prepare), names


def with_symbols(parts: Sequence[Part], names: Mapping[str, str]) -> list[Part]:
    """Scheduled graphs with their code, whose segments have other names."""
    return [(scheduled, _renamed(code, names)) for scheduled, code in parts]


def _names(program: HostProgram, identity: str) -> dict[str, str]:
    segments = [step for part in programs_of(program) for step in part.steps if isinstance(step, Segment)]
    return {segment.symbol: with_identity(segment.symbol, identity) for segment in segments}


def _renamed(code: HostCode, names: Mapping[str, str]) -> HostCode:
    def renamed(module: Module) -> Module:
        # Nothing in the module calls the segment.
        entry = names.get(module.entry, module.entry)
        functions = (replace(f, name=entry) if f.name == module.entry else f for f in module.functions)
        return replace(module, functions=tuple(functions), entry=entry)

    return replace(
        code,
        modules={names.get(symbol, symbol): renamed(module) for symbol, module in code.modules.items()},
        digests={names.get(symbol, symbol): digest for symbol, digest in code.digests.items()},
    )
