"""The order of passes: as registered, except where `after` and `before` demand otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.errors import PluginError
from hidet.plugins.specs import PassSpec


def order_passes(passes: Sequence[PassSpec], replaced: Mapping[str, str] | None = None) -> tuple[PassSpec, ...]:
    """`passes` in an order that keeps every `after` and `before`, moving as few as possible.

    A pass moves forward only to where the first pass that needs it stands. A name that a pass replaces stands for that
    pass; names that are not among `passes` demand nothing. Raises PluginError naming the passes of a cycle.

    replaced: names of passes that are gone, each with the name of the pass in its place.
    """
    by_name = {spec.name: spec for spec in passes}
    gone = {old: new for old, new in (replaced or {}).items() if new in by_name}
    gone |= {spec.replaces: spec.name for spec in passes if spec.replaces is not None}
    needs = _predecessors(passes, {**gone, **{name: name for name in by_name}})
    placed: dict[str, PassSpec] = {}
    for spec in passes:
        _place(spec.name, needs, by_name, placed)
    return tuple(placed.values())


def _predecessors(passes: Sequence[PassSpec], known: Mapping[str, str]) -> dict[str, list[str]]:
    """For each pass the names of those that must run before it. known: name as written -> name of the pass."""
    needs = {spec.name: [known[name] for name in spec.after if name in known] for spec in passes}
    for spec in passes:
        for name in spec.before:
            if name in known:
                needs[known[name]].append(spec.name)
    return needs


def _place(
    first: str, needs: Mapping[str, Sequence[str]], by_name: Mapping[str, PassSpec], placed: dict[str, PassSpec]
) -> None:
    """Append `first` to `placed` behind everything it needs; the stack is explicit and doubles as the cycle check."""
    open_path = [first] if first not in placed else []
    while open_path:
        name = open_path[-1]
        missing = next((need for need in needs[name] if need not in placed), None)
        if missing is None:
            placed[name] = by_name[name]
            open_path.pop()
        elif missing in open_path:
            # The path reads "needs": printed backwards, it reads "runs before".
            cycle = [missing, *reversed(open_path[open_path.index(missing) :])]
            raise PluginError(
                "passes contradict each other: " + " before ".join(repr(name) for name in cycle),
                hint="change `after` or `before` of one of them",
            )
        else:
            open_path.append(missing)
