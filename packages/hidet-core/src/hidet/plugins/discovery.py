"""Which plug-ins are there, before any of their code runs: entry points, HIDET_PLUGINS, and the order of ownership."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import importlib_metadata

from hidet.errors import suggestion
from hidet.plugins.isolation import Owner
from hidet.plugins.registry import Problem

ENTRY_POINT_GROUP = "hidet.plugins"
CORE_DISTRIBUTION = "hidet-core"
BUILTIN_MODULE = "hidet._builtin"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plug-in that was found.

    place: where it is imported from, "package.module" or "package.module:object".
    requires: its distribution's requirement strings.
    plugin: the plug-in itself where it is at hand and nothing has to be imported.
    """

    owner: Owner
    place: str
    requires: tuple[str, ...] = ()
    plugin: object | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A plug-in that is wanted besides the others, or is not wanted.

    plugin: the name of its entry point or its place as text, or the plug-in itself.
    by: who says so, as messages name it.
    """

    plugin: object
    is_wanted: bool
    by: str = "HIDET_PLUGINS"


def find_candidates(selection: str | None, changes: Sequence[Change] = ()) -> tuple[list[Candidate], list[Problem]]:
    """The plug-ins that `selection` (as HIDET_PLUGINS) and then `changes` ask for, and what they ask for in vain.

    They come in the order in which they own names: core, modules under `hidet.`, then the others by name. The order
    depends neither on sys.path nor on the order of `selection`.
    """
    installed = _installed()
    problems: list[Problem] = []
    names = _names(selection or "")
    chosen = list(installed) if selection is None or (names and all(name[0] in "+-" for name in names)) else []
    for change in (*map(_change, names), *changes):
        if change.is_wanted:
            found, wrong = _wanted(change, installed, chosen)
            chosen += [candidate for candidate in found if candidate not in chosen]
        else:
            chosen, wrong = _without(change, installed, chosen)
        problems += wrong
    chosen.sort(key=_ownership)
    builtin = Candidate(Owner("core", CORE_DISTRIBUTION, core_version()), BUILTIN_MODULE)
    return [builtin, *chosen], problems


def _change(name: str) -> Change:
    return Change(name.removeprefix("+").removeprefix("-"), is_wanted=not name.startswith("-"))


def _wanted(
    change: Change, installed: Sequence[Candidate], chosen: Sequence[Candidate]
) -> tuple[list[Candidate], list[Problem]]:
    """The plug-ins that are asked for by name or place, or as themselves."""
    name = change.plugin
    if not isinstance(name, str):
        return [_given(name, [*installed, *chosen])], []
    found = [candidate for candidate in installed if name in (candidate.owner.plugin, candidate.place)]
    if not found and _is_place(name):
        found = [Candidate(Owner(name), name)]
    if not found:
        return [], [_unknown(change, installed)]
    if len({candidate.place for candidate in found}) == 1:
        return found, []
    first, *others = sorted(found, key=_ownership)
    return [first], [_ambiguous(change, first, other) for other in others]


def _is_place(name: str) -> bool:
    """Whether a name that is no entry point's says where to import a plug-in from. A name without dot or colon may be
    a misspelt entry point: it has to be that of a module."""
    if "." in name or ":" in name:
        return True
    return name in sys.modules or (name.isidentifier() and importlib.util.find_spec(name) is not None)


def _given(plugin: object, others: Sequence[Candidate]) -> Candidate:
    """A plug-in that is at hand: as it was found already, or under a name that none of the others has."""
    if isinstance(plugin, ModuleType):
        known = (other for other in others if other.place == plugin.__name__)
        return next(known, Candidate(Owner(plugin.__name__), plugin.__name__, plugin=plugin))
    known = (other for other in others if other.plugin is plugin)
    kind = plugin if isinstance(plugin, type) else type(plugin)
    place = f"{kind.__module__}:{kind.__qualname__}"
    number = sum(other.place == place for other in others)
    owner = Owner(place if number == 0 else f"{place} {number + 1}")
    return next(known, Candidate(owner, place, plugin=plugin))


def _without(
    change: Change, installed: Sequence[Candidate], chosen: Sequence[Candidate]
) -> tuple[list[Candidate], list[Problem]]:
    """`chosen` without the plug-ins that a name means; a name that means none of all is a problem."""

    plugin = change.plugin.__name__ if isinstance(change.plugin, ModuleType) else change.plugin

    def is_meant(candidate: Candidate) -> bool:
        if isinstance(plugin, str):
            return plugin in (candidate.owner.plugin, candidate.place)
        return candidate.plugin is plugin

    if plugin in ("core", BUILTIN_MODULE):
        message = f"{change.by} leaves out 'core', whose operators and passes everything rests on; it stays"
        return list(chosen), [Problem(Owner("-core"), "find", message)]
    known = any(map(is_meant, (*installed, *chosen)))
    return [other for other in chosen if not is_meant(other)], [] if known else [_unknown(change, installed)]


def _ownership(candidate: Candidate) -> tuple[bool, str]:
    """The order in which plug-ins own names."""
    return not candidate.place.startswith("hidet."), str(candidate.owner)


def _ambiguous(change: Change, first: Candidate, other: Candidate) -> Problem:
    message = f"{change.by} names {change.plugin!r}, which is {first.owner.dist}'s; this one is named by its module"
    return Problem(other.owner, "find", f"{message}, {other.place}")


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
            # The file is read each time that a distribution is asked for a name, a version, or requirements.
            metadata = entry.dist.metadata
            owner = Owner(entry.name, metadata["Name"], metadata["Version"])
            requires = metadata.get_all("Requires-Dist") or []
        # A distribution may lie on sys.path twice (an editable install beside a copy): Python imports the first one.
        candidates.setdefault((entry.name, entry.value), Candidate(owner, entry.value, tuple(requires)))
    return list(candidates.values())


def _unknown(change: Change, installed: Sequence[Candidate]) -> Problem:
    advice = suggestion(str(change.plugin), (candidate.owner.plugin for candidate in installed))
    verb, name = ("names", f"{change.plugin}") if change.is_wanted else ("leaves out", f"-{change.plugin}")
    message = f"{change.by} {verb} {change.plugin!r}, which is not installed; {advice}"
    if change.is_wanted:
        message += "; others are named by where they are imported from (pkg._plugin, pkg.module:object)"
    return Problem(Owner(name), "find", message)
