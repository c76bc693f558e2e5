"""The result of loading plug-ins: every spec by name, with its owner, and errors that help when a name is missing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from hidet.errors import HidetError, ImportFailed, OptionError, PluginError, PluginWarning, UnsupportedOp, suggestion
from hidet.plugins.isolation import Failure, Owner, attempt
from hidet.plugins.pass_order import order_passes
from hidet.plugins.specs import (
    ANY,
    FAMILY,
    AttributeSpec,
    CheckSpec,
    CommandSpec,
    ExecutorSpec,
    FrontendSpec,
    HandlerSpec,
    Level,
    OptionSpec,
    PassSpec,
    RewriteSpec,
    ScheduleSpec,
    StrategySpec,
    TargetedSpec,
    TargetKind,
    TargetSpec,
)
from hidet.plugins.wheels import kind_hint, model_hint, target_hint, wheels_of_modules

if TYPE_CHECKING:
    from hidet.budget import Budget
    from hidet.compiler.lowered import LoweredGraph
    from hidet.compute.routine import RoutineSpec
    from hidet.context import CompileContext
    from hidet.graph.graph import Graph
    from hidet.graph.operator import OperatorSpec
    from hidet.ir.intrinsic import Intrinsic, IntrinsicFamily
    from hidet.runtime.compiled import CompiledGraph
    from hidet.runtime.signature import Signature
    from hidet.schedule.rule import Choice
    from hidet.schedule.task import Task

Spec = TypeVar("Spec")

_TELL_FACTS = ("hidet_choose_schedule", "hidet_pass_done", "hidet_kernel_built")
"""Hooks whose plug-ins have to say what they depend on, for graphs to be kept as a whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a plug-in. Warned about once, unless it is only a remark for `hidet plugins`.

    stage: where it went wrong: import, api, hooks, register, version, or the name of a hook.
    """

    owner: Owner
    stage: str
    message: str
    traceback: str | None = None
    is_remark: bool = False

    def __str__(self) -> str:
        return f"{self.owner}: {self.message}"


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plug-in as `hidet plugins` shows it.

    api: its HIDET_API; None when it could not be read.
    hooks: names of the hooks it implements.
    counts: specs it contributed, by kind ("schedules": 12), without the refused ones.
    """

    owner: Owner
    module: str
    api: int | None
    status: Literal["active", "disabled"]
    hooks: tuple[str, ...] = ()
    counts: Mapping[str, int] | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Callback:
    """An implementation of a hook that is called while compiling; it gets only the arguments it names."""

    owner: Owner
    hook: str
    function: Callable[..., object]
    arguments: tuple[str, ...]

    @property
    def is_foreign(self) -> bool:
        """Whether it is of somebody else than hidet's own wheels."""
        return not self.function.__module__.startswith("hidet.")


def current_name(replaced: Mapping[tuple[str, str], str], kind: str, name: str) -> str:
    """The name of the spec that stands in the place of the one once called `name`, through every replacement."""
    while (kind, name) in replaced:
        name = replaced[kind, name]
    return name


