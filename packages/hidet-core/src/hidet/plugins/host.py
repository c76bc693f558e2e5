"""Loads plug-ins, isolates the broken ones and builds the registry. With hookspecs.py the only user of pluggy.

Each plug-in goes through the stages import -> api -> hooks -> register; whatever fails disables that plug-in alone,
with one PluginWarning and a row in `hidet plugins`. Environment, read by `load_registry`:

    HIDET_PLUGINS         unset: every installed plug-in; else a comma-separated list of entry-point names and of module
                          names (`hidet.cpu._plugin`, needed where only PYTHONPATH is set); empty: built-ins only
    HIDET_STRICT_PLUGINS  1: a broken plug-in raises PluginError instead of being disabled
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, TypeVar, cast

import pluggy

from hidet.errors import PluginError, PluginWarning, nearest_names
from hidet.plugins import hookspecs
from hidet.plugins.discovery import CORE_DISTRIBUTION, Candidate, core_version, find_candidates
from hidet.plugins.isolation import Failure, Owner, attempt
from hidet.plugins.merge import SPEC_KINDS, Contribution, Tables, merge
from hidet.plugins.registry import Callback, PluginRecord, Problem, Registry
from hidet.plugins.requirement import unmet_requirement
from hidet.plugins.specs import (
    PLUGIN_API,
    CommandSpec,
    CommandTable,
    FrontendSpec,
    HandlerSpec,
    OptionSpec,
    PassSpec,
    RewriteSpec,
    ScheduleSpec,
    TargetSpec,
)

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec
    from hidet.ir.intrinsic import IntrinsicFamily

CALLBACK_HOOKS = ("hidet_choose_schedule", "hidet_pass_done", "hidet_kernel_built")
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


def load_registry() -> Registry:
    """The registry for this process's environment. Loaded once for each value of the two variables above."""
    return _load(os.environ.get("HIDET_PLUGINS"), os.environ.get("HIDET_STRICT_PLUGINS") == "1")


@functools.cache
def _load(selection: str | None, is_strict: bool) -> Registry:
    registry = discover(selection, is_strict)
    for record in registry.plugins:
        for problem in record.problems:
            if not problem.is_remark:
                warnings.warn(PluginWarning(f"{problem}. See: hidet plugins"), stacklevel=3)
    return registry


def discover(selection: str | None = None, is_strict: bool = False) -> Registry:
    """Load plug-ins anew, uncached and without warnings: the problems are in `registry.plugins`.

    selection: as HIDET_PLUGINS; None for every installed plug-in.
    is_strict: raise PluginError at the first problem.
    """
    manager = _HookManager("hidet")
    manager.add_hookspecs(hookspecs)
    candidates, not_found = find_candidates(selection)
    records = [_activate(manager, candidate) for candidate in candidates]
    owners = {str(candidate.owner): candidate.owner for candidate in candidates}
    contributions, failures = _collect(manager, owners)
    tables = merge(contributions)
    records = [_completed(record, tables, [*failures, *tables.problems]) for record in records]
    records += [PluginRecord(problem.owner, "", None, "disabled", problems=(problem,)) for problem in not_found]
    if is_strict:
        _raise_first(records)
    return _registry(tables, _callbacks(manager, owners), tuple(records), is_strict)


def _activate(manager: _HookManager, candidate: Candidate) -> PluginRecord:
    """Import and register one plug-in; the record says how far it came."""
    record = PluginRecord(candidate.owner, candidate.module, api=None, status="disabled")
    if ":" in candidate.module:
        return _disabled(record, "import", f"its entry point is the object {candidate.module!r}, expected a module")
    module = attempt(functools.partial(importlib.import_module, candidate.module))
    if isinstance(module, Failure):
        return _disabled(record, "import", str(module), module.traceback())
    api = getattr(module, "HIDET_API", None)
    record = replace(record, api=api if isinstance(api, int) else None)
    if api != PLUGIN_API:
        stated = "does not state HIDET_API" if api is None else f"was written for HIDET_API {api!r}"
        return _disabled(record, "api", f"it {stated}, this hidet-core has {PLUGIN_API}")
    hooks = _hook_names(manager, module)
    # Before registering: pluggy takes an unknown name as a new hook that nobody calls.
    for hook in hooks:
        if hook not in HOOK_NAMES:
            near = nearest_names(hook, HOOK_NAMES)
            advice = f"; did you mean {near[0]}?" if near else ""
            return _disabled(record, "hooks", f"{hook} is not a hook{advice}")
    name = str(candidate.owner)
    registered = attempt(lambda: manager.register(module, name=name))
    if isinstance(registered, Failure):
        if manager.has_plugin(name):
            # pluggy registers hook by hook and stops at the bad one: the ones before it have to go again.
            manager.unregister(name=name)
        return _disabled(record, "register", " ".join(str(registered.error).split()), registered.traceback())
    return replace(record, status="active", hooks=hooks, problems=_version_problems(candidate))


def _hook_names(manager: _HookManager, module: ModuleType) -> tuple[str, ...]:
    return tuple(name for name in dir(module) if manager.parse_hookimpl_opts(module, name) is not None)


def _disabled(record: PluginRecord, stage: str, message: str, traceback: str | None = None) -> PluginRecord:
    problem = Problem(record.owner, stage, f"disabled at {stage}: {message}", traceback)
    return replace(record, status="disabled", problems=(problem,))


def _version_problems(candidate: Candidate) -> tuple[Problem, ...]:
    """The installer checks requirements, but editable trees and PYTHONPATH do not pass through it."""
    version = core_version()
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
        # The classes of these two live in the compiler; `merge` only saw that they have names.
        operators=cast("Mapping[str, OperatorSpec]", MappingProxyType(tables.by_kind["operators"])),
        intrinsics=cast("Mapping[str, IntrinsicFamily]", MappingProxyType(tables.by_kind["intrinsics"])),
        schedules=_table(tables, "schedules", ScheduleSpec),
        rewrites=_table(tables, "rewrites", RewriteSpec),
        passes=_table(tables, "passes", PassSpec),
        targets=_table(tables, "targets", TargetSpec),
        frontends=_table(tables, "frontends", FrontendSpec),
        handlers=_table(tables, "handlers", HandlerSpec),
        commands=_table(tables, "commands", CommandSpec),
        options=_table(tables, "options", OptionSpec),
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
