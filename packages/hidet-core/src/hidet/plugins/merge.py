"""From what each plug-in offers to one table a kind: duplicates, replacements, aliases and contradicting passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hidet.errors import PluginError, suggestion
from hidet.plugins.isolation import Owner
from hidet.plugins.pass_order import order_passes
from hidet.plugins.registry import Problem, current_name
from hidet.plugins.specs import (
    ANY,
    FAMILY,
    OWN_COMMANDS,
    TASKS_WITHOUT_OPERATOR,
    AttributeSpec,
    CheckSpec,
    CommandSpec,
    ExecutorSpec,
    FrontendSpec,
    HandlerSpec,
    OptionSpec,
    PassSpec,
    RewriteSpec,
    ScheduleSpec,
    StrategySpec,
    TargetSpec,
)

SPEC_KINDS: Mapping[str, tuple[str, type | None]] = {
    "operators": ("operator", None),
    "intrinsics": ("family of intrinsics", None),
    "routines": ("routine", None),
    "schedules": ("schedule", ScheduleSpec),
    "rewrites": ("rewrite", RewriteSpec),
    "passes": ("pass", PassSpec),
    "targets": ("target", TargetSpec),
    "frontends": ("front-end", FrontendSpec),
    "handlers": ("handler", HandlerSpec),
    "commands": ("command", CommandSpec),
    "checks": ("check", CheckSpec),
    "options": ("option", OptionSpec),
    "tuning_strategies": ("tuning strategy", StrategySpec),
    "tuning_executors": ("tuning executor", ExecutorSpec),
    "attributes": ("attribute", AttributeSpec),
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
    """The merged tables, and what was refused. Filled by `merge`, then read only.

    replaced: (kind, name) -> the name of what took its place.
    """

    by_kind: dict[str, dict[str, object]] = field(default_factory=lambda: {kind: {} for kind in SPEC_KINDS})
    owners: dict[tuple[str, str], Owner] = field(default_factory=dict)
    target_aliases: dict[str, str] = field(default_factory=dict)
    replaced: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def current(self, kind: str, name: str) -> str:
        """The name of the spec that stands in the place of the one once called `name`."""
        return current_name(self.replaced, kind, name)

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
    _remark_on_unknown_operators_and_targets(tables)
    _remark_on_unknown_frontends(tables)
    _remark_on_shared_devices(tables)
    return tables


def _refusal(tables: Tables, kind: str, spec: object) -> str | None:
    """Why `spec` cannot be taken; None when it can."""
    singular, wanted = SPEC_KINDS[kind]
    name = getattr(spec, "name", None)
    if not isinstance(name, str) or (wanted is not None and not isinstance(spec, wanted)):
        expected = wanted.__name__ if wanted is not None else "an object with a name"
        return f"hidet_{kind} returned {spec!r}, expected {expected}"
    replaces = getattr(spec, "replaces", None)
    if kind == "commands" and name in OWN_COMMANDS:
        return f"command {name!r} refused: it is hidet's own, which works whatever plug-ins do"
    holder = tables.owners.get((kind, name))
    if holder is not None and replaces != name:
        return f"{singular} {name!r} refused: {holder} has it; say replaces={name!r} to take its place"
    if isinstance(spec, PassSpec):
        return _contradiction(tables, spec)
    return None


def _contradiction(tables: Tables, spec: PassSpec) -> str | None:
    others = [other for other in _passes(tables) if other.level == spec.level and other.name != spec.replaces]
    try:
        order_passes([*others, spec], _replaced_passes(tables))
    except PluginError as error:
        return f"pass {spec.name!r} refused: {error.message}"
    return None


def _replaced_passes(tables: Tables) -> dict[str, str]:
    return {name: tables.current(kind, name) for kind, name in tables.replaced if kind == "passes"}


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
        tables.replaced.pop((kind, name), None)
        if name != replaces:
            tables.replaced[kind, replaces] = name
    else:
        table[name] = spec
        # What a front-end's own table holds is known to the front-end alone.
        if replaces is not None and kind != "handlers":
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
        known = _names(tables, (other for other in passes if other.level == spec.level))
        for name in (*spec.after, *spec.before):
            if name not in known:
                message = f"pass {spec.name!r} is ordered by {name!r}, which no {spec.level} pass is called; "
                _remark(tables, "passes", spec.name, message + suggestion(name, known))
    known = _names(tables, (other for other in passes if other.level == "graph"))
    for rewrite in tables.by_kind["rewrites"].values():
        if isinstance(rewrite, RewriteSpec) and rewrite.stage not in known:
            message = f"rewrite {rewrite.name!r} never runs: no graph pass is called {rewrite.stage!r}; "
            owner = tables.owners["rewrites", rewrite.name]
            tables.problems.append(Problem(owner, "hidet_rewrites", message + suggestion(rewrite.stage, known)))


def _remark_on_unknown_operators_and_targets(tables: Tables) -> None:
    """What a schedule, pass or rewrite is for may be misspelt, or belong to an absent plug-in."""
    operators = {*tables.by_kind["operators"], *TASKS_WITHOUT_OPERATOR, ANY}
    families = {getattr(spec, "family", None) or "" for spec in tables.by_kind["operators"].values()}
    known = (
        (operators, "{!r}, which no operator is called"),
        (families, "family {!r}, which no operator is of"),
        ({*tables.by_kind["targets"], ANY}, "{!r}, which no target is called"),
    )
    for kind in ("schedules", "passes", "rewrites"):
        for name, spec in tables.by_kind[kind].items():
            ops = spec.ops if isinstance(spec, ScheduleSpec) else ()
            wanted = (
                [op for op in ops if not op.startswith(FAMILY)],
                [op.removeprefix(FAMILY) for op in ops if op.startswith(FAMILY)],
                spec.targets if isinstance(spec, ScheduleSpec | PassSpec | RewriteSpec) else (),
            )
            for given, (names, text) in zip(wanted, known, strict=True):
                for unknown in sorted(set(given) - names):
                    message = f"{SPEC_KINDS[kind][0]} {name!r} is for {text.format(unknown)}; "
                    _remark(tables, kind, name, message + suggestion(unknown, names - {""}))


def _remark_on_unknown_frontends(tables: Tables) -> None:
    """What a handler is for may be misspelt, or belong to an absent plug-in."""
    frontends = tables.by_kind["frontends"]
    for name, spec in tables.by_kind["handlers"].items():
        if isinstance(spec, HandlerSpec) and spec.frontend not in frontends:
            advice = suggestion(spec.frontend, frontends)
            _remark(tables, "handlers", name, f"handler {name!r} is for no front-end of that name; {advice}")


def _remark_on_shared_devices(tables: Tables) -> None:
    """Of targets for one type of devices only the first is asked by itself."""
    first: dict[str, str] = {}
    targets = [spec for spec in tables.by_kind["targets"].values() if isinstance(spec, TargetSpec)]
    for spec in targets:
        for device in spec.devices:
            other = first.setdefault(device, spec.name)
            if other != spec.name:
                message = (
                    f"target {spec.name!r} is for devices of type {device!r}, which target {other!r} is asked for; "
                )
                _remark(tables, "targets", spec.name, message + "it is used where it is named")


def _remark(tables: Tables, kind: str, name: str, message: str) -> None:
    tables.problems.append(Problem(tables.owners[kind, name], f"hidet_{kind}", message, is_remark=True))


def _names(tables: Tables, passes: Iterable[PassSpec]) -> set[str]:
    """What passes are called, names that they stand for included."""
    names: set[str] = set()
    for spec in passes:
        names.add(spec.name)
        if spec.replaces is not None:
            names.add(spec.replaces)
        names.update(old for old, new in _replaced_passes(tables).items() if new == spec.name)
    return names
