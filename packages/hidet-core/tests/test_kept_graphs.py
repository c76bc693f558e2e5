"""Graphs that come out of the cache as a whole."""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.cache import open_cache
from hidet.compiler import steps
from hidet.compiler.graphs import compile_graph
from hidet.compiler.kept_graphs import MOST_CONSTANTS, graph_key
from hidet.context import CompileContext, make_context
from hidet.errors import CacheWarning
from hidet.graph import Constant, Graph, GraphBuilder, TensorType
from hidet.runtime.compiled import CompiledGraph

PLUGIN = """
    HIDET_API = 1
    told = []
    facts = ["first"]

    def hidet_graph_facts():
        return facts[-1]

    def hidet_kernel_built(name, program, cached):
        told.append(("kernel", program is not None, cached))

    def hidet_pass_done(name):
        told.append("pass")

    def hidet_graph_compiled(compiled, graph, lowered):
        told.append((compiled.report().is_kept, graph, lowered))
"""


@pytest.fixture(scope="module", autouse=True)
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of plug-ins, for all tests of this file: registries are kept for the life of the process."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "hidet_keeps.py").write_text(textwrap.dedent(PLUGIN))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin,hidet_keeps")
        yield folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugins: Path) -> Path:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    make_context("cpu")
    plugin().told.clear()
    plugin().facts[:] = ["first"]
    return tmp_path


def plugin() -> Any:
    return sys.modules["hidet_keeps"]


def scaled(ctx: CompileContext, factor: float = 2.0, *, name: str = "x") -> Graph:
    """relu(x) * factor, whose factor is a constant."""
    builder = GraphBuilder(ctx.registry.operators)
    x = builder.input(TensorType(dtypes.f32, (4,)), name)
    c = builder.constant(np.full(4, factor, np.float32))
    return builder.build([builder.emit("mul", builder.emit("relu", x), c)])


def compiled(**changed: Any) -> CompiledGraph:
    ctx = make_context("cpu")
    return compile_graph(scaled(ctx, **changed), ctx)


def test_a_graph_that_was_compiled_before_is_read_and_no_step_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled()
    for step in ("verify_graph", "run_graph_passes", "lower_graph", "compile_units", "compile_modules"):
        monkeypatch.setattr(steps, step, lambda *_, step=step: pytest.fail(step))
    second = compiled()
    x = np.array([1, -2, 3, 4], np.float32)
    assert np.array_equal(second(x), first(x))
    assert (first.report().is_kept, second.report().is_kept) == (False, True)


def test_the_report_says_what_it_said_but_for_the_times_and_where_the_modules_are_from() -> None:
    first, second = compiled().report(), compiled().report()
    for name in ("nodes", "kernels", "tasks", "programs", "modules", "notes", "weight_bytes", "graph_nodes", "uses"):
        assert getattr(first, name) == getattr(second, name), name
    assert second.cached_modules == second.modules
    assert set(second.seconds) == {"cache", "load"}
    assert "the whole graph came from the cache" in str(second)


def test_elements_of_constants_are_part_of_what_a_graph_is_kept_under() -> None:
    ones = np.ones(4, np.float32)
    assert compiled()(ones)[0] == 2
    third = compiled(factor=3.0)
    assert not third.report().is_kept
    assert third(ones)[0] == 3


def test_names_that_the_text_makes_alike_are_told_apart() -> None:
    ctx = make_context("cpu")
    keys = [graph_key(scaled(ctx, name=name), ctx) for name in ("x y", "x_y")]
    assert keys[0] is not None
    assert keys[0] != keys[1]


def test_options_are_part_of_what_a_graph_is_kept_under() -> None:
    keys = set()
    for options in ({}, {"threads": 3}, {"mode": "reduce-overhead"}, {"tf32_products": True}):
        ctx = make_context("cpu", options)
        keys.add(graph_key(scaled(ctx), ctx))
    assert len(keys) == 4
    assert None not in keys


