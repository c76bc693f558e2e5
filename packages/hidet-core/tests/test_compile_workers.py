"""Child processes that compile modules: how many, which modules each gets, and what becomes of one that dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hidet import dtypes
from hidet.compiler import workers
from hidet.compiler.graphs import compile_graph
from hidet.compiler.worker import Refusal, pack_module, unpack_module
from hidet.compiler.workers import CompileWorkers, Report, kinds_of, wanted_workers, workers_of
from hidet.context import CompileContext, make_context
from hidet.errors import CodegenError, CompileError, PluginWarning
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph
from hidet.graph.types import TensorType
from hidet.host.units import CompileUnit
from hidet.ir import build
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module, named
from hidet.ir.stmt import Evaluate, Seq
from hidet.ir.structural import function_digest, structural_equal
from hidet.plugins.host import load_registry, use
from hidet.target import Binary

APART = """
import os

from hidet.errors import CodegenError
from hidet.target import Binary


class Apart:
    name, device, arch = "cpu", "cpu", "none"
    compiles_apart = True

    def fingerprint(self):
        return {}

    def compile(self, jobs, progress=None):
        return [Binary(job.name, f"{len(job.module.functions)} functions".encode()) for job in jobs]


class Refusing(Apart):
    def compile(self, jobs, progress=None):
        for job in jobs:
            raise CodegenError(f"{job.name} cannot be written", hint="write another")
        return []


class Other(Apart):
    def fingerprint(self):
        return {"process": str(os.getpid())}
"""
"""Targets in a module that other processes find: what they make of a module is the number of its functions."""


def unit(*functions: Function) -> CompileUnit:
    return CompileUnit(Module(functions, functions[0].name), "digest", 1)


def kernel(name: str, statements: int = 1) -> Function:
    x = Var("x", dtypes.f32)
    return Function(name, (x,), build.seq([Evaluate(x + number) for number in range(statements)]), kind="kernel")


def made_here(names: Sequence[str], report: Report | None) -> list[Binary]:
    return [Binary(name, b"here") for name in names]


def unheard(done: int, total: int) -> None:
    """A report that nobody reads."""


def begin_and_wait(children: CompileWorkers) -> list[Binary]:
    """Have children compile one module, which this process leaves to them."""
    children.begin("only", unit(kernel("a")))
    while not children._begun["only"].answer.done():
        time.sleep(0.01)
    return children.compile({"only": unit(kernel("a"))}, made_here, unheard)


def relu_graph(kinds: int) -> Graph:
    builder = GraphBuilder(load_registry().operators)
    sizes = range(1, kinds + 1)
    return builder.build([builder.emit("relu", builder.input(TensorType(dtypes.f32, (size,)))) for size in sizes])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `APART` is a module; one for all tests, because a process reads once when sources were changed."""
    folder = tmp_path_factory.mktemp("apart")
    (folder / "apart_targets.py").write_text(APART)
    return folder


