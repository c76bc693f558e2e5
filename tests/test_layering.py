"""Who may import whom. Imports inside functions count (test_inner_imports.py has them), those for type checkers do not.

Left may not import right: errors loading loc dtypes dims records <- ir <- compute <- graph <- operators <- passes <-
compiler. Besides, a saved graph loads without the compiler, so `runtime` knows neither passes nor schedules. Wheels
meet only in core.
"""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from tests.imports import ROOT, WHEELS, imports_of

_FOUND = {wheel: {path.stem for path in folder.glob("src/hidet/*")} for wheel, folder in WHEELS.items()}
PARTS = {wheel: parts - _FOUND["hidet-core"] for wheel, parts in _FOUND.items() if wheel != "hidet-core"}
"""What each satellite has in the package: {"lang"} of hidet-script. A package of core that one continues is core's."""
ALL_PARTS = set().union(*PARTS.values())

BASE = {"errors", "loading", "loc", "dtypes", "dims", "notebook", "records"}
IR = BASE | {"ir"}
COMPUTE = IR | {"compute"}
GRAPH = COMPUTE | {"graph"}
CONTEXT = {"context", "cache", "plugins", "target"}
ANYTHING: set[str] | None = None

# part of hidet-core -> parts it may import
ALLOWED: dict[str, set[str] | None] = {
    "errors": set(),
    "loading": set(),
    "notebook": set(),
    "records": set(),
    "loc": {"errors"},
    "dtypes": {"errors"},
    "dims": {"errors"},
    "cache_key": {"errors"},
    "private_files": set(),
    "cpus": set(),
    "child_process": {"errors"},
    "cache": {"cache_key", "errors", "private_files"},
    "plugins": {"errors", "lazy", "loading"},
    "ir": BASE,
    "compute": IR,
    "graph": COMPUTE,
    "operators": GRAPH,
    "target": GRAPH,
    "option": {"errors", "plugins"},
    "budget": {"errors"},
    "context": BASE | {"budget", "cache", "plugins", "target", "option"},
    # Names that users' scripts import; hidet itself does not.
    "lazy": set(),
    "progress": {"errors"},
    "runtime": GRAPH | CONTEXT,
    # What is measured of devices is kept beside the kernel cache.
    "schedule": GRAPH | CONTEXT | {"option", "private_files"},
    "fusion": GRAPH | CONTEXT | {"passes", "schedule"},
    "host": GRAPH | CONTEXT | {"schedule", "fusion", "runtime"},
    "passes": GRAPH | CONTEXT | {"operators"},
    # What importers share; a wheel of a frontend is above it.
    "frontend": GRAPH | CONTEXT | {"runtime"},
    # Tensors that users hold, and operators on them, which are compiled to run.
    "api": GRAPH | CONTEXT | {"compiler", "fusion", "passes", "runtime", "schedule"},
    "ops": {"api"},
    "compiler": GRAPH
    | CONTEXT
    | {"operators", "schedule", "fusion", "host", "passes", "runtime"}
    | {"progress", "option", "cpus", "child_process"},
    # Names that users' scripts call.
    "driver": {"compiler"},
    "drivers": {"compiler"},
    # It compiles a kernel and runs it.
    "doctor": {"cache", "compiler", "context", "errors", "graph", "plugins"},
    "cli": ANYTHING,
    "__main__": {"cli"},
    # Names a plug-in of core's own: imports inside its hooks only, which test_plugin_modules_import_nothing checks.
    "_builtin": ANYTHING,
    # Lazy public names; test_import.py checks what really gets loaded.
    "__init__": ANYTHING,
}

# satellite -> what it builds on of others
FOUNDATIONS = {
    "hidet-gpu": {"lang"},
    "hidet-cuda": {"gpu", "lang"},
    "hidet-opencl": {"gpu"},
    "hidet-torch": {"lang", "script_operator"},
    "hidet-tune": {"report"},
    "hidet-compat": {"lang", "script_operator", "utils"},
}
# Parts of satellites that run tests, and are used where hidet-testing is installed.
TESTS = {"testing", "suite"}
# Wheels that offer nothing to the compiler.
WITHOUT_HOOKS = {"hidet-testing"}

