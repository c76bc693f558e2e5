"""`CompileContext`: what a compilation depends on, made once and passed explicitly. `Options`: what users choose."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from hidet import option
from hidet.budget import DEFAULT_SECONDS, Budget
from hidet.cache import open_cache
from hidet.errors import OptionError, PluginError, suggestion
from hidet.plugins.host import load_registry

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.plugins.registry import Registry
    from hidet.target import Target

Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
MODES: tuple[Mode, ...] = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """User options of one compilation.

    mode: as in torch.compile. "max-autotune" and "max-autotune-no-cudagraphs" tune schedules (hidet-tune) for
        `hidet.budget.DEFAULT_SECONDS` at most, once for a model: what was found is kept. Otherwise all modes are the
        same on the CPU, where a call is one function in any of them.
    tune: measure schedules for so long, before the model is compiled with the fastest: seconds, or text such as "60s".
        OptionError where hidet-tune is not installed. None: only where mode or search_space say so.
    search_space: how many of the parameters of a schedule are measured: 0 none, 1 those that a cost model ranks first,
        2 all. None is 1 where tuning is asked for by `tune` or mode, and 0 elsewhere; 1 and 2 ask for it as modes do.
    strict: refuse a model with operators that would run in the frontend's framework.
    freeze: parameters never change again: bake them in and release what only they needed.
    eager_random: random operators give the same numbers as eager execution, by running there.
    tf32_products, tf32_convolutions: matrix products, and convolutions, of f32 may round their factors to tf32, which
        matrix units of a GPU multiply. None follows the model's framework as it is set when the model is compiled
        (torch.backends.cuda.matmul.fp32_precision and torch.backends.cudnn.conv.fp32_precision), and is False without.
    threads: CPU threads; None follows the model's framework (torch.get_num_threads()) or the affinity mask.
    cache: use the kernel cache on disk.
    verify: check the IR after every pass. Graphs are always checked when they are compiled, and so is what schedules,
        passes and rewrites of other wheels than hidet's make.
    check_bounds: functions of a module check every index of an array; a call raises LaunchError for the first access
        outside, on a device after it has waited for its work. Pointers have no extents and are not checked. None is
        True with HIDET_DEBUG=1. For debugging scripts: graphs refuse it.
    dump: directory that receives every stage as text, in a new folder a graph; None writes nothing.
    plugin_options: options of plug-ins by their full names, "namespace.name"; users write them beside the others.
    """

    mode: Mode = "default"
    tune: Budget | str | float | None = None
    search_space: int | None = None
    strict: bool = False
    freeze: bool = False
    eager_random: bool = False
    tf32_products: bool | None = None
    tf32_convolutions: bool | None = None
    threads: int | None = None
    cache: bool = True
    verify: bool = False
    check_bounds: bool | None = None
    dump: str | os.PathLike[str] | None = None
    plugin_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise OptionError(f"mode {self.mode!r} is unknown", hint=suggestion(self.mode, MODES))
        self._check_tuning()
        threads: object = self.threads
        if threads is not None and (not isinstance(threads, int) or isinstance(threads, bool) or threads < 1):
            raise OptionError(f"option threads must be a positive integer or None, got {self.threads!r}")
        for name in ("strict", "freeze", "eager_random", "cache", "verify"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"option {name} must be True or False, got {getattr(self, name)!r}")
        for name in ("tf32_products", "tf32_convolutions", "check_bounds"):
            if not isinstance(getattr(self, name), bool | None):
                raise OptionError(f"option {name} must be True, False or None, got {getattr(self, name)!r}")
        dump: object = self.dump
        if dump is not None and not isinstance(dump, str | os.PathLike):
            raise OptionError(f"option dump must be the path of a directory or None, got {self.dump!r}")
        named: object = self.plugin_options
        if not isinstance(named, Mapping):
            raise OptionError(
                f"option plugin_options must be a mapping from name to value, got {self.plugin_options!r}"
            )

    def _check_tuning(self) -> None:
        space: object = self.search_space
        if space is not None and (isinstance(space, bool) or space not in (0, 1, 2)):
            raise OptionError(f"option search_space must be 0, 1, 2 or None, got {space!r}")
        if self.tune is not None:
            budget = Budget.of(self.tune)
            if space == 0 and not budget.is_implied:
                raise OptionError("option tune asks for measurements and search_space=0 for none", hint="leave one out")
            object.__setattr__(self, "tune", budget)

    @property
    def search_level(self) -> Literal[0, 1, 2]:
        """`search_space` as it is meant where it is None."""
        if self.search_space is not None:
            return cast("Literal[0, 1, 2]", self.search_space)
        return 1 if self.tune is not None or self.mode.startswith("max-autotune") else 0

    def with_budget(self) -> Options:
        """These options with `tune` as a budget where they ask for tuning in whatever way, None where they do not."""
        if self.search_level == 0:
            return self if self.tune is None else replace(self, tune=None)
        return self if self.tune is not None else replace(self, tune=Budget(DEFAULT_SECONDS, is_implied=True))

    def updated(self, given: Mapping[str, Any]) -> Options:
        """These options with some replaced; OptionError names an unknown one and the nearest valid name.

        Names with a dot are plug-ins' options, which `make_context` checks.
        """
        known = [f.name for f in fields(self)]
        for key in given:
            if not isinstance(key, str):
                raise OptionError(f"options are named by text, got {key!r}", hint=suggestion("", known))
        own = {name: value for name, value in given.items() if "." not in name}
        for name in own:
            if name not in known:
                raise OptionError(f"option {name!r} is unknown", hint=suggestion(name, known))
        named = {name: value for name, value in given.items() if "." in name}
        changed = replace(self, **own)
        return replace(changed, plugin_options={**changed.plugin_options, **named}) if named else changed

    def following(self, settings: Mapping[str, Any]) -> Options:
        """These options, those that are None replaced by a framework's `settings`; OptionError for unknown names."""
        return self.updated({name: value for name, value in settings.items() if getattr(self, name, None) is None})


