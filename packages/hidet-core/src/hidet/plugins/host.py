"""Loads plug-ins, isolates the broken ones and builds the registry. With hookspecs.py the only user of pluggy.

Each plug-in goes through the stages import -> api -> hooks -> register; whatever fails disables that plug-in alone,
with one PluginWarning and a row in `hidet plugins`. Environment, read by `load_registry`:

    HIDET_PLUGINS         unset: every installed plug-in; empty: built-ins only; else a comma-separated list of
                          entry-point names and of places (`hidet.cpu._plugin`, `my_module`, `pkg.module:object`; needed
                          where only PYTHONPATH is set): these alone. Where each has a sign, all installed plug-ins
                          but those with a minus, and those with a plus besides: `-acme,+my_module`
    HIDET_STRICT_PLUGINS  1: a broken plug-in raises PluginError instead of being disabled

`use` and `without` change what is active for a block of code.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

import pluggy

from hidet.errors import PluginError, PluginWarning, nearest_names
from hidet.plugins import hookspecs
from hidet.plugins.discovery import CORE_DISTRIBUTION, Candidate, Change, core_version, find_candidates
from hidet.plugins.isolation import Failure, Owner, attempt
from hidet.plugins.merge import SPEC_KINDS, Contribution, Tables, merge
from hidet.plugins.registry import Callback, PluginRecord, Problem, Registry
from hidet.plugins.requirement import unmet_requirement
from hidet.plugins.specs import (
    PLUGIN_API,
    AttributeSpec,
    CheckSpec,
    CommandSpec,
    CommandTable,
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
from hidet.plugins.wheels import unread_variables

if TYPE_CHECKING:
    from hidet.compute.routine import RoutineSpec
    from hidet.graph.operator import OperatorSpec
    from hidet.ir.intrinsic import IntrinsicFamily

CALLBACK_HOOKS = (
    *("hidet_choose_schedule", "hidet_tune_graph", "hidet_graph_facts"),
    *("hidet_graph_compiled", "hidet_pass_done", "hidet_kernel_built"),
)
HOOK_NAMES = (*(f"hidet_{kind}" for kind in SPEC_KINDS), *CALLBACK_HOOKS)

Spec = TypeVar("Spec")


class _HookManager(pluggy.PluginManager):
    """Takes every function called `hidet_*` as a hook, so that plug-ins need no decorator and no pluggy import."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if not name.startswith("hidet_") or not inspect.isroutine(getattr(plugin, name)):
            return None
        return {
            "wrapper": False,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": False,
            "trylast": False,
            "specname": None,
        }


@dataclass(frozen=True, slots=True)
class _Block:
    """The plug-ins of the innermost block that `use` or `without` has opened, and all changes up to it."""

    registry: Registry
    changes: tuple[Change, ...]


_BLOCK: ContextVar[_Block | None] = ContextVar("hidet_plugins", default=None)


def load_registry() -> Registry:
    """The registry of the innermost block of `use` and `without`; outside of them that of this process's environment,
    loaded once for each value of the two variables above."""
    block = _BLOCK.get()
    return _load(*_environment()) if block is None else block.registry


def is_of_environment(registry: Registry) -> bool:
    """Whether a registry has what any process finds that has this one's environment and import path."""
    return registry is _load(*_environment())


def use(plugin: object) -> AbstractContextManager[Registry]:
    """Have a plug-in active in a `with` block, as if it were installed: for tests and notebooks. Gives the registry.

    plugin: a module; an object, or a class to make one of, with `HIDET_API = 1` and hooks as methods; or text as in
    HIDET_PLUGINS (the name of an entry point, "package.module", "package.module:object"). What is active already stays
    as it is.

    The block counts for this thread and for tasks begun in it (it is a context variable); other threads see nothing of
    it. HIDET_PLUGINS and HIDET_STRICT_PLUGINS are read where the block begins. A plug-in that is broken is disabled
    with a PluginWarning; PluginError in strict mode.
    """
    return _block([Change(plugin, is_wanted=True, by="hidet.plugins.use")])


def without(*plugins: object) -> AbstractContextManager[Registry]:
    """Leave plug-ins out in a `with` block, as if they were not installed. Gives the registry.

    plugins: as `use` takes them. core cannot be left out. Counts where `use` does; an unknown name is a PluginWarning,
    PluginError in strict mode.
    """
    return _block([Change(plugin, is_wanted=False, by="hidet.plugins.without") for plugin in plugins])


@contextmanager
def _block(changes: Sequence[Change]) -> Iterator[Registry]:
    outer = _BLOCK.get()
    merged = (*(() if outer is None else outer.changes), *changes)
    registry = discover(*_environment(), merged)
    _warn(registry, () if outer is None else outer.registry.plugins)
    token = _BLOCK.set(_Block(registry, merged))
    try:
        yield registry
    finally:
        _BLOCK.reset(token)


