"""Settings that hold for all compilations of a thread or task from here on: `hidet.option.cache_dir("./cache")`.

Options of one compilation are passed to it; see `hidet.Options`. These are read once, when a compilation begins.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass, replace

from hidet.errors import OptionRemoved, suggestion

_HINTS = {  # settings of earlier versions, with what there is instead
    "search_space": "schedules are chosen by a cost model",
    "parallel_build": "kernels are always compiled in parallel",
    "parallel_tune": "schedules are chosen by a cost model",
    "num_local_workers": "kernels are compiled on all CPUs that the process may use",
    "save_lower_ir": "pass options={'dump': directory}, or set HIDET_DUMP",
    "runtime_check": "arguments are always checked",
}


_NAMES = ("cache_dir", "get_cache_dir", "cache_operator")


@dataclass(frozen=True, slots=True)
class Settings:
    """cache_dir: where machine code is kept, None for HIDET_CACHE_DIR or the user's cache. cache: whether it is."""

    cache_dir: str | None = None
    cache: bool = True


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


def __getattr__(name: str) -> object:
    if name in _HINTS:
        raise OptionRemoved(f"hidet.option.{name} is no longer a setting", hint=_HINTS[name])
    raise AttributeError(f"hidet.option has no {name!r}: {suggestion(name, _NAMES)}")
