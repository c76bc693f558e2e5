"""What plug-ins return from hooks: small frozen descriptions, checked when they are made.

A spec names its implementation as `load="package.module:attribute"` and `resolve()` imports it, so that registering two
hundred schedules imports none of them. `replaces="name"` takes the place of another plug-in's spec of that name;
without it, the plug-in that registered a name first keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hidet.errors import OptionError, PluginError
from hidet.loading import load_object

PLUGIN_API = 1
"""The shape of hooks and specs. A plug-in states the number it was written for as `HIDET_API`."""

ANY = "*"
"""In `ops` or `targets` of a schedule: every one."""

FAMILY = "family:"
"""In `ops` of a schedule, before the name of a family (`OperatorSpec.family`): every operator of it."""

OWN_COMMANDS = ("cache", "doctor", "plugins")
"""Sub-commands of `hidet` that work whatever plug-ins do; none can be replaced."""

TASKS_WITHOUT_OPERATOR = ("elementwise", "script")
"""In `ops` of a schedule: tasks of element-wise operators without an anchor, and calls of scripts."""

PRIORITIES_OF_HIDET = range(100)
"""Priorities of rules of hidet's own wheels."""

PRIORITIES_OF_OTHERS = range(100, 1000)
"""Priorities of rules of others that are asked before those of hidet's wheels."""

PRIORITIES_AFTER_HIDET = range(-999, 0)
"""Priorities of rules of others that get what no rule of hidet's wheels takes, before the fallback nest does."""

FALLBACK_PRIORITY = -1000
"""The fallback nest's alone."""

CHECKED_PRIORITY = 1000
"""Of the rule that `hidet.testing.check_rule` checks."""

_OPTION_TYPES = (bool, int, float, str)

Level = Literal["graph", "program"]

TargetKind = Literal["cpu", "gpu"]
TARGET_KINDS: tuple[TargetKind, ...] = ("cpu", "gpu")
"""Kinds of targets: "cpu" runs kernels on the host, in its memory; "gpu" runs them by blocks of threads."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_NAME_OR_FAMILY = re.compile(f"({FAMILY})?{_NAME.pattern}")
_LOAD = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def _refuse(spec: object, field_name: str, value: object, expected: str) -> PluginError:
    name = getattr(spec, "name", None)
    return PluginError(f"{type(spec).__name__} {name!r}: {field_name} is {value!r}, expected {expected}")


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    """False for anything but text: plug-ins need not be type-checked."""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_version(value: object) -> bool:
    return isinstance(value, int) and value >= 1


def _check_names(
    spec: object,
    field_name: str,
    names: object,
    *,
    allow_any: bool,
    allow_empty: bool,
    pattern: re.Pattern[str] = _NAME,
    expected: str = "a tuple of names",
) -> None:
    if allow_any:
        expected += f" or ({ANY!r},)"
    if not isinstance(names, tuple) or (not names and not allow_empty):
        raise _refuse(spec, field_name, names, expected)
    for name in names:
        if not _matches(pattern, name) and not (allow_any and name == ANY):
            raise _refuse(spec, field_name, names, expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSpec:
    """What every spec has: a name, one line of documentation, and the name it replaces, if any."""

    name: str
    doc: str = ""
    replaces: str | None = None

    def __post_init__(self) -> None:
        if not _matches(_NAME, self.name):
            raise _refuse(self, "name", self.name, "letters, digits, '_', '.' and '-', starting with a letter")
        if self.replaces is not None and not _matches(_NAME, self.replaces):
            raise _refuse(self, "replaces", self.replaces, "the name of another spec, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec(NamedSpec):
    """A spec whose implementation is imported at first use."""

    load: str

    def __post_init__(self) -> None:
        # Explicit base: zero-argument super() is lost when slots=True makes the class anew.
        NamedSpec.__post_init__(self)
        if not _matches(_LOAD, self.load):
            raise _refuse(self, "load", self.load, "'package.module:attribute'")

    @property
    def is_foreign(self) -> bool:
        """Whether the implementation is of somebody else than hidet's own wheels: what it makes is always verified."""
        return not self.load.startswith("hidet.")

    def resolve(self) -> object:
        """Import and return what `load` names. Raises PluginError, with the cause chained, whatever goes wrong."""
        return _load(self, self.load, lambda found: found)


