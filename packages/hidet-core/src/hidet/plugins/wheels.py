"""What other wheels of the project offer, for hints alone: what to install where a name is missing.

Nothing is looked up here to decide anything: a target, front-end or class that is registered is found without this
table, and wheels of others need no row in it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping

from hidet.errors import suggestion

_OF_TARGETS: Mapping[str, str] = {"cpu": "hidet-cpu", "llvm": "hidet-cpu", "cuda": "hidet-cuda"}
_OF_KINDS: Mapping[str, str] = {"cpu": "hidet-cpu", "gpu": "hidet-cuda"}
_OF_SUFFIXES: Mapping[str, str] = {".onnx": "hidet-onnx", ".keras": "hidet-tensorflow", ".mlir": "hidet-stablehlo"}
_OF_PACKAGES: Mapping[str, str] = {
    "torch": "hidet-torch",
    "onnx": "hidet-onnx",
    "tensorflow": "hidet-tensorflow",
    "keras": "hidet-tensorflow",
    "jax": "hidet-stablehlo",
}
_OF_COMMANDS: Mapping[str, str] = {
    "accuracy": "hidet-report",
    "cache.log": "hidet-report",
    "completion": "hidet-report",
    "bench": "hidet-report",
    "check": "hidet-onnx",
    "measure": "hidet-tune",
    "profile": "hidet-report",
    "report": "hidet-report",
    "schedules": "hidet-tune",
    "tune": "hidet-tune",
}
_OF_MEMBERS: Mapping[str, str] = {
    "hidet.runtime.CompiledGraph.profile": "hidet-report",
    "hidet.runtime.CompileReport.html": "hidet-report",
}
_OF_VARIABLES: Mapping[str, str] = {"HIDET_LOG": "hidet-report", "HIDET_REPORT": "hidet-report"}
_OF_MODULES: Mapping[str, str] = {
    "compat": "hidet-compat",
    "jax": "hidet-stablehlo",
    "lang": "hidet-script",
    "report": "hidet-report",
    "nn": "hidet-compat",
    "testing": "hidet-testing",
    "tile": "hidet-gpu",
    "tuning": "hidet-tune",
    "utils": "hidet-script",
}
"""Modules of wheels that offer nothing to the compiler, or are called otherwise."""
_MEANT: Mapping[str, str] = {"gpu": "cuda", "nvidia": "cuda", "x86": "cpu", "host": "cpu"}
"""What people call targets elsewhere."""


def target_hint(name: str, known: Iterable[str]) -> str:
    """Advice for a target that nobody provides."""
    targets = list(known)
    meant = _MEANT.get(name.lower(), name)
    lead = "" if meant == name else f"did you mean {meant!r}?"
    if meant in targets:
        return lead
    wheel = _OF_TARGETS.get(meant)
    if wheel is None:
        return suggestion(name, targets)
    return f"{lead} {_advice(wheel)}".strip()


def kind_hint(kind: str) -> str | None:
    """Advice where no target is of a kind; None where no wheel is known to have one."""
    wheel = _OF_KINDS.get(kind)
    return None if wheel is None else _advice(wheel)


def command_hint(name: str, known: Iterable[str]) -> str:
    """Advice for a sub-command of `hidet` that nobody provides."""
    wheel = _OF_COMMANDS.get(name)
    return suggestion(name, known) if wheel is None else _advice(wheel)


def member_hint(path: str) -> str:
    """Advice for a member of a class, "hidet.runtime.CompiledGraph.profile", that nobody provides; "" for most."""
    wheel = _OF_MEMBERS.get(path)
    return "" if wheel is None else f": {_advice(wheel)}"


def unread_variables() -> list[str]:
    """Advice for variables of the environment that a wheel reads which is not installed."""
    told = ((name, _advice(wheel)) for name, wheel in _OF_VARIABLES.items() if os.environ.get(name))
    return [f"{name} is set, and nothing reads it: {advice}" for name, advice in told if advice.startswith("pip")]


def wheels_of_modules() -> dict[str, str]:
    """What wheels of the project put into the package `hidet`: "torch", for `hidet.torch`, is of "hidet-torch"."""
    wheels = {*_OF_TARGETS.values(), *_OF_SUFFIXES.values(), *_OF_PACKAGES.values()}
    return {**_OF_MODULES, **{wheel.removeprefix("hidet-"): wheel for wheel in wheels}}


def model_hint(model: object) -> str | None:
    """Advice for a model that no front-end takes; None where no wheel is known to take it."""
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        wheel = next((wheel for suffix, wheel in _OF_SUFFIXES.items() if str(path).endswith(suffix)), None)
    else:
        packages = (kind.__module__.partition(".")[0] for kind in type(model).__mro__)
        wheel = next((_OF_PACKAGES[package] for package in packages if package in _OF_PACKAGES), None)
    return None if wheel is None else _advice(wheel)


def _advice(wheel: str) -> str:
    """To install a wheel, or what keeps one out that is installed."""
    module = next(
        (f"hidet.{part}" for part, owner in _OF_MODULES.items() if owner == wheel), wheel.replace("-", ".", 1)
    )
    if importlib.util.find_spec(module) is None:
        return f"pip install {wheel}"
    selection = os.environ.get("HIDET_PLUGINS")
    left_out = "" if selection is None else f": HIDET_PLUGINS={selection} may leave it out"
    return f"{wheel} is installed, but not active{left_out} (see `hidet plugins`)"
