"""What `hidet doctor` checks: the installation, never the compiler. Versions come from metadata, not from imports."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import importlib_metadata

from hidet.cache import open_cache
from hidet.plugins.discovery import CORE_DISTRIBUTION, core_version
from hidet.plugins.isolation import Failure, attempt
from hidet.plugins.registry import Registry

FOREIGN_DISTRIBUTION = "hidet"
"""A distribution of another project that installs its own `hidet` package over ours."""

SHOWN_DEPENDENCIES = ("numpy", "ml_dtypes", "llvmlite", "torch", "onnx")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. status: fail makes `hidet doctor` exit with 1."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str


def examine(registry: Registry) -> list[Check]:
    """All checks, in the order in which they are printed."""
    return [
        Check("python", "ok", f"{platform.python_version()} at {sys.executable}"),
        Check("machine", "ok", f"{platform.system()} {platform.machine()}, {os.cpu_count()} logical CPUs"),
        _check_core(),
        _check_conflict(),
        *_check_dependencies(),
        *_check_plugins(registry),
        *_check_machines(registry),
        _check_cache(),
        *(Check(name, "ok", os.environ[name]) for name in sorted(os.environ) if name.startswith("HIDET_")),
    ]


def _version(distribution: str) -> str | None:
    try:
        return importlib_metadata.version(distribution)
    except importlib_metadata.PackageNotFoundError:
        return None


def _check_core() -> Check:
    version = core_version()
    folder = os.path.dirname(os.path.abspath(__file__))
    if version is None:
        detail = f"not installed, only importable from {folder}: entry points are not found; pip install -e it"
        return Check(CORE_DISTRIBUTION, "warn", detail)
    return Check(CORE_DISTRIBUTION, "ok", f"{version} at {folder}")


def _check_conflict() -> Check:
    version = _version(FOREIGN_DISTRIBUTION)
    if version is None:
        return Check("import name", "ok", "no other distribution owns `hidet`")
    detail = f"distribution 'hidet' {version} overwrites files of ours: pip uninstall hidet, then reinstall hidet-core"
    return Check("import name", "fail", detail)


def _check_dependencies() -> Iterator[Check]:
    for name in SHOWN_DEPENDENCIES:
        version = _version(name)
        yield Check(name, "ok", version or "not installed")


def _check_plugins(registry: Registry) -> Iterator[Check]:
    for record in registry.plugins:
        problems = [problem.message for problem in record.problems if not problem.is_remark]
        status: Literal["ok", "warn", "fail"] = "fail" if record.status == "disabled" else "warn" if problems else "ok"
        yield Check(f"plug-in {record.owner.plugin}", status, "; ".join(problems) or record.module)


def _check_machines(registry: Registry) -> Iterator[Check]:
    """The devices that targets find on this machine, a line each."""
    for spec in registry.targets.values():
        if spec.machines is None:
            continue
        found = attempt(spec.list_machines)
        if isinstance(found, Failure):
            yield Check(f"target {spec.name}", "warn", str(found.error))
        elif not found:
            yield Check(f"target {spec.name}", "ok", "no device on this machine")
        else:
            yield from (Check(f"target {spec.name}", "ok", line) for line in found)


def _check_cache() -> Check:
    status = open_cache().status()
    if status.directory is None or status.problem is not None:
        return Check("kernel cache", "warn", status.problem or "off")
    nearest = next(path for path in (status.directory, *status.directory.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        return Check("kernel cache", "warn", f"{status.directory} cannot be written; set HIDET_CACHE_DIR")
    return Check("kernel cache", "ok", f"{status.directory}, {status.entries} entries")
