"""Imports stand at the top of files. Those inside functions are listed here with their reasons, and so are circles."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.imports import WHEELS, Import, imports_of

# What importing a file must not load: heavy libraries, and what most of its users do without. file -> modules.
FIRST_USE: Mapping[str, set[str]] = {
    # `import hidet` loads nothing; `__getattr__` finds the rest.
    "__init__.py": {"hidet.errors", "hidet.plugins.attributes", "hidet.plugins.wheels", "importlib.metadata"},
    # Operators and their types are registered without numpy; its arrays are weights, references and host operators.
    "dtypes.py": {"ml_dtypes", "numpy"},
    "graph/builder.py": {"numpy"},
    "graph/graph.py": {"numpy"},
    "onnx/decode_image.py": {"numpy"},
    "operators/check.py": {"hidet.compute.routine_references", "numpy"},
    "operators/fourier.py": {"numpy"},
    "operators/random.py": {"numpy"},
    "operators/sequence.py": {"numpy"},
    "operators/text.py": {"numpy"},
    "tensorflow/beam_search.py": {"numpy"},
    # Commands start without what the other ones need.
    "cli/__init__.py": {
        *("hidet.doctor", "hidet.plugins.host", "hidet.plugins.report", "rich.console"),
    },
    "cli/cache.py": {"hidet.cache"},
    "cli/groups.py": {"hidet.plugins.host"},
    # The doctor also examines installations in which these cannot be imported.
    "doctor.py": {"hidet.compiler.graphs", "hidet.context", "hidet.graph.parser", "numpy"},
    # A cache in a folder that is named needs nothing else.
    "cache.py": {"platformdirs"},
    # For messages, bars and colours only.
    "errors.py": {"difflib"},
    "progress.py": {"rich.console", "rich.progress"},
    "runtime/module.py": {"rich.console", "rich.syntax"},
    # Graphs that were compiled before come out of the cache without what compiles them, and nobody looks at them.
    "compiler/graphs.py": {"hidet.compiler.steps"},
    "host/code_cache.py": {"hidet.ir.structural"},
    # Nor without torch's caching precompile what hands graphs over to it.
    "torch/backend.py": {"hidet.torch.aot", "hidet.torch.compat_precompile"},
    "torch/kept_traces.py": {"hidet.graph.parser"},
    "torch/traces.py": {"hidet.schedule.schedule_text", "hidet.schedule.task_text"},
    # Artifacts load without code generator, passes and what measures the processor.
    "cpu/target.py": {"hidet.cpu.codegen", "hidet.cpu.measure", "hidet.passes.program.assert_bounds"},
    # Checks against numpy need no torch.
    "testing/checks.py": {"torch"},
    # Compiling loads what rules of users need where there is one.
    "compat/rule_passes.py": {"hidet.graph.transforms.rewriting"},
    # Code that was compiled before is loaded without what compiles it; what measures a device compiles a product.
    "cuda/target.py": {
        *("hidet.cuda.compiling", "hidet.cuda.measure", "hidet.cuda.tile.lowering", "hidet.gpu.check_bounds"),
    },
    # The library may be missing, which is an error when something is compiled.
    "cuda/nvrtc.py": {"cuda.bindings"},
    "script_operator/operator.py": {"hidet.ir.interpret", "numpy"},
    "gpu/simulator/report.py": {"hidet.ir.printer"},
    "gpu/simulator/strand.py": {"hidet.gpu.simulator.report"},
    "opencl/devices.py": {"pyopencl"},
    "testing/numerics.py": {"numpy"},
    "testing/random_graphs.py": {"numpy"},
    "testing/random_maker.py": {"numpy"},
}

# Distributions of extras.
OPTIONAL: Mapping[str, set[str]] = {
    "jax/functions.py": {"jax"},
    "onnx/bench.py": {"onnxruntime"},
    "onnx/decode_image.py": {"PIL.Image"},
    "tensorflow/compat.py": {
        *("tensorflow", "tensorflow.core.protobuf.saved_model_pb2", "tensorflow.python.framework"),
    },
    "tuning/executor_ray.py": {"ray"},
    "tuning/strategy_learned.py": {"lightgbm"},
}

# A private name that a version of torch lacks breaks what needs it, and nothing else.
PRIVATE_NAMES = {"torch/compat.py": "torch", "torch/compat_untraced.py": "torch", "torch/compat_state.py": "torch"}

# Circles that do no harm: none of their parts is of use without the others. Modules -> why.
CIRCLES: Mapping[frozenset[str], str] = {
    frozenset(
        f"hidet.dims.{name}" for name in ["divide", "estimate", "evaluate", "expr", "extrema", "prove", "text"]
    ): ("the algebra of sizes: operators of the class simplify, simplification proves, proofs simplify"),
    frozenset({"hidet.ir.build", "hidet.ir.expr", "hidet.ir.stmt"}): (
        "operators of expressions are those of `build`, which makes expressions"
    ),
    frozenset({"hidet.graph.graph", "hidet.graph.printer"}): "str(graph) prints it",
    frozenset({"hidet.runtime.artifact", "hidet.runtime.compiled"}): "a graph saves itself; loading makes a graph",
    frozenset({"hidet.lang.types", "hidet.lang.values"}): "types of scripts offer the primitives of values",
    frozenset(
        {
            "hidet.lang",
            *(f"hidet.lang.{name}" for name in ["environment", "function", "module", "signature", "translator"]),
        }
    ): "a function of a script is built as a module of its own; names of `hidet.lang` are recognised by themselves",
    frozenset({"hidet.gpu.tile.kernel", "hidet.gpu.tile.printer", "hidet.gpu.tile.verify"}): (
        "a kernel in tiles prints and verifies itself"
    ),
}


def all_imports() -> Iterator[Import]:
    for wheel in WHEELS:
        yield from imports_of(wheel)


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """Modules of all wheels -> those of them that they import, in functions or not."""
    files = [(folder / "src", file) for folder in WHEELS.values() for file in (folder / "src").rglob("*.py")]
    names = {
        ".".join(part for part in file.relative_to(source).with_suffix("").parts if part != "__init__")
        for source, file in files
    }
    found: dict[str, set[str]] = {name: set() for name in names}
    for item in all_imports():
        taken = [f"{item.module}.{name}" for name in item.names]
        reached = {name if name in names else item.module for name in taken} if taken else {item.module}
        found[item.importing_module] |= (reached & names) - {item.importing_module}
    return {name: frozenset(reached) for name, reached in found.items()}


def circles(graph: Mapping[str, frozenset[str]]) -> set[frozenset[str]]:
    """Strongly connected components of more than one node (Tarjan)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for reached in graph[node]:
            if reached not in number:
                visit(reached)
                lowest[node] = min(lowest[node], lowest[reached])
            elif reached in stack:
                lowest[node] = min(lowest[node], number[reached])
        if lowest[node] == number[node]:
            component = frozenset(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.add(component)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 3 * len(graph)))
    try:
        for node in graph:
            if node not in number:
                visit(node)
    finally:
        sys.setrecursionlimit(limit)
    return found


