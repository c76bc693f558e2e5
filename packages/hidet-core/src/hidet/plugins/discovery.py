"""Which plug-ins are there, before any of their code runs: entry points, HIDET_PLUGINS, and the order of ownership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import importlib_metadata

from hidet.errors import suggestion
from hidet.plugins.isolation import Owner
from hidet.plugins.registry import Problem

ENTRY_POINT_GROUP = "hidet.plugins"
CORE_DISTRIBUTION = "hidet-core"
BUILTIN_MODULE = "hidet._builtin"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plug-in that was found. requires: its distribution's requirement strings."""

    owner: Owner
    module: str
    requires: tuple[str, ...] = ()


def find_candidates(selection: str | None) -> tuple[list[Candidate], list[Problem]]:
    """The plug-ins that `selection` (as HIDET_PLUGINS) asks for, and what it asks for in vain.

    They come in the order in which they own names: core, modules under `hidet.`, then the others by name. The order
    depends neither on sys.path nor on the order of `selection`.
    """
    installed = _installed()
    problems: list[Problem] = []
    chosen = installed if selection is None else []
    for name in _names(selection or ""):
        found = [candidate for candidate in installed if name in (candidate.owner.plugin, candidate.module)]
        if not found and "." in name:
            found = [Candidate(Owner(name), name)]
        if not found:
            problems.append(_unknown(name, installed))
        if len(found) > 1 and len({candidate.module for candidate in found}) > 1:
            first, *others = sorted(found, key=_ownership)
            found = [first]
            problems += [_ambiguous(name, first, other) for other in others]
        chosen += [candidate for candidate in found if candidate not in chosen]
    chosen.sort(key=_ownership)
    builtin = Candidate(Owner("core", CORE_DISTRIBUTION, core_version()), BUILTIN_MODULE)
    return [builtin, *chosen], problems


def _ownership(candidate: Candidate) -> tuple[bool, str]:
    """The order in which plug-ins own names."""
    return not candidate.module.startswith("hidet."), str(candidate.owner)


def _ambiguous(name: str, first: Candidate, other: Candidate) -> Problem:
    message = f"HIDET_PLUGINS names {name!r}, which is {first.owner.dist}'s; this one is named by its module"
    return Problem(other.owner, "find", f"{message}, {other.module}")


def core_version() -> str | None:
    """The installed version of hidet-core; None when core is only on PYTHONPATH."""
    try:
        return importlib_metadata.version(CORE_DISTRIBUTION)
    except importlib_metadata.PackageNotFoundError:
        return None


def _names(selection: str) -> list[str]:
    return [part.strip() for part in selection.split(",") if part.strip()]


def _installed() -> list[Candidate]:
    candidates: dict[tuple[str, str], Candidate] = {}
    for entry in importlib_metadata.entry_points(group=ENTRY_POINT_GROUP):
        owner = Owner(entry.name)
        requires: list[str] = []
        if entry.dist is not None:
            owner = Owner(entry.name, entry.dist.name, entry.dist.version)
            requires = entry.dist.requires or []
        # A distribution may lie on sys.path twice (an editable install beside a copy): Python imports the first one.
        candidates.setdefault((entry.name, entry.value), Candidate(owner, entry.value, tuple(requires)))
    return list(candidates.values())


def _unknown(name: str, installed: Sequence[Candidate]) -> Problem:
    advice = suggestion(name, (candidate.owner.plugin for candidate in installed))
    message = f"HIDET_PLUGINS names {name!r}, which is not installed; {advice}; modules are named in full (pkg._plugin)"
    return Problem(Owner(name), "find", message)