# What a distribution provides is named otherwise than the distribution.
DISTRIBUTIONS = {"PIL": "pillow", "cuda": "cuda_bindings", "hidet_command": "hidet_core"}

FRAMEWORKS = {"torch", "onnx", "tensorflow", "jax", "llvmlite", "cuda", "pyopencl"}


def test_core_imports_downward_only() -> None:
    unknown = {item.importer[0] for item in imports_of("hidet-core")} - ALLOWED.keys()
    assert not unknown, f"new parts of core without a row in ALLOWED: {sorted(unknown)}"
    for item in imports_of("hidet-core"):
        part = item.importer[0]
        allowed = ALLOWED[part]
        if allowed is not None:
            wrong = item.hidet_parts() - allowed - {part}
            assert not wrong, f"{item.place}: {part} may not import {sorted(wrong)}"


def test_core_imports_no_framework_and_no_satellite() -> None:
    for item in imports_of("hidet-core"):
        assert item.module.split(".")[0] not in FRAMEWORKS, f"{item.place}: core imports {item.module}"
        assert not item.hidet_parts() & ALL_PARTS, f"{item.place}: core imports {item.module}"


@pytest.mark.parametrize("wheel", PARTS)
def test_a_satellite_imports_only_itself_core_and_what_it_builds_on(wheel) -> None:
    others = ALL_PARTS - PARTS[wheel] - FOUNDATIONS.get(wheel, set())
    for item in imports_of(wheel):
        wrong = item.hidet_parts() & others
        if TESTS & {*item.importer}:
            wrong -= {"testing"}
        assert not wrong, f"{item.place}: {wheel} imports {item.module}"


def test_the_language_of_scripts_needs_thread_ir_alone() -> None:
    for item in imports_of("hidet-script"):
        if item.importer[0] == "lang":
            assert item.hidet_parts() <= IR | {"lang"}, f"{item.place}: a script needs no {item.module}"


@pytest.mark.parametrize("wheel", PARTS)
def test_no_private_module_or_name_of_another_wheel_is_imported(wheel) -> None:
    own = PARTS[wheel]
    for item in imports_of(wheel):
        parts = item.module.split(".")
        if parts[0] == "hidet" and not own & item.hidet_parts():
            private = [name for name in (*parts, *item.names) if name.startswith("_")]
            assert not private, f"{item.place}: {private[0]} of {item.module} is private"


def test_every_dependency_is_declared() -> None:
    for wheel, folder in WHEELS.items():
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        extras = [entry for group in project.get("optional-dependencies", {}).values() for entry in group]
        declared, optional = (_distributions(entries) for entries in (project["dependencies"], extras))
        for item in imports_of(wheel):
            package = item.module.split(".")[0]
            if package != "hidet" and package not in sys.stdlib_module_names and "testing" not in item.importer:
                distribution = DISTRIBUTIONS.get(package, package)
                is_declared = distribution in declared or (item.is_inside_function and distribution in optional)
                is_declared |= distribution == wheel.replace("-", "_")
                assert is_declared, f"{item.place}: {package} is not a dependency of {wheel}"


def _distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_-]", entry)[0].replace("-", "_") for entry in requirements}


def test_plugin_modules_import_nothing_heavy() -> None:
    modules = ("_plugin", "_builtin")
    found = [item for wheel in WHEELS for item in imports_of(wheel) if item.importer[-1] in modules]
    for item in found:
        if not item.is_inside_function:
            light = item.module.split(".")[0] in sys.stdlib_module_names or item.hidet_parts() <= {"plugins", "errors"}
            assert light, f"{item.place}: {item.module} belongs inside the hook"
    assert {wheel for wheel, folder in WHEELS.items() if any(folder.rglob("src/hidet/*/_plugin.py"))} == {
        wheel for wheel in PARTS if wheel not in WITHOUT_HOOKS
    }


def test_no_source_file_exceeds_600_lines() -> None:
    folders = ("packages", "tests", "benchmarks", "examples")
    sizes = {
        file.relative_to(ROOT): len(file.read_text().splitlines())
        for folder in folders
        for file in (ROOT / folder).rglob("*.py")
    }
    too_long = {str(file): lines for file, lines in sizes.items() if lines > 600}
    assert not too_long, f"split by reason to exist: {too_long}"