def closes_a_listed_circle(item: Import) -> bool:
    return any(item.importing_module in circle and item.candidates() & circle for circle in CIRCLES)


def reason_of(item: Import) -> str | None:
    """Why an import may stand inside a function; None where nothing says so."""
    path = item.path.as_posix()
    if item.importer[-1] in ("_plugin", "_builtin"):
        return "hooks are asked one by one"
    if item.candidates() & FIRST_USE.get(path, set()):
        return "first use"
    if item.module in OPTIONAL.get(path, ()):
        return "optional"
    if path in PRIVATE_NAMES and item.module.split(".")[0] == PRIVATE_NAMES[path]:
        return "private names"
    return "circle" if closes_a_listed_circle(item) else None


def test_circles_are_found() -> None:
    edges = {"a": "b", "b": "cd", "c": "a", "d": "e", "e": "", "f": "f"}
    assert circles({node: frozenset(reached) for node, reached in edges.items()}) == {frozenset("abc")}


def test_imports_inside_functions_have_a_listed_reason() -> None:
    unexplained = [
        f"{item.place}: {item.module}" for item in all_imports() if item.is_inside_function and reason_of(item) is None
    ]
    assert not unexplained, "move these to the top of their files, or list their reasons: " + ", ".join(unexplained)


def test_every_listed_reason_is_of_an_import() -> None:
    inside = [item for item in all_imports() if item.is_inside_function]
    for table in (FIRST_USE, OPTIONAL):
        for path, modules in table.items():
            found = {name for item in inside if item.path.as_posix() == path for name in item.candidates()}
            assert modules <= found, f"{path} does not import {sorted(modules - found)} inside functions"


@pytest.mark.parametrize("path", FIRST_USE)
@pytest.mark.thorough(every=3)
def test_a_file_does_not_load_what_it_imports_at_first_use(path: str) -> None:
    module = ".".join(part for part in ("hidet", *path.removesuffix(".py").split("/")) if part != "__init__")
    # The interpreter has loaded some modules of Python itself before.
    code = f"import sys; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before), sep='\\n')"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(finished.stdout.split())
    assert module in loaded
    assert not FIRST_USE[path] & loaded, f"{path} loads these anyway: import them at the top"


def test_modules_import_each_other_in_listed_circles_only() -> None:
    found = circles(import_graph())
    assert not found - CIRCLES.keys(), "move what both need into a module below them"
    assert not CIRCLES.keys() - found, "these are circles no more"