def _load(spec: NamedSpec, place: str, use: Callable[[Any], object]) -> object:
    """`use` of what `place` ("package.module:attribute") names; PluginError whatever goes wrong."""
    try:
        return use(load_object(place))
    except Exception as error:
        raise PluginError(
            f"{type(spec).__name__} {spec.name!r}: cannot load {place!r}: {type(error).__name__}: {error}",
            hint="`hidet plugins -v` names the plug-in that provides it",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetedSpec(LoadedSpec):
    """What is for some targets.

    targets: names of targets. kinds: "cpu", "gpu": every target that states this kind. A target of either is served.
    """

    targets: tuple[str, ...] = ()
    kinds: tuple[TargetKind, ...] = ()

    def __post_init__(self) -> None:
        LoadedSpec.__post_init__(self)
        _check_names(self, "targets", self.targets, allow_any=isinstance(self, ScheduleSpec), allow_empty=True)
        kinds: object = self.kinds
        if not isinstance(kinds, tuple) or any(kind not in TARGET_KINDS for kind in kinds):
            raise _refuse(self, "kinds", self.kinds, f"a tuple of {' and '.join(map(repr, TARGET_KINDS))}")

    def serves(self, target: str, kind: TargetKind | None) -> bool:
        """Whether a target, by its name and kind, is among those named."""
        return target in self.targets or ANY in self.targets or (kind is not None and kind in self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec(TargetedSpec):
    """A way to turn a task into a program. `load` names an object with the methods of hidet.schedule.ScheduleRule.

    ops: operators whose tasks it may match: names, or families (`OperatorSpec.family`) as "family:reduction", with the
        operators that other plug-ins have put into them; `("*",)` for every one.
    targets, kinds: targets by name, `("*",)` for every one, and kinds of targets; one of the two is needed.
    priority: rules are asked in falling priority, those of equal priority in order of registration. Rules of others
        than hidet's wheels have 100 to 999, which is asked before hidet's own, or -999 to -1, which gets what these
        leave; 100 where none is given. hidet's own have 0 to 99, and 0 where none is given.
    prologue: what it inlines into its reads: "none", "load" (element-wise producers, which read their own inputs where
        the task reads the result), "gather" (producers with any index formula: flips, concatenations, embeddings) or
        "chosen" (the same of the operands that its method `computed_operands` names, and no bare anchors: a rule for
        fused tasks alone, `hidet.schedule.rule.ChoosingRule`).
    epilogue: what it applies before it stores: "none", or "element-wise": a chain of operators that read the anchor's
        only result where they write theirs, and other tensors by any index formula.
    horizontal: of a rule for "elementwise": whether results that have nothing to do with each other are worth a task
        together, because it computes those of the same operators by one launch (horizontal fusion).

    A task is given what the abilities of the first rule that matches its bare anchor allow; where that rule does not
    match the fused task, it is cut to what a rule does. Rules that choose operands come before: a task that they do not
    match after all is fused as if they were not there.
    """

    ops: tuple[str, ...]
    priority: int = field(default=None)  # type: ignore[assignment]  # __post_init__ gives it
    prologue: Literal["none", "load", "gather", "chosen"] = "none"
    epilogue: Literal["none", "element-wise"] = "none"
    horizontal: bool = False

    def __post_init__(self) -> None:
        TargetedSpec.__post_init__(self)
        _check_names(
            self,
            "ops",
            self.ops,
            allow_any=True,
            allow_empty=False,
            pattern=_NAME_OR_FAMILY,
            expected=f"a tuple of names, families as '{FAMILY}reduction' among them,",
        )
        if not self.targets and not self.kinds:
            raise _refuse(self, "targets", self.targets, f"names of targets or ({ANY!r},); or kinds=('cpu',)")
        self._check_priority()
        if self.prologue not in ("none", "load", "gather", "chosen"):
            raise _refuse(self, "prologue", self.prologue, "'none', 'load', 'gather' or 'chosen'")
        if self.epilogue not in ("none", "element-wise"):
            raise _refuse(self, "epilogue", self.epilogue, "'none' or 'element-wise'")

    def _check_priority(self) -> None:
        given: object = self.priority
        if self.is_foreign:
            ranges = (PRIORITIES_OF_OTHERS, PRIORITIES_AFTER_HIDET)
            expected = "100 to 999, asked before the rules of hidet's own wheels, or -999 to -1, asked after them"
        else:
            ranges = (PRIORITIES_OF_HIDET, range(FALLBACK_PRIORITY, FALLBACK_PRIORITY + 1))
            expected = "0 to 99, as rules of hidet's own wheels have"
        if given is None:
            object.__setattr__(self, "priority", ranges[0][0])
        elif not isinstance(given, int) or isinstance(given, bool):
            raise _refuse(self, "priority", given, "an integer")
        elif given != CHECKED_PRIORITY and not any(given in each for each in ranges):
            raise _refuse(self, "priority", given, expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSpec(TargetedSpec):
    """A transformation of graphs or programs. `load` names the pass, a frozen dataclass with `run`.

    targets, kinds: the targets it runs for; all where both are empty.
    after, before: passes of the same level that must have run, or must not yet have run. Names that nobody provides
    order nothing (`hidet plugins` remarks on them).
    """

    level: Level
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        TargetedSpec.__post_init__(self)
        if self.level not in ("graph", "program"):
            raise _refuse(self, "level", self.level, "'graph' or 'program'")
        for field_name in ("after", "before"):
            _check_names(self, field_name, getattr(self, field_name), allow_any=False, allow_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSpec(TargetedSpec):
    """Rewrite rules of graphs, applied after the graph pass named `stage` until none fits.

    `load` names a mapping from operator names, or families as "family:pooling", to rules. A rule
    (`hidet.passes.local.Rule`) looks at one node of such an operator and at what its inputs were made of, and returns
    the value that stands for the node's result, or None.
    targets, kinds: the targets they apply for; all where both are empty.
    """

    stage: str

    def __post_init__(self) -> None:
        TargetedSpec.__post_init__(self)
        _check_names(self, "stage", (self.stage,), allow_any=False, allow_empty=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec(LoadedSpec):
    """Something code can be generated for. `load` names an object that implements hidet.target.Target.

    kind: "cpu" or "gpu": what schedules and passes for `kinds` serve it. None is for targets that only what names them
        serves. A "gpu" implements hidet.target.GpuTarget.
    aliases: further names users may write, e.g. `llvm` for `cpu`.
    devices: types of devices whose tensors its code takes, as frameworks spell them: "cuda" for tensors on "cuda:1".
        The host's is "cpu". Where several targets serve a type, the one registered first is asked, and others where
        users name them; `device_types` of the registry has them all.
    machines: names a function without arguments that gives a line of text for each device of this machine that the
        target may be asked for, its name first; None where there is nothing to list.
    """

    kind: TargetKind | None = None
    aliases: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    machines: str | None = None

    def __post_init__(self) -> None:
        LoadedSpec.__post_init__(self)
        if self.kind is not None and self.kind not in TARGET_KINDS:
            raise _refuse(self, "kind", self.kind, f"{', '.join(map(repr, TARGET_KINDS))} or None")
        _check_names(self, "aliases", self.aliases, allow_any=False, allow_empty=True)
        _check_names(self, "devices", self.devices, allow_any=False, allow_empty=True)
        if self.machines is not None and not _matches(_LOAD, self.machines):
            raise _refuse(self, "machines", self.machines, "package.module:attribute")

    def list_machines(self) -> list[str]:
        """The devices of this machine, a line each. PluginError when `machines` cannot be loaded."""
        if self.machines is None:
            return []
        listed: Any = _load(self, self.machines, lambda found: found)
        return list(listed())


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendSpec(LoadedSpec):
    """Turns a foreign model into a graph. `load` names the import function, of a model, its example inputs and the
    context, which gives a `Graph`, or a `hidet.runtime.signature.ModelGraph` where models take more than tensors.

    accepts: says whether an object is this front-end's; must not import the foreign framework (compare
    `type(x).__module__` and look into `sys.modules`).
    tensor_types: full names of the framework's tensor classes, such as "torch.Tensor".
    adapter: names the class through which compiled graphs are called with such tensors and return them
    (`hidet.runtime.adapter.CheckedAdapter`); None where the framework has no tensors of its own.
    device: names a function of a model and its example inputs that gives the device they are on ("cuda:1"), asked where
    a user leaves the target open; None where models are on no device.
    dynamic_shapes: whether the import function also takes `dynamic_shapes=`, which says as `torch.export.export` has it
    what sizes of the example inputs may differ between calls.
    settings: names a function without arguments that gives options (`hidet.context.Options`) by name, as the framework
    is set at this moment; they count where a user leaves an option None. None where the framework sets nothing.
    fixes_inputs: whether the import function also takes `shapes` and `values` by keyword: shapes, and elements, of
    inputs by name that the user fixes. It raises `ShapeNeeded` and `ValueNeeded` for those it cannot do without.
    compiled: names a function of what the framework has compiled through hidet, such as what torch.compile returns, and
    example inputs or None, which gives its `hidet.compiler.graphs.CompiledPart`s, and None for any other model. None
    where the framework compiles nothing through hidet.
    peers: other systems that run such models, for `hidet bench`: by name a function of the model, its arrays by name
    and the number of threads, which gives a function without arguments that runs it once and returns its outputs.
    """

    accepts: Callable[[object], bool]
    tensor_types: tuple[str, ...] = ()
    adapter: str | None = None
    device: str | None = None
    settings: str | None = None
    dynamic_shapes: bool = False
    fixes_inputs: bool = False
    compiled: str | None = None
    peers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        LoadedSpec.__post_init__(self)
        if not callable(self.accepts):
            raise _refuse(self, "accepts", self.accepts, "a function from an object to bool")
        _check_names(self, "tensor_types", self.tensor_types, allow_any=False, allow_empty=True)
        for name in ("adapter", "device", "settings", "compiled"):
            named = getattr(self, name)
            if named is not None and not _matches(_LOAD, named):
                raise _refuse(self, name, named, "'package.module:attribute', or None")
        for name, named in self.peers.items():
            if not _matches(_LOAD, named):
                raise _refuse(self, f"peers[{name!r}]", named, "'package.module:attribute'")

    def device_of(self, model: object, example_inputs: object) -> str | None:
        """Where a model is; None where it is on no device. Raises PluginError when `device` cannot be loaded."""
        if self.device is None:
            return None
        function: Any = _load(self, self.device, lambda found: found)
        chosen: str = function(model, example_inputs)
        return chosen

    def options_followed(self) -> Mapping[str, Any]:
        """Options by name, as the framework is set now. Raises PluginError when `settings` cannot be loaded."""
        if self.settings is None:
            return {}
        function: Any = _load(self, self.settings, lambda found: found)
        options: Mapping[str, Any] = function()
        return options

    def parts_of(self, model: object, example_inputs: object) -> Any:
        """The parts of a model that was compiled through hidet; None for any other. Raises PluginError when `compiled`
        cannot be loaded."""
        if self.compiled is None:
            return None
        function: Any = _load(self, self.compiled, lambda found: found)
        return function(model, example_inputs)

    def resolve_peer(self, name: str) -> Any:
        """The function that `peers` names. Raises PluginError when it cannot be loaded."""
        return _load(self, self.peers[name], lambda found: found)

    def resolve_adapter(self) -> Any:
        """A new adapter. Raises PluginError when what `adapter` names cannot be loaded or made."""
        assert self.adapter is not None
        return _load(self, self.adapter, lambda found: found())


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec(LoadedSpec):
    """What an operator of foreign models is written as. `load` names the handler: a function of the front-end's emitter
    (`hidet.frontend.Emitter`) and the operator's arguments, as the front-end says.

    frontend: "torch", "onnx".
    operator: as the front-end names it: "acme.swish.default" (torch: namespace, operator, overload), "acme.ai.Swish"
        (ONNX: the domain before the operator, nothing before one of ONNX's own).
    since_version: the first version of the operator that the handler is right for, where versions exist (ONNX).
    name: made of these, "torch.acme.swish.default", "onnx.acme.ai.Swish", "onnx.acme.ai.Swish-2" since version 2.
    replaces: None, or this very name, to take the place of another plug-in's handler, or of the front-end's own.
    """

    name: str = field(init=False)
    frontend: str
    operator: str
    since_version: int = 1

    def __post_init__(self) -> None:
        for field_name in ("frontend", "operator"):
            if not _matches(_NAME, getattr(self, field_name)):
                shown = "a name such as 'torch'" if field_name == "frontend" else "a name such as 'acme.swish.default'"
                raise _refuse(self, field_name, getattr(self, field_name), shown)
        if not _is_version(self.since_version):
            raise _refuse(self, "since_version", self.since_version, "an integer of at least 1")
        version = f"-{self.since_version}" if self.since_version > 1 else ""
        object.__setattr__(self, "name", f"{self.frontend}.{self.operator}{version}")
        LoadedSpec.__post_init__(self)
        if self.replaces not in (None, self.name):
            raise _refuse(self, "replaces", self.replaces, f"{self.name!r} or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(LoadedSpec):
    """A sub-command of `hidet`. `load` names a click.Command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec(LoadedSpec):
    """What `hidet doctor` looks at. `load` names a function without arguments that gives `hidet.doctor.Check`s, in a
    second at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec(NamedSpec):
    """An option of a plug-in, written `name` with a namespace: `cpu.threads`.

    type: bool, int, float or str; an int is accepted where a float is asked for.
    default: a value of that type; None means "not set" and makes None a valid value.
    choices: the only valid values; empty when any value of the type is valid.
    affects_cache: whether generated code depends on it, so that it belongs to the cache key.
    targets: names of the targets whose code that is; all where it is empty.
    """

    type: type
    default: bool | int | float | str | None
    affects_cache: bool
    choices: tuple[bool | int | float | str, ...] = ()
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        NamedSpec.__post_init__(self)
        if "." not in self.name:
            raise _refuse(self, "name", self.name, "a namespace and a name, as in 'cpu.threads'")
        _check_names(self, "targets", self.targets, allow_any=False, allow_empty=True)
        if self.type not in _OPTION_TYPES:
            raise _refuse(self, "type", self.type, "bool, int, float or str")
        if not self.doc:
            raise _refuse(self, "doc", self.doc, "one line that says what the option does")
        try:
            self.check(self.default)
        except OptionError as error:
            raise PluginError(f"OptionSpec {self.name!r}: the default is not valid: {error.message}") from error

    def check(self, value: object) -> bool | int | float | str | None:
        """`value` as the option's type. Raises OptionError naming the option, the value and what it takes."""
        if value is None and self.default is None:
            return None
        if self.type is float and type(value) is int:
            value = float(value)
        if type(value) is not self.type or not isinstance(value, _OPTION_TYPES):
            raise OptionError(f"option {self.name!r} takes {self.type.__name__}, got {value!r}", hint=self.doc)
        if self.choices and value not in self.choices:
            known = ", ".join(repr(choice) for choice in self.choices)
            raise OptionError(f"option {self.name!r} takes one of {known}, got {value!r}", hint=self.doc)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySpec(LoadedSpec):
    """A way to look for the fastest point of a schedule's space. `load` names a function without arguments, or a class,
    that gives a `hidet.tuning.Strategy`. Users name it: `hidet.tune(strategy="name")`, `--strategy name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSpec(LoadedSpec):
    """Where programs that are tuned are compiled and measured. `load` names a class or a function that makes a
    `hidet.tuning.Executor` of its `Settings` and the seconds that a trial may take. Users name it:
    `hidet.tune(executor="name")`, `--executor name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeSpec(LoadedSpec):
    """A name that a module or a class of hidet has for users: "hidet.graph.PassContext" is what `load` names, and
    "hidet.Tensor.layout" a property, or a function of the tensor. Own names of modules and classes come first; which of
    them ask is in `hidet.plugins.attributes`."""


@dataclass(slots=True)
class CommandTable:
    """What `hidet_commands` fills: one per call of the hook, so a raising plug-in leaves nothing half registered."""

    commands: list[CommandSpec] = field(default_factory=list)

    def add(self, name: str, *, load: str, doc: str, replaces: str | None = None) -> None:
        """Offer `hidet NAME`; `load` names the click.Command and is imported only when the command is used."""
        self.commands.append(CommandSpec(name=name, load=load, doc=doc, replaces=replaces))
