"""Operations of an NVIDIA GPU for scripts: the names of `hidet.cuda.lang`, of the wheel hidet-cuda."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from hidet.errors import PluginError


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    return getattr(_language(), name)


def __dir__() -> list[str]:
    return dir(_language())


def _language() -> ModuleType:
    try:
        return import_module("hidet.cuda.lang")
    except ModuleNotFoundError as error:
        raise PluginError("hidet.lang.cuda is of the wheel hidet-cuda", hint="pip install hidet-cuda") from error