def _environment() -> tuple[str | None, bool]:
    return os.environ.get("HIDET_PLUGINS"), os.environ.get("HIDET_STRICT_PLUGINS") == "1"


@functools.cache
def _load(selection: str | None, is_strict: bool) -> Registry:
    registry = discover(selection, is_strict)
    _warn(registry)
    for text in unread_variables():
        warnings.warn(PluginWarning(text), stacklevel=3)
    return registry


def _warn(registry: Registry, known: Iterable[PluginRecord] = ()) -> None:
    """One warning a problem. known: plug-ins whose problems were warned about before."""
    told = {problem for record in known for problem in record.problems}
    for record in registry.plugins:
        for problem in record.problems:
            if not problem.is_remark and problem not in told:
                warnings.warn(PluginWarning(f"{problem}. See: hidet plugins"), stacklevel=4)


def discover(selection: str | None = None, is_strict: bool = False, changes: Sequence[Change] = ()) -> Registry:
    """Load plug-ins anew, uncached and without warnings: the problems are in `registry.plugins`.

    selection: as HIDET_PLUGINS; None for every installed plug-in.
    is_strict: raise PluginError at the first problem.
    changes: plug-ins besides those of `selection`, and without.
    """
    manager = _HookManager("hidet")
    manager.add_hookspecs(hookspecs)
    candidates, not_found = find_candidates(selection, changes)
    version = core_version()
    records = [_activate(manager, candidate, version) for candidate in candidates]
    owners = {str(candidate.owner): candidate.owner for candidate in candidates}
    contributions, failures = _collect(manager, owners)
    tables = merge(contributions)
    records = [_completed(record, tables, [*failures, *tables.problems]) for record in records]
    records += [PluginRecord(problem.owner, "", None, "disabled", problems=(problem,)) for problem in not_found]
    if is_strict:
        _raise_first(records)
    return _registry(tables, _callbacks(manager, owners), tuple(records), is_strict)


def _activate(manager: _HookManager, candidate: Candidate, version: str | None) -> PluginRecord:
    """Import and register one plug-in; the record says how far it came. version: of hidet-core."""
    record = PluginRecord(candidate.owner, candidate.place, api=None, status="disabled")
    plugin = attempt(functools.partial(_import, candidate))
    if isinstance(plugin, Failure):
        return _disabled(record, "import", str(plugin), plugin.traceback())
    api = getattr(plugin, "HIDET_API", None)
    record = replace(record, api=api if isinstance(api, int) else None)
    if api != PLUGIN_API:
        stated = "does not state HIDET_API" if api is None else f"was written for HIDET_API {api!r}"
        return _disabled(record, "api", f"it {stated}, this hidet-core has {PLUGIN_API}")
    hooks = _hook_names(manager, plugin)
    # Before registering: pluggy takes an unknown name as a new hook that nobody calls.
    for hook in hooks:
        if hook not in HOOK_NAMES:
            near = nearest_names(hook, HOOK_NAMES)
            advice = f"; did you mean {near[0]}?" if near else ""
            return _disabled(record, "hooks", f"{hook} is not a hook{advice}")
    name = str(candidate.owner)
    registered = attempt(lambda: manager.register(plugin, name=name))
    if isinstance(registered, Failure):
        if manager.has_plugin(name):
            # pluggy registers hook by hook and stops at the bad one: the ones before it have to go again.
            manager.unregister(name=name)
        return _disabled(record, "register", " ".join(str(registered.error).split()), registered.traceback())
    return replace(record, status="active", hooks=hooks, problems=_version_problems(candidate, version))


def _import(candidate: Candidate) -> object:
    """The module or object that a candidate names; one of it where that is a class."""
    plugin = candidate.plugin
    if plugin is None:
        module, _, path = candidate.place.partition(":")
        plugin = importlib.import_module(module)
        for attribute in path.split(".") if path else ():
            plugin = getattr(plugin, attribute)
    return plugin() if isinstance(plugin, type) else plugin


def _hook_names(manager: _HookManager, plugin: object) -> tuple[str, ...]:
    return tuple(name for name in dir(plugin) if manager.parse_hookimpl_opts(plugin, name) is not None)


def _disabled(record: PluginRecord, stage: str, message: str, traceback: str | None = None) -> PluginRecord:
    problem = Problem(record.owner, stage, f"disabled at {stage}: {message}", traceback)
    return replace(record, status="disabled", problems=(problem,))