@pytest.fixture
def targets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of `APART`."""
    monkeypatch.syspath_prepend(folder)
    return import_module("apart_targets")


@pytest.fixture
def ctx(targets: Any) -> CompileContext:
    return replace(make_context("cpu", {"cache": False}), target=targets.Apart())


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIDET_NUM_WORKERS", raising=False)


@pytest.mark.parametrize(
    ("kinds", "cpus", "expected"), [(11, 16, 0), (12, 16, 4), (45, 16, 15), (45, 8, 7), (45, 3, 0)]
)
def test_the_number_of_children_follows_from_kinds_of_nodes_and_cpus(
    ctx: CompileContext, monkeypatch: pytest.MonkeyPatch, kinds: int, cpus: int, expected: int
) -> None:
    monkeypatch.setattr(workers, "available_cpus", lambda: cpus)
    assert wanted_workers(kinds_of(relu_graph(kinds)), ctx) == expected


def test_the_user_decides_how_many_children_there_are(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "available_cpus", lambda: 1)
    monkeypatch.setenv("HIDET_NUM_WORKERS", "2")
    assert wanted_workers(3, ctx) == 2
    monkeypatch.setattr(workers, "available_cpus", lambda: 64)
    monkeypatch.setenv("HIDET_NUM_WORKERS", "0")
    assert wanted_workers(45, ctx) == 0


def test_what_has_to_be_seen_here_is_compiled_here(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_NUM_WORKERS", "2")
    for options in ({"dump": "folder"}, {"verify": True}):
        assert wanted_workers(3, replace(ctx, options=replace(ctx.options, **options))) == 0
    with use(Watcher()) as registry:
        assert wanted_workers(3, replace(ctx, registry=registry)) == 0
    target = make_context("cpu").target
    assert wanted_workers(3, replace(ctx, target=target)) == 0


class Watcher:
    """A plug-in of this process that hears of passes."""

    HIDET_API = 1

    def hidet_pass_done(self, name: str, seconds: float) -> None:
        """Nothing."""


def test_a_module_is_the_same_on_the_other_side() -> None:
    module = unit(kernel("a", 3), kernel("b")).module
    packed = pack_module(module)
    assert packed is not None
    again = unpack_module(packed)
    assert structural_equal(again, module)
    assert again.functions[0].params[0].type is dtypes.f32


def test_what_has_no_pickle_is_not_sent() -> None:
    function = replace(kernel("a"), attributes=(("made by", lambda: 0),))
    assert pack_module(unit(function).module) is None


def test_a_function_under_another_name_keeps_its_digest() -> None:
    function = kernel("a", 2)
    digest = function_digest(function)
    assert function_digest(named(function, "b")) == digest == function_digest(kernel("c", 2))


def test_children_and_this_process_share_the_modules(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    units = {name: unit(*[kernel(f"{name}{number}", number + 1) for number in range(3)]) for name in "abcd"}
    here: list[str] = []

    def compile_here(names: Sequence[str], report: Report | None) -> list[Binary]:
        here.extend(names)
        return [Binary(name, b"3 functions") for name in names]

    told: list[tuple[int, int]] = []
    with CompileWorkers(1, ctx) as children:
        made = children.compile(units, compile_here, lambda done, total: told.append((done, total)))
    assert sorted(binary.name for binary in made) == sorted(units)
    assert {binary.data for binary in made} == {b"3 functions"}
    assert 0 < len(here) < 4
    assert told == sorted(told) and told[-1] == (4, 4)


def test_a_child_compiles_what_was_begun_and_nothing_else_comes_of_it(ctx: CompileContext) -> None:
    begun = {name: unit(kernel(name), kernel(f"{name}2")) for name in ("wanted", "given up", "changed")}
    wanted = {"wanted": begun["wanted"], "changed": replace(unit(kernel("other")), digest="another")}
    with CompileWorkers(1, ctx) as children:
        for name, each in begun.items():
            children.begin(name, each)
        # The child has time for it: nothing of it is left for this process.
        while not children._begun["changed"].answer.done():
            time.sleep(0.01)
        made = children.compile(wanted, made_here, unheard)
        again = children.compile({"given up": begun["given up"]}, made_here, unheard)
    assert made == [Binary("changed", b"here"), Binary("wanted", b"2 functions")]
    assert again == [Binary("given up", b"here")]


def test_programs_are_begun_before_a_graph_is_built_and_only_what_is_needed_is_linked(
    ctx: CompileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDET_NUM_WORKERS", "1")
    done: list[str] = []
    begin, compile_all = CompileWorkers.begin, CompileWorkers.compile

    def begun(self: CompileWorkers, name: str, each: CompileUnit) -> None:
        done.append(name)
        begin(self, name, each)

    def compiled(self: CompileWorkers, units: Any, compile_here: Any, report: Any) -> list[Binary]:
        assert set(units) - set(done) == {"host"}
        assert {each.digest for each in self._begun.values()} <= {each.digest for each in units.values()}
        done.append("compile")
        return compile_all(self, units, compile_here, report)

    monkeypatch.setattr(CompileWorkers, "begin", begun)
    monkeypatch.setattr(CompileWorkers, "compile", compiled)
    real = make_context("cpu", {"cache": False})
    builder = GraphBuilder(real.registry.operators)
    a, b = (builder.input(TensorType(dtypes.f32, (512, 512))) for _ in range(2))
    graph = builder.build([builder.emit("softmax", builder.emit("matmul", a, b), axis=1)])
    monkeypatch.setattr(type(real.target), "compiles_apart", True, raising=False)
    compile_graph(graph, real)
    assert len(done) > 2 and done[-1] == "compile"


def test_children_that_wait_in_the_context_compile_its_graphs(ctx: CompileContext, targets: Any) -> None:
    graph = relu_graph(3)
    with CompileWorkers(1, ctx) as waiting:
        told = replace(ctx, workers=waiting)
        with workers_of(graph, told) as workers:
            assert workers is waiting
        assert waiting.wait_for(ctx), "they wait for the next graph"
        with workers_of(graph, replace(told, target=targets.Apart())) as workers:
            assert workers is not waiting
    with workers_of(graph, told) as workers:
        assert workers is not waiting, "they were ended"


def test_a_refusal_is_the_error_that_this_process_would_raise(ctx: CompileContext, targets: Any) -> None:
    with CompileWorkers(1, replace(ctx, target=targets.Refusing())) as children, pytest.raises(CodegenError) as caught:
        begin_and_wait(children)
    assert (caught.value.message, caught.value.hint) == ("only cannot be written", "write another")
    assert isinstance(Refusal("CompileError", "m", None, None).error(), CompileError)


def test_what_a_child_with_other_tools_was_to_compile_is_compiled_here(ctx: CompileContext, targets: Any) -> None:
    with (
        CompileWorkers(1, replace(ctx, target=targets.Other())) as children,
        pytest.warns(PluginWarning, match="other plug-ins, tools or sources"),
    ):
        made = begin_and_wait(children)
    assert made == [Binary("only", b"here")]


def test_a_child_that_dies_is_one_error_that_names_its_modules(
    ctx: CompileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen
    code = "import sys; sys.stderr.write('out of luck'); sys.exit(3)"
    monkeypatch.setattr(subprocess, "Popen", lambda command, **named: real([sys.executable, "-c", code], **named))
    with CompileWorkers(1, ctx) as children, pytest.raises(CompileError, match="code 3 on only: out of luck"):
        begin_and_wait(children)


def test_a_child_that_stalls_is_ended(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen
    monkeypatch.setattr(workers, "_SECONDS_PER_MODULE", 0.1)
    code = "import time; time.sleep(60)"
    monkeypatch.setattr(subprocess, "Popen", lambda command, **named: real([sys.executable, "-c", code], **named))
    with CompileWorkers(1, ctx) as children, pytest.raises(CompileError, match="did not finish only within"):
        begin_and_wait(children)


def test_without_a_process_to_be_had_the_work_is_done_here(
    ctx: CompileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError("no process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with CompileWorkers(2, ctx) as children:
        children.begin("only", unit(kernel("a")))
        made = children.compile({"only": unit(kernel("a"))}, made_here, unheard)
    assert made == [Binary("only", b"here")]


def test_an_empty_module_is_sent() -> None:
    assert pack_module(Module((Function("f", (), Seq(())),), "f")) is not None