@pytest.mark.parametrize("options", [{"verify": True}, {"dump": "dumped"}, {"cache": False}])
def test_who_watches_the_steps_has_them_taken(options: dict[str, Any], tmp_path: Path) -> None:
    ctx = make_context("cpu", {**options, **({"dump": str(tmp_path)} if "dump" in options else {})})
    assert graph_key(scaled(ctx), ctx) is None


def test_a_graph_with_many_constants_is_compiled_step_by_step() -> None:
    ctx = make_context("cpu")
    graph = scaled(ctx)
    (value,) = graph.constants
    large = {value: Constant(np.zeros(MOST_CONSTANTS // 4 + 1, np.float32))}
    assert graph_key(Graph("g", graph.inputs, graph.nodes, graph.outputs, large), ctx) is None


def test_an_attribute_whose_text_does_not_tell_its_bits_has_no_key() -> None:
    ctx = make_context("cpu")
    builder = GraphBuilder(ctx.registry.operators)
    x = builder.input(TensorType(dtypes.f32, (4,)), "x")
    graph = builder.build([builder.emit("leaky_relu", x, negative_slope=float("nan"))])
    assert graph_key(graph, ctx) is None


def test_what_a_plugin_says_that_it_depends_on_is_part_of_what_a_graph_is_kept_under() -> None:
    compiled()
    assert compiled().report().is_kept
    plugin().facts.append("second")
    assert not compiled().report().is_kept
    plugin().facts.append(None)
    assert not compiled().report().is_kept
    assert not compiled().report().is_kept


def test_a_plugin_that_watches_and_does_not_say_what_it_depends_on_has_all_steps_taken(
    plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plugins / "hidet_watches.py").write_text("HIDET_API = 1\ndef hidet_pass_done(name): pass\n")
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin,hidet_watches")
    ctx = make_context("cpu")
    assert graph_key(scaled(ctx), ctx) is None


def test_observers_hear_of_kept_graphs_and_their_modules_and_can_ask_what_they_are_made_of() -> None:
    first = compiled()
    plugin().told.clear()
    second = compiled()
    *kernels, (is_kept, graph, lowered) = plugin().told
    assert is_kept
    assert set(kernels) == {("kernel", False, True)}
    assert len(kernels) == second.report().modules
    assert len(graph.nodes) == 2
    assert lowered.program == first.bundle.program or lowered.program.prepare is not None
    assert len(lowered.main[0].task_graph.tasks) == first.report().tasks
    assert "pass" in plugin().told


def test_a_damaged_entry_is_compiled_again(cache: Path) -> None:
    compiled()
    ctx = make_context("cpu")
    key = graph_key(scaled(ctx), ctx)
    assert key is not None
    path = cache / key.digest[:2] / f"{key.digest}.entry"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert not compiled().report().is_kept
    assert compiled().report().is_kept


def test_sizes_that_change_are_kept_with_their_ranges() -> None:
    def of(upper: int) -> tuple[Graph, CompileContext]:
        ctx = make_context("cpu")
        builder = GraphBuilder(ctx.registry.operators)
        n = dims.symbol("n", lower=2, upper=upper, hint=8)
        x = builder.input(TensorType(dtypes.f32, (n, 4)), "x")
        return builder.build([builder.emit("softmax", x, axis=1)]), ctx

    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    first, second = compile_graph(*of(64)), compile_graph(*of(64))
    assert second.report().is_kept
    assert np.array_equal(first(x), second(x))
    assert not compile_graph(*of(32)).report().is_kept


def test_a_kept_graph_is_loaded_and_saved_as_a_compiled_one_is(tmp_path: Path) -> None:
    import hidet

    compiled()
    kept = compiled()
    kept.save(tmp_path / "graph.hidet")
    ones = np.ones(4, np.float32)
    assert np.array_equal(hidet.load(tmp_path / "graph.hidet")(ones), kept(ones))


def test_the_cache_is_on_or_off() -> None:
    assert open_cache().is_on
    assert not open_cache(enabled=False).is_on
