"""From what each plug-in offers to one table a kind: duplicates, replacements, aliases and contradicting passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hidet.errors import PluginError, suggestion
from hidet.plugins.isolation import Owner
from hidet.plugins.pass_order import order_passes
from hidet.plugins.registry import Problem
from hidet.plugins.specs import (
    CommandSpec,
    FrontendSpec,
    OptionSpec,
    PassSpec,
    RewriteSpec,
    ScheduleSpec,
    TargetSpec,
)

SPEC_KINDS: Mapping[str, tuple[str, type | None]] = {
    "operators": ("operator", None),
    "schedules": ("schedule", ScheduleSpec),
    "rewrites": ("rewrite", RewriteSpec),
    "passes": ("pass", PassSpec),
    "targets": ("target", TargetSpec),
    "frontends": ("front-end", FrontendSpec),
    "commands": ("command", CommandSpec),
    "options": ("option", OptionSpec),
}
"""Kind -> what one is called, class of its specs. The hook is `hidet_<kind>`. Class None: it lives in the compiler,
which this package does not import; such a spec is anything with a name."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one plug-in returned from one hook."""

    owner: Owner
    kind: str
    specs: tuple[object, ...]


@dataclass(slots=True)
class Tables:
    """The merged tables, and what was refused. Filled by `merge`, then read only."""

    by_kind: dict[str, dict[str, object]] = field(default_factory=lambda: {kind: {} for kind in SPEC_KINDS})
    owners: dict[tuple[str, str], Owner] = field(default_factory=dict)
    target_aliases: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def count(self, owner: Owner) -> dict[str, int]:
        """Specs of `owner` by kind, kinds without any left out."""
        kinds = [kind for (kind, _), holder in self.owners.items() if holder == owner]
        return {kind: kinds.count(kind) for kind in SPEC_KINDS if kind in kinds}


def merge(contributions: Sequence[Contribution]) -> Tables:
    """One table a kind. The first owner keeps a name; a later spec is refused unless it says `replaces`."""
    tables = Tables()
    for contribution in contributions:
        for spec in contribution.specs:
            refusal = _refusal(tables, contribution.kind, spec)
            if refusal is None:
                _add(tables, contribution.kind, spec, contribution.owner)
            else:
                tables.problems.append(Problem(contribution.owner, f"hidet_{contribution.kind}", refusal))
    _collect_aliases(tables)
    _remark_on_unknown_passes(tables)
    return tables


def _refusal(tables: Tables, kind: str, spec: object) -> str | None:
    """Why `spec` cannot be taken; None when it can."""
    singular, wanted = SPEC_KINDS[kind]
    name = getattr(spec, "name", None)
    if not isinstance(name, str) or (wanted is not None and not isinstance(spec, wanted)):
        expected = wanted.__name__ if wanted is not None else "an object with a name"
        return f"hidet_{kind} returned {spec!r}, expected {expected}"
    replaces = getattr(spec, "replaces", None)
    holder = tables.owners.get((kind, name))
    if holder is not None and replaces != name:
        return f"{singular} {name!r} refused: {holder} has it; say replaces={name!r} to take its place"
    if isinstance(spec, PassSpec):
        return _contradiction(tables, spec)
    return None


def _contradiction(tables: Tables, spec: PassSpec) -> str | None:
    others = [other for other in _passes(tables) if other.level == spec.level and other.name != spec.replaces]
    try:
        order_passes([*others, spec])
    except PluginError as error:
        return f"pass {spec.name!r} refused: {error.message}"
    return None


def _add(tables: Tables, kind: str, spec: object, owner: Owner) -> None:
    name: str = getattr(spec, "name")  # noqa: B009 - `object` has no name for the type checker
    replaces = getattr(spec, "replaces", None)
    table = tables.by_kind[kind]
    if replaces is not None and replaces in table:
        # The replacement keeps the position, which is the order of equal priorities and of passes.
        tables.by_kind[kind] = {
            (name if key == replaces else key): (spec if key == replaces else value) for key, value in table.items()
        }
        del tables.owners[kind, replaces]
    else:
        table[name] = spec
        if replaces is not None:
            message = f"{SPEC_KINDS[kind][0]} {name!r} replaces {replaces!r}, which nobody provides"
            tables.problems.append(Problem(owner, f"hidet_{kind}", message, is_remark=True))
    tables.owners[kind, name] = owner


def _collect_aliases(tables: Tables) -> None:
    targets = [spec for spec in tables.by_kind["targets"].values() if isinstance(spec, TargetSpec)]
    taken = {spec.name: spec.name for spec in targets}
    for spec in targets:
        for alias in spec.aliases:
            if alias in taken:
                owner = tables.owners["targets", spec.name]
                message = f"alias {alias!r} of target {spec.name!r} refused: target {taken[alias]!r} has it"
                tables.problems.append(Problem(owner, "hidet_targets", message))
            else:
                taken[alias] = tables.target_aliases[alias] = spec.name


def _passes(tables: Tables) -> list[PassSpec]:
    return [spec for spec in tables.by_kind["passes"].values() if isinstance(spec, PassSpec)]


def _remark_on_unknown_passes(tables: Tables) -> None:
    """A name in `after` or `before` that nobody provides may be a misspelling, or belong to an absent plug-in."""
    passes = _passes(tables)
    for spec in passes:
        known = _names(other for other in passes if other.level == spec.level)
        for name in (*spec.after, *spec.before):
            if name not in known:
                message = f"pass {spec.name!r} is ordered by {name!r}, which no {spec.level} pass is called; "
                owner = tables.owners["passes", spec.name]
                problem = Problem(owner, "hidet_passes", message + suggestion(name, known), is_remark=True)
                tables.problems.append(problem)
    known = _names(other for other in passes if other.level == "graph")
    for rewrite in tables.by_kind["rewrites"].values():
        if isinstance(rewrite, RewriteSpec) and rewrite.stage not in known:
            message = f"rewrite {rewrite.name!r} never runs: no graph pass is called {rewrite.stage!r}; "
            owner = tables.owners["rewrites", rewrite.name]
            tables.problems.append(Problem(owner, "hidet_rewrites", message + suggestion(rewrite.stage, known)))


def _names(passes: Iterable[PassSpec]) -> set[str]:
    names: set[str] = set()
    for spec in passes:
        names.add(spec.name)
        if spec.replaces is not None:
            names.add(spec.replaces)
    return names