def _is_choice_of(choice: object, candidate: object) -> bool:
    """Whether a choice is a candidate, or one with other parameters: the rule's match is the same object."""
    if type(choice) is not type(candidate):
        return False
    match: object = getattr(candidate, "match", None)
    return choice is candidate or (match is not None and getattr(choice, "match", None) is match)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Name -> spec for everything that the active plug-ins offer. Immutable; made by hidet.plugins.host.

    All mappings keep the order of registration. owners: (kind, name) -> plug-in, with kind a field name from here.
    replaced: (kind, name) -> the name of what took its place; where passes are named, either name will do.
    is_strict: whether a failing callback raises (HIDET_STRICT_PLUGINS=1) instead of warning. Answers of `schedules_for`
    and `passes_for`, which are asked for every node and every module, are remembered.
    """

    operators: Mapping[str, OperatorSpec]
    intrinsics: Mapping[str, IntrinsicFamily]
    routines: Mapping[str, RoutineSpec]
    schedules: Mapping[str, ScheduleSpec]
    rewrites: Mapping[str, RewriteSpec]
    passes: Mapping[str, PassSpec]
    targets: Mapping[str, TargetSpec]
    frontends: Mapping[str, FrontendSpec]
    handlers: Mapping[str, HandlerSpec]
    commands: Mapping[str, CommandSpec]
    checks: Mapping[str, CheckSpec]
    options: Mapping[str, OptionSpec]
    tuning_strategies: Mapping[str, StrategySpec]
    tuning_executors: Mapping[str, ExecutorSpec]
    attributes: Mapping[str, AttributeSpec]
    target_aliases: Mapping[str, str]
    owners: Mapping[tuple[str, str], Owner]
    replaced: Mapping[tuple[str, str], str]
    callbacks: Mapping[str, tuple[Callback, ...]]
    plugins: tuple[PluginRecord, ...]
    is_strict: bool
    _ranked: dict[tuple[str, str], tuple[ScheduleSpec, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _ordered: dict[tuple[str, str], tuple[PassSpec, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def operator(self, name: str) -> OperatorSpec:
        """The operator called `name`. Raises UnsupportedOp."""
        return self._find(self.operators, "operator", name, UnsupportedOp)

    def intrinsic_rows(self) -> Mapping[str, Intrinsic]:
        """The intrinsics of all families by name, for reading programs as text. PluginError for a table that cannot be
        loaded, and for a name that two families have."""
        rows: dict[str, Intrinsic] = {}
        for family in self.intrinsics.values():
            for name, row in family.resolve().items():
                other = rows.setdefault(name, row)
                if other is not row:
                    raise PluginError(f"intrinsic {name!r} is of two families: {other.family.name}, {family.name}")
        return rows

    def target(self, name: str) -> TargetSpec:
        """The target called `name` or one of its aliases. Raises OptionError."""
        resolved = self.target_aliases.get(name, name)
        if resolved in self.targets:
            return self.targets[resolved]
        hint = target_hint(name, [*self.targets, *self.target_aliases])
        raise OptionError(f"target {name!r} is unknown", hint=self._with_disabled(hint))

    @property
    def device_types(self) -> tuple[str, ...]:
        """The types of devices that targets serve, as frameworks spell them."""
        return tuple(dict.fromkeys(kind for spec in self.targets.values() for kind in spec.devices))

    def target_of_device(self, device: str) -> str:
        """The target for tensors on a device, as users name it: for "cuda:1" that is "cuda:1" where the target called
        "cuda" serves that type of devices. Raises OptionError, with the types that are served, or a wheel."""
        kind, separator, index = device.partition(":")
        for spec in self.targets.values():
            if kind in spec.devices:
                return f"{spec.name}{separator}{index}"
        hint = self._with_disabled(target_hint(kind, self.device_types))
        raise OptionError(f"no target is for devices of type {kind!r}", hint=hint)

    def target_of_kind(self, kind: TargetKind) -> str:
        """The first target of a kind ("gpu"). Raises OptionError."""
        for spec in self.targets.values():
            if spec.kind == kind:
                return spec.name
        hint = self._with_disabled(kind_hint(kind))
        raise OptionError(f"no target of kind {kind!r} is installed", hint=hint)

    def option(self, name: str, others: Iterable[str] = ()) -> OptionSpec:
        """The option called `name`, namespace included.

        others: names of options that are no plug-in's, which a user may have meant. Raises OptionError.
        """
        return self._find(self.options, "option", name, OptionError, others)

    def command(self, name: str) -> CommandSpec:
        """The sub-command called `name`. Raises PluginError."""
        return self._find(self.commands, "command", name, PluginError)

    def tuning_strategy(self, name: str) -> StrategySpec:
        """The tuning strategy called `name`. Raises OptionError."""
        return self._find(self.tuning_strategies, "tuning strategy", name, OptionError)

    def tuning_executor(self, name: str) -> ExecutorSpec:
        """The tuning executor called `name`. Raises OptionError."""
        return self._find(self.tuning_executors, "tuning executor", name, OptionError)

    def schedules_for(self, op: str, target: str) -> tuple[ScheduleSpec, ...]:
        """The rules to ask for a task anchored at `op`, best first; empty when none is registered."""
        known = self._ranked.get((op, target))
        if known is None:
            operator = self.operators.get(op)
            family = None if operator is None or operator.family is None else FAMILY + operator.family
            named = {op, family, ANY}
            matching = [
                spec
                for spec in self.schedules.values()
                if not named.isdisjoint(spec.ops) and self._serves(spec, target)
            ]
            known = self._ranked[op, target] = tuple(sorted(matching, key=lambda spec: -spec.priority))
        return known

    def passes_for(self, level: Level, target: str) -> tuple[PassSpec, ...]:
        """The passes of a level in the order they run for `target`."""
        known = self._ordered.get((level, target))
        if known is None:
            applying = [spec for spec in self.passes.values() if spec.level == level and self._serves(spec, target)]
            replaced = {old: current_name(self.replaced, kind, old) for kind, old in self.replaced if kind == "passes"}
            known = self._ordered[level, target] = order_passes(applying, replaced)
        return known

    def rewrites_for(self, stage: str, target: str) -> tuple[RewriteSpec, ...]:
        """The rewrite rules that follow the graph pass `stage`, or what it replaces, in the order of registration."""
        return tuple(
            spec
            for spec in self.rewrites.values()
            if current_name(self.replaced, "passes", spec.stage) == stage and self._serves(spec, target)
        )

    def handlers_for(self, frontend: str) -> Mapping[str, tuple[HandlerSpec, ...]]:
        """What plug-ins offer for a front-end: by foreign operator, those for its newest version first."""
        found: dict[str, list[HandlerSpec]] = {}
        for spec in self.handlers.values():
            if spec.frontend == frontend:
                found.setdefault(spec.operator, []).append(spec)
        return {name: tuple(sorted(specs, key=lambda spec: -spec.since_version)) for name, specs in found.items()}

    def _serves(self, spec: TargetedSpec, target: str) -> bool:
        """Whether a spec is for a target, which need not be registered."""
        is_for_all = not spec.targets and not spec.kinds
        known = self.targets.get(target)
        return is_for_all or spec.serves(target, None if known is None else known.kind)

    def frontend_for(self, model: object) -> FrontendSpec:
        """The first front-end that accepts `model`. Raises ImportFailed naming its type and the known front-ends."""
        for spec in self.frontends.values():
            accepted = attempt(partial(spec.accepts, model))
            if isinstance(accepted, Failure):
                self.complain(self.owners["frontends", spec.name], f"front-end {spec.name!r}: accepts", accepted)
            elif accepted:
                return spec
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        given = (
            f"the path {os.fspath(model)!r}" if isinstance(model, str | os.PathLike) else f"an object of type {kind}"
        )
        known = "; ".join(f"{name!r} takes {spec.doc}" for name, spec in self.frontends.items()) or "none"
        hint = self._with_disabled(model_hint(model))
        raise ImportFailed(f"no front-end accepts {given}; known front-ends: {known}", hint=hint)

    def choose_schedule(
        self, task: Task, candidates: Sequence[Choice[Any, Any]], ctx: CompileContext
    ) -> Choice[Any, Any] | None:
        """The first choice that a plug-in makes for a task; None when all leave it to the order of priority.

        PluginError, which names the plug-in, for a choice that is none of the candidates, with whatever parameters.
        """
        arguments = {"task": task, "candidates": candidates, "target": ctx.target, "ctx": ctx}
        for callback in self.callbacks["hidet_choose_schedule"]:
            choice = self._call(callback, arguments)
            if choice is None:
                continue
            if not any(_is_choice_of(choice, candidate) for candidate in candidates):
                raise PluginError(
                    f"{callback.owner}: {callback.hook} chose {choice!r}, which is none of the {len(candidates)} "
                    "candidates",
                    hint="return one of `candidates`, replace(candidate, params=...), or None to leave the choice to "
                    "others",
                )
            return cast("Choice[Any, Any]", choice)
        return None

    def tune_graph(self, graph: Graph, ctx: CompileContext, signature: Signature | None) -> CompiledGraph | None:
        """The graph as a plug-in has compiled it after measuring schedules; None where none does.

        The HidetErrors of the plug-in, which the user's options or model are the reason of. OptionError where no
        plug-in tunes although a budget was named, and a PluginWarning where a mode or search_space means it.
        """
        callbacks, budget = self.callbacks["hidet_tune_graph"], cast("Budget", ctx.options.tune)
        if not callbacks:
            hint = f"pip install {wheels_of_modules()['tuning']}"
            if budget.is_implied:
                asked = f"mode {ctx.options.mode!r}" if ctx.options.search_space is None else "option search_space"
                message = f"{asked} measures no schedules: no plug-in that does is active"
                warnings.warn(PluginWarning(message, hint=hint), stacklevel=2)
                return None
            raise OptionError("tuning is asked for, and no plug-in that measures schedules is active", hint=hint)
        arguments = {"graph": graph, "ctx": ctx, "signature": signature}
        for callback in callbacks:
            wanted = {name: arguments[name] for name in callback.arguments}
            compiled = attempt(partial(callback.function, **wanted))
            if isinstance(compiled, Failure):
                if isinstance(compiled.error, HidetError):
                    raise compiled.error
                self.complain(callback.owner, callback.hook, compiled)
            elif compiled is not None:
                return cast("CompiledGraph", compiled)
        return None

    def graph_facts(self, ctx: CompileContext) -> str | None:
        """What plug-ins say that compilations depend on besides graph, options and versions. None where one cannot tell
        it, or one that has to says nothing: the target's, and those that choose schedules or watch steps."""
        callbacks = self.callbacks["hidet_graph_facts"]
        asked = {callback.owner for hook in _TELL_FACTS for callback in self.callbacks[hook]}
        asked |= {owner for owner in [self.owners.get(("targets", ctx.target.name))] if owner is not None}
        if not asked <= {callback.owner for callback in callbacks}:
            return None
        told: list[str] = []
        for callback in callbacks:
            facts = self._call(callback, {"ctx": ctx})
            if not isinstance(facts, str):
                return None
            told.append(f"{callback.owner.plugin}: {facts}")
        return "; ".join(told)

    def pass_done(self, name: str, level: Level, before: object, after: object, seconds: float) -> None:
        """Tell the observers that a pass ran."""
        arguments = {"name": name, "level": level, "before": before, "after": after, "seconds": seconds}
        for callback in self.callbacks["hidet_pass_done"]:
            self._call(callback, arguments)

    def kernel_built(self, name: str, target: str, program: object | None, binary: bytes, cached: bool) -> None:
        """Tell the observers that a module was compiled, or found in the cache."""
        arguments = {"name": name, "target": target, "program": program, "binary": binary, "cached": cached}
        for callback in self.callbacks["hidet_kernel_built"]:
            self._call(callback, arguments)

    def graph_compiled(
        self, compiled: CompiledGraph, graph: Callable[[], Graph], lowered: LoweredGraph, ctx: CompileContext
    ) -> None:
        """Tell the observers that a graph was compiled. graph: gives it; is called where an observer wants it."""
        arguments: dict[str, object] = {"compiled": compiled, "lowered": lowered, "ctx": ctx}
        for callback in self.callbacks["hidet_graph_compiled"]:
            asked = {"graph": graph()} if "graph" in callback.arguments else {}
            self._call(callback, arguments | asked)

    def _call(self, callback: Callback, arguments: Mapping[str, object]) -> object | None:
        wanted = {name: arguments[name] for name in callback.arguments}
        result = attempt(partial(callback.function, **wanted))
        if isinstance(result, Failure):
            self.complain(callback.owner, callback.hook, result)
            return None
        return result

    def complain(self, owner: Owner, what: str, failure: Failure) -> None:
        """Warn that code of a plug-in has failed; PluginError instead in strict mode. what: which code, in a word."""
        message = f"{owner}: {what} raised {failure}"
        if self.is_strict:
            raise PluginError(message) from failure.error
        warnings.warn(PluginWarning(message), stacklevel=4)

    def _find(
        self,
        table: Mapping[str, Spec],
        kind: str,
        name: str,
        error: type[HidetError],
        others: Iterable[str] = (),
    ) -> Spec:
        found = table.get(name)
        if found is not None:
            return found
        raise error(f"{kind} {name!r} is unknown", hint=self._with_disabled(suggestion(name, [*table, *others])))

    def _with_disabled(self, advice: str | None) -> str | None:
        """Advice, and the disabled plug-ins with their reasons: one of them may have provided what is missing."""
        reasons = [str(record.problems[0]) for record in self.plugins if record.status == "disabled"]
        told = [] if advice is None else [advice]
        if reasons:
            told.append("it may come from a disabled plug-in: " + "; ".join(reasons))
        return "; ".join(told) or None
