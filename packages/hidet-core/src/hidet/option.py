"""Settings that hold for all compilations of a thread or task from here on: `hidet.option.cache_dir("./cache")`.

    with hidet.option.context():
        hidet.option.search_space(2)  # until the end of the block

Options of one compilation are passed to it; see `hidet.Options`. These are read once, when a compilation begins. Those
of hidet 0.6 that say nothing to the compiler any more are in the wheel hidet-compat, which adds them to this module.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hidet.errors import OptionError, nearest_names

if TYPE_CHECKING:
    from hidet.plugins.specs import OptionSpec


@dataclass(frozen=True, slots=True)
class Settings:
    """cache_dir: where machine code is kept, None for HIDET_CACHE_DIR or the user's cache. cache: whether it is.
    search_space: as of `hidet.Options`, where they say nothing. workers: processes that compile beside this one,
    None for HIDET_NUM_WORKERS or as many as are worth it. dump: as of `hidet.Options`, where they say nothing, nor
    HIDET_DUMP does.
    machines: what is compiled for where a target is named without a machine, by target. others: what settings and
    options of wheels were set to."""

    cache_dir: str | None = None
    cache: bool = True
    search_space: int | None = None
    workers: int | None = None
    dump: str | None = None
    machines: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, object] = field(default_factory=dict)


_SETTINGS: ContextVar[Settings] = ContextVar("hidet_settings", default=Settings())  # noqa: B039  # it is frozen


def current() -> Settings:
    """The settings here."""
    return _SETTINGS.get()


class OptionContext:
    """What is set in its block is forgotten behind it. `set_option` and `get_option` are those of the module."""

    def __init__(self) -> None:
        self._tokens: list[Token[Settings]] = []

    def __enter__(self) -> OptionContext:
        self._tokens.append(_SETTINGS.set(current()))
        return self

    def __exit__(self, *error: object) -> None:
        _SETTINGS.reset(self._tokens.pop())

    def set_option(self, name: str, value: object) -> None:
        """See `hidet.option.set_option`."""
        set_option(name, value)

    def get_option(self, name: str) -> object:
        """See `hidet.option.get_option`."""
        return get_option(name)


def context() -> OptionContext:
    """For `with`: settings of the block."""
    return OptionContext()


def current_context() -> OptionContext:
    """What `set_option` and `get_option` of the module are methods of."""
    return OptionContext()


def cache_dir(path: str | os.PathLike[str]) -> None:
    """Keep machine code in this directory, which is made where it is missing."""
    _SETTINGS.set(replace(current(), cache_dir=os.fspath(path)))


def get_cache_dir() -> str:
    """The directory that `cache_dir` named, else that of HIDET_CACHE_DIR, else "" for the user's cache."""
    return current().cache_dir or os.environ.get("HIDET_CACHE_DIR", "")


def cache_operator(enabled: bool = True) -> None:
    """Whether machine code is kept on disk."""
    _SETTINGS.set(replace(current(), cache=bool(enabled)))


def get_cache_operator() -> bool:
    """What `cache_operator` has set; True at first."""
    return current().cache


def search_space(level: int) -> None:
    """How many of the parameters of a schedule are measured in compilations from here on: 0 none, 1 those that a cost
    model ranks first, 2 all. 1 and 2 need hidet-tune, and take `hidet.budget.DEFAULT_SECONDS` a model at most."""
    if level not in (0, 1, 2):
        raise OptionError(f"search_space is 0, 1 or 2, got {level!r}")
    _SETTINGS.set(replace(current(), search_space=level))


def get_search_space() -> int:
    """What `search_space` has set; 0 at first."""
    return current().search_space or 0


def num_local_workers(num_workers: int | None = None) -> None:
    """How many processes compile beside this one; 0 is this process alone, None as many as are worth it."""
    if num_workers is not None and num_workers < 0:
        raise OptionError(f"num_local_workers is a number of processes or None, got {num_workers!r}")
    _SETTINGS.set(replace(current(), workers=num_workers))


def get_num_local_workers() -> int | None:
    """What `num_local_workers` has set; None at first."""
    return current().workers


def chosen_workers() -> int | None:
    """How many processes the user wants: what `num_local_workers` has set, else HIDET_NUM_WORKERS; None for neither.

    OptionError for a variable that is no number.
    """
    override = os.environ.get("HIDET_NUM_WORKERS")
    if current().workers is not None or not override:
        return current().workers
    if not override.isdigit():
        raise OptionError(f"HIDET_NUM_WORKERS is {override!r}, expected a number of processes", hint="0 means none")
    return int(override)