def _version_problems(candidate: Candidate, version: str | None) -> tuple[Problem, ...]:
    """The installer checks requirements, but editable trees and PYTHONPATH do not pass through it."""
    broken = unmet_requirement(candidate.requires, CORE_DISTRIBUTION, version) if version is not None else None
    if broken is None:
        return ()
    message = f"needs {CORE_DISTRIBUTION} {broken}, but {version} is installed; it may misbehave"
    return (Problem(candidate.owner, "version", message),)


def _collect(manager: _HookManager, owners: Mapping[str, Owner]) -> tuple[list[Contribution], list[Problem]]:
    """Call every spec hook of every plug-in, each call on its own.

    Not through `manager.hook.x()`: that is last in, first out, which would give a duplicate name to the later plug-in,
    and one raising implementation would lose the results of all.
    """
    contributions: list[Contribution] = []
    failures: list[Problem] = []
    for kind in SPEC_KINDS:
        hook = f"hidet_{kind}"
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            owner = owners[implementation.plugin_name]
            specs = attempt(functools.partial(_specs_of, implementation, kind))
            if isinstance(specs, Failure):
                failures.append(Problem(owner, hook, f"{hook} raised {specs}", specs.traceback()))
            else:
                contributions.append(Contribution(owner, kind, specs))
    return contributions, failures


def _specs_of(implementation: pluggy.HookImpl, kind: str) -> tuple[object, ...]:
    function = cast("Callable[..., Iterable[object] | None]", implementation.function)
    if kind == "commands":
        table = CommandTable()
        function(*(table for _ in implementation.argnames))
        return tuple(table.commands)
    specs = function()
    if specs is None:
        raise PluginError("it returned None, expected a list of specs (an empty one for nothing)")
    if isinstance(specs, str | bytes) or not isinstance(specs, Iterable):
        raise PluginError(f"it returned {specs!r}, expected a list of specs")
    return tuple(specs)


def _callbacks(manager: _HookManager, owners: Mapping[str, Owner]) -> dict[str, tuple[Callback, ...]]:
    return {
        hook: tuple(
            Callback(
                owners[implementation.plugin_name],
                hook,
                cast("Callable[..., object]", implementation.function),
                tuple(implementation.argnames),
            )
            for implementation in getattr(manager.hook, hook).get_hookimpls()
        )
        for hook in CALLBACK_HOOKS
    }


def _completed(record: PluginRecord, tables: Tables, problems: Sequence[Problem]) -> PluginRecord:
    mine = tuple(problem for problem in problems if problem.owner == record.owner)
    return replace(record, counts=tables.count(record.owner), problems=(*record.problems, *mine))


def _raise_first(records: Iterable[PluginRecord]) -> None:
    for record in records:
        for problem in record.problems:
            if not problem.is_remark:
                raise PluginError(str(problem), hint="HIDET_STRICT_PLUGINS=1 turns plug-in problems into errors")


def _registry(
    tables: Tables, callbacks: Mapping[str, tuple[Callback, ...]], records: tuple[PluginRecord, ...], is_strict: bool
) -> Registry:
    return Registry(
        # The classes of these live in the compiler; `merge` only saw that they have names.
        operators=cast("Mapping[str, OperatorSpec]", MappingProxyType(tables.by_kind["operators"])),
        intrinsics=cast("Mapping[str, IntrinsicFamily]", MappingProxyType(tables.by_kind["intrinsics"])),
        routines=cast("Mapping[str, RoutineSpec]", MappingProxyType(tables.by_kind["routines"])),
        schedules=_table(tables, "schedules", ScheduleSpec),
        rewrites=_table(tables, "rewrites", RewriteSpec),
        passes=_table(tables, "passes", PassSpec),
        targets=_table(tables, "targets", TargetSpec),
        frontends=_table(tables, "frontends", FrontendSpec),
        handlers=_table(tables, "handlers", HandlerSpec),
        commands=_table(tables, "commands", CommandSpec),
        checks=_table(tables, "checks", CheckSpec),
        options=_table(tables, "options", OptionSpec),
        tuning_strategies=_table(tables, "tuning_strategies", StrategySpec),
        tuning_executors=_table(tables, "tuning_executors", ExecutorSpec),
        attributes=_table(tables, "attributes", AttributeSpec),
        target_aliases=MappingProxyType(tables.target_aliases),
        owners=MappingProxyType(tables.owners),
        replaced=MappingProxyType(tables.replaced),
        callbacks=MappingProxyType(dict(callbacks)),
        plugins=records,
        is_strict=is_strict,
    )


def _table(tables: Tables, kind: str, spec_class: type[Spec]) -> Mapping[str, Spec]:
    entries = tables.by_kind[kind]
    return MappingProxyType({name: spec for name, spec in entries.items() if isinstance(spec, spec_class)})