def options_from(given: Options | Mapping[str, Any] | None) -> Options:
    """Options of a mapping as users write it; environment variables HIDET_DUMP and HIDET_VERIFY, and
    `search_space`, `dump` and options of plug-ins in `hidet.option`, give defaults."""
    if isinstance(given, Options):
        return given
    base = Options(
        dump=os.environ.get("HIDET_DUMP") or option.current().dump,
        verify=os.environ.get("HIDET_VERIFY") == "1",
        search_space=option.current().search_space,
        plugin_options=option.of_plugins(),
    )
    return base.updated(given or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileContext:
    """What one compilation depends on: the target, the plug-ins' specs, the options and the kernel cache.

    machine: the machine that the target was asked to make code for ("sm_90a", "haswell"), which need not be this one;
    None where it is. workers: `hidet.compiler.workers.CompileWorkers` that were started before there is a graph, by who
    knows that the cache has none of it; None leaves that to the compiler.
    """

    target: Target
    registry: Registry
    options: Options = field(default_factory=Options)
    cache: KernelCache
    machine: str | None = None
    workers: object = field(default=None, compare=False, repr=False)

    def option(self, name: str) -> bool | int | float | str | None:
        """The value of a plug-in's option, its default where the user gave none. OptionError for an unknown one."""
        spec = self.registry.option(name)
        value: bool | int | float | str | None = self.options.plugin_options.get(name, spec.default)
        return value


def make_context(target: str = "auto", options: Options | Mapping[str, Any] | None = None) -> CompileContext:
    """A context for a target name; "auto" is the target of the host until a graph on another device asks for more.

    "cpu:haswell" names the machine to compile for as well, "cuda:1" the device; without that, it is this one, or the
    first. OptionError for an unknown target, machine or option.
    """
    chosen = options_from(options)
    registry = load_registry()
    own = [f.name for f in fields(Options)]
    checked = {name: registry.option(name, own).check(value) for name, value in chosen.plugin_options.items()}
    chosen = replace(chosen, plugin_options=checked) if checked else chosen
    name, _, machine = (registry.target_of_device("cpu") if target == "auto" else target).partition(":")
    settings = option.current()
    machine = machine or settings.machines.get(name, "")
    spec = registry.target(name)
    make_target: Any = spec.resolve()
    made = make_target(machine) if machine else make_target()
    if made.name != spec.name:
        raise PluginError(
            f"target {spec.name!r} ({registry.owners['targets', spec.name]}) calls itself {made.name!r}",
            hint="schedules and passes are found by the name of its TargetSpec",
        )
    cache = open_cache(enabled=chosen.cache and settings.cache, directory=settings.cache_dir)
    named = machine if machine and not machine.isdigit() else None
    return CompileContext(target=made, registry=registry, options=chosen, cache=cache, machine=named)


def make_context_on(device: str, options: Options | Mapping[str, Any] | None = None) -> CompileContext:
    """A context for tensors on a device ("cpu", "cuda:1"). OptionError where no target is for its type."""
    return make_context(load_registry().target_of_device(device), options)