def parallel_build(enabled: bool = True) -> None:
    """Whether several processes compile where that is worth it."""
    num_local_workers(None if enabled else 0)


def get_parallel_build() -> bool:
    """What `parallel_build` has set; True at first."""
    return current().workers != 0


def dump(directory: str | os.PathLike[str] | None) -> None:
    """Write every stage of compilations as text into a directory, or nothing."""
    _SETTINGS.set(replace(current(), dump=None if directory is None else os.fspath(directory)))


def get_dump() -> str | None:
    """What `dump` has set; None at first."""
    return current().dump


def save_lower_ir(enabled: bool = True) -> None:
    """`dump` into the folder `ir` of the cache directory, or of the working directory where none is set."""
    dump(os.path.join(get_cache_dir() or os.curdir, "ir") if enabled else None)


def get_save_lower_ir() -> bool:
    """Whether stages are written."""
    return current().dump is not None


class Machine:
    """What a target is compiled for where it is named without a machine: `hidet.option.cpu.arch("haswell")`."""

    def __init__(self, target: str) -> None:
        self._target = target

    def arch(self, arch: str = "auto") -> None:
        """Compile for a machine, as the target calls it; "auto" is this one."""
        others = {target: machine for target, machine in current().machines.items() if target != self._target}
        named = {} if arch == "auto" else {self._target: arch}
        _SETTINGS.set(replace(current(), machines={**others, **named}))

    def get_arch(self) -> str:
        """What `arch` has set; "auto" at first."""
        return current().machines.get(self._target, "auto")

    def __getattr__(self, name: str) -> object:
        # What plug-ins add.
        return import_module("hidet.plugins.attributes").member(self, f"hidet.option.{self._target}", name)


cpu = Machine("cpu")
cuda = Machine("cuda")


def remember(name: str, value: object) -> None:
    """Keep the value of a setting of a wheel, for `remembered`."""
    _SETTINGS.set(replace(current(), others={**current().others, name: value}))


def remembered(name: str, default: object) -> object:
    """What `remember` was given here, or the default."""
    return current().others.get(name, default)


def set_option(name: str, value: object) -> None:
    """Set an option by its name, as "search_space" or "cuda.arch", or one of a plug-in, as "gpu.split_k". OptionError
    for an unknown one."""
    _functions(name)[0](value)


def get_option(name: str) -> object:
    """The value of an option. OptionError for an unknown one."""
    return _functions(name)[1]()


def is_option_exist(name: str) -> bool:
    """Whether there is an option of this name."""
    try:
        _functions(name)
    except OptionError:
        return False
    return True


def of_plugins() -> Mapping[str, object]:
    """Options of plug-ins that were set by their full names, as "gpu.split_k"."""
    return {name: value for name, value in current().others.items() if name in _options_of_plugins()}


def _options_of_plugins() -> Mapping[str, OptionSpec]:
    # The host of plug-ins is heavy, and most settings are none of theirs.
    options: Mapping[str, OptionSpec] = import_module("hidet.plugins.host").load_registry().options
    return options


def _functions(name: str) -> tuple[Callable[[object], None], Callable[[], object]]:
    """What sets an option, and what tells its value."""
    *places, last = name.split(".")
    spec = _options_of_plugins().get(name) if places else None
    if spec is not None:
        return lambda value: remember(name, spec.check(value)), lambda: remembered(name, spec.default)
    try:
        holder: object = functools.reduce(getattr, places, sys.modules[__name__])
        return getattr(holder, last), getattr(holder, f"get_{last}")
    except AttributeError as error:
        raise OptionError(f"option {name!r} is unknown", hint=str(error)) from error


def dump_options() -> Settings:
    """All settings, for `restore_options`."""
    return current()


def restore_options(dumped_options: Settings) -> None:
    """Set everything to what `dump_options` gave."""
    _SETTINGS.set(dumped_options)


def __getattr__(name: str) -> object:
    attributes = import_module("hidet.plugins.attributes")
    try:
        found: object = attributes.find(__name__, name)
    except AttributeError:
        own = [known for known, value in globals().items() if callable(value) and not known.startswith("_")]
        near = nearest_names(name, [*own, *attributes.names_of(__name__)])
        advice = f": did you mean {near[0]!r}?" if near else ""
        if find_spec("hidet.compat") is None:
            advice += "; settings of hidet 0.6 need: pip install hidet-compat"
        raise AttributeError(f"hidet.option has no {name!r}{advice}") from None
    return found
