"""Settings that hold for all compilations of a thread or task from here on: `hidet.option.cache_dir("./cache")`.

Options of one compilation are passed to it; see `hidet.Options`. These are read once, when a compilation begins.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass, replace

from hidet.errors import OptionError, OptionRemoved, suggestion

_HINTS = {  # settings of earlier versions, with what there is instead
    "parallel_build": "kernels are always compiled in parallel",
    "parallel_tune": "schedules are measured one after the other, so that none disturbs another",
    "num_local_workers": "kernels are compiled on all CPUs that the process may use",
    "save_lower_ir": "pass options={'dump': directory}, or set HIDET_DUMP",
    "runtime_check": "arguments are always checked",
}


_NAMES = ("cache_dir", "get_cache_dir", "cache_operator", "search_space", "get_search_space")


@dataclass(frozen=True, slots=True)
class Settings:
    """cache_dir: where machine code is kept, None for HIDET_CACHE_DIR or the user's cache. cache: whether it is.
    search_space: as of `hidet.Options`, where they say nothing."""

    cache_dir: str | None = None
    cache: bool = True
    search_space: int | None = None


_SETTINGS: ContextVar[Settings] = ContextVar("hidet_settings", default=Settings())  # noqa: B039  # it is frozen


def current() -> Settings:
    """The settings here."""
    return _SETTINGS.get()


def cache_dir(path: str | os.PathLike[str]) -> None:
    """Keep machine code in this directory, which is made where it is missing."""
    _SETTINGS.set(replace(current(), cache_dir=os.fspath(path)))


def get_cache_dir() -> str:
    """The directory that `cache_dir` named, else that of HIDET_CACHE_DIR, else "" for the user's cache."""
    return current().cache_dir or os.environ.get("HIDET_CACHE_DIR", "")


def cache_operator(enabled: bool = True) -> None:
    """Whether machine code is kept on disk."""
    _SETTINGS.set(replace(current(), cache=bool(enabled)))


def search_space(level: int) -> None:
    """How many of the parameters of a schedule are measured in compilations from here on: 0 none, 1 those that a cost
    model ranks first, 2 all. 1 and 2 need hidet-tune, and take `hidet.budget.DEFAULT_SECONDS` a model at most."""
    if level not in (0, 1, 2):
        raise OptionError(f"search_space is 0, 1 or 2, got {level!r}")
    _SETTINGS.set(replace(current(), search_space=level))


def get_search_space() -> int:
    """What `search_space` has set; 0 at first."""
    return current().search_space or 0


def __getattr__(name: str) -> object:
    if name in _HINTS:
        raise OptionRemoved(f"hidet.option.{name} is no longer a setting", hint=_HINTS[name])
    raise AttributeError(f"hidet.option has no {name!r}: {suggestion(name, _NAMES)}")
