"""What `hidet doctor` checks: the installation, and that a kernel runs on each target. Versions come from metadata, not
from imports. What a wheel needs besides, a driver or a compiler, it looks at itself (hook `hidet_checks`)."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import hidet_command
import importlib_metadata

from hidet.cache import open_cache
from hidet.errors import HidetError
from hidet.plugins.discovery import CORE_DISTRIBUTION, core_version
from hidet.plugins.isolation import Failure, attempt
from hidet.plugins.registry import Registry
from hidet.plugins.requirement import required, unmet_requirement
from hidet.plugins.specs import CheckSpec, TargetSpec

Status = Literal["ok", "none", "warn", "fail"]
_KERNEL = """
symbol n: 0..
graph doctor(%x: f32[n]):
  %y: f32[n] = add(%x, %x)
  return %y
"""
"""What is compiled and run."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    status: "none" is for what this machine does not have and need not; "fail" makes `hidet doctor` exit with 1.
    hint: what to do about it; None where nothing is to be done, or `detail` says it.
    """

    name: str
    status: Status
    detail: str
    hint: str | None = None


def examine(registry: Registry) -> list[Check]:
    """All checks, in the order in which they are printed."""
    return [
        Check("python", "ok", f"{platform.python_version()} at {sys.executable}"),
        Check("machine", "ok", f"{platform.system()} {platform.machine()}, {os.cpu_count()} logical CPUs"),
        _check_core(),
        _check_name(),
        *_check_requirements(registry),
        *_check_plugins(registry),
        *(check for spec in registry.checks.values() for check in _run(spec)),
        *(check for spec in registry.targets.values() for check in _check_target(spec)),
        _check_cache(),
        *(Check(name, "ok", os.environ[name]) for name in sorted(os.environ) if name.startswith("HIDET_")),
    ]


def report(checks: Iterable[Check], spell: Callable[[Status], str] = "{:4}".format) -> str:
    """A line for each check, and one below for what to do. spell: how a status is written."""
    hints = ((check, f"\n       {check.hint}" if check.hint else "") for check in checks)
    return "\n".join(
        f"{spell(check.status)} {check.name}: {' '.join(check.detail.split())}{hint}" for check, hint in hints
    )


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


def _check_name() -> Check:
    conflict = hidet_command.find_conflict()
    if conflict is None:
        return Check("import name", "ok", "no other distribution owns `hidet`")
    return Check("import name", "fail", conflict.detail, conflict.hint)


def _check_requirements(registry: Registry) -> Iterator[Check]:
    """A line for each distribution that those of plug-ins require, but for plug-ins whose versions are right: an
    installer looks after that, but not after what is changed later."""
    requires = {record.owner.dist: _requires(record.owner.dist) for record in registry.plugins if record.owner.dist}
    for name in sorted({name for texts in requires.values() for name in required(texts)}):
        version, wanted = _version(name), {dist for dist, texts in requires.items() if name in required(texts)}
        if version is None:
            yield Check(name, "fail", f"not installed, needed by {', '.join(sorted(wanted))}", f"pip install {name}")
            continue
        unmet = {dist: unmet_requirement(requires[dist], name, version) for dist in sorted(wanted)}
        clash = [f"{dist} needs {clauses}" for dist, clauses in unmet.items() if clauses]
        hint = f"pip install '{name}{next(filter(None, unmet.values()))}'" if clash else None
        if clash or name not in requires:
            yield Check(name, "fail" if clash else "ok", ", but ".join([version, *clash]), hint)


def _requires(distribution: str) -> list[str]:
    try:
        return importlib_metadata.requires(distribution) or []
    except importlib_metadata.PackageNotFoundError:
        return []


def _check_plugins(registry: Registry) -> Iterator[Check]:
    for record in registry.plugins:
        problems = [problem.message for problem in record.problems if not problem.is_remark]
        status: Status = "fail" if record.status == "disabled" else "warn" if problems else "ok"
        owner = f"{record.owner.dist} {record.owner.version}, {record.module}" if record.owner.dist else record.module
        yield Check(f"plug-in {record.owner.plugin}", status, "; ".join(problems) or owner)


def _run(spec: CheckSpec) -> list[Check]:
    """What a plug-in's check says; a failure where it fails itself."""
    found = attempt(lambda: list(cast("Any", spec.resolve())()))
    return [_failed(spec.name, "fail", found)] if isinstance(found, Failure) else found


def _failed(name: str, status: Status, failure: Failure) -> Check:
    error = failure.error
    if isinstance(error, HidetError):
        return Check(name, status, error.message, error.hint)
    return Check(name, status, str(failure))


def _check_target(spec: TargetSpec) -> Iterator[Check]:
    """The devices that a target finds on this machine, and a kernel on each."""
    name = f"target {spec.name}"
    machines = attempt(spec.list_machines)
    if isinstance(machines, Failure):
        yield _failed(name, "warn", machines)
        return
    yield from (Check(name, "ok", line) for line in machines)
    if spec.machines is not None and not machines:
        yield Check(name, "none", "no device on this machine")
        return
    start = time.perf_counter()
    ran = attempt(partial(_run_kernel, spec.name))
    detail = f"a kernel compiled and run in {time.perf_counter() - start:.1f} s"
    yield _failed(name, "fail", ran) if isinstance(ran, Failure) else Check(name, "ok", detail)


def _run_kernel(target: str) -> None:
    """Compile a graph anew, run it, and look at the result."""
    import numpy

    from hidet.compiler.graphs import compile_graph
    from hidet.context import make_context
    from hidet.graph.parser import parse_graph

    ctx = make_context(target, {"cache": False})
    compiled = compile_graph(parse_graph(_KERNEL, ctx.registry.operators), ctx)
    given = numpy.arange(100, dtype=numpy.float32)
    result = numpy.asarray(compiled(given))
    if not numpy.array_equal(result, given + given):
        raise HidetError(f"a kernel on {target} gives wrong numbers: {result[:4]}, expected {(given + given)[:4]}")


def _check_cache() -> Check:
    status = open_cache().status()
    if status.directory is None or status.problem is not None:
        return Check("kernel cache", "warn", status.problem or "off")
    nearest = next(path for path in (status.directory, *status.directory.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        return Check("kernel cache", "warn", f"{status.directory} cannot be written; set HIDET_CACHE_DIR")
    return Check("kernel cache", "ok", f"{status.directory}, {status.entries} entries")
