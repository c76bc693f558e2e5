"""What must not go wrong however compiled graphs are used: threads, changed weights, odd shapes, forks, failures."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hidet
from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.errors import OptionError, PluginError, ShapeError
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.graph.operator import OperatorSpec
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.executor import MAX_SHAPE_CLASSES
from hidet.testing.control_graphs import control_cases
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]
ROWS = dims.symbol("rows", 0, 4096)
F32 = dtypes.f32


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return make_context("cpu", {"cache": False, "threads": 2})


def _graph(ctx: CompileContext, build: Callable[[GraphBuilder], Sequence[Value]]) -> Graph:
    builder = GraphBuilder(ctx.registry.operators)
    return builder.build(build(builder))


def _two_layers(ctx: CompileContext, is_parameter: bool) -> Graph:
    """relu(x @ w1) @ w2 with x[rows, 16]: temporaries, and weights that are packed when they are parameters."""

    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(F32, (ROWS, 16)), "x")
        w1 = b.input(TensorType(F32, (24, 16)), "w1", is_parameter=is_parameter)
        w2 = b.input(TensorType(F32, (8, 24)), "w2", is_parameter=is_parameter)
        return [b.emit("linear", b.emit("relu", b.emit("linear", x, w1)), w2)]

    return _graph(ctx, build)


def _expected(x: Array, w1: Array, w2: Array) -> Array:
    result: Array = np.maximum(x @ w1.T, 0) @ w2.T
    return result


def _weights(seed: int) -> tuple[Array, Array]:
    """Small integers, so that every order of summation gives the same floats."""
    generator = np.random.default_rng(seed)
    w1, w2 = (generator.integers(-3, 4, shape).astype(np.float32) for shape in ((24, 16), (8, 24)))
    for weight in (w1, w2):
        weight.flags.writeable = False
    return w1, w2


def _rows(seed: int, count: int) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, (count, 16)).astype(np.float32)


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(number)` in `count` threads at once and raise what one of them raised."""
    together = threading.Barrier(count, timeout=30)

    def run(number: int) -> None:
        together.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(run, number) for number in range(count)]:
            done.result()


# --- concurrency --------------------------------------------------------------------------------------------------


def test_one_artifact_serves_ten_thousand_calls_of_eight_threads(ctx: CompileContext, tmp_path: Path) -> None:
    w1, w2 = _weights(0)

    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(F32, (ROWS, 16)), "x")
        return [b.emit("linear", b.emit("relu", b.emit("linear", x, b.constant(w1))), b.constant(w2))]

    compile_graph(_graph(ctx, build), ctx).save(tmp_path / "layers.hidet")
    loaded = hidet.load(tmp_path / "layers.hidet")
    inputs = [_rows(seed, 1 + seed * 7 % 13) for seed in range(50)]
    expected = [_expected(x, w1, w2) for x in inputs]

    def work(number: int) -> None:
        results = []
        for call in range(1250):
            chosen = (number * 17 + call * 3) % len(inputs)
            result = loaded(inputs[chosen])
            assert np.array_equal(result, expected[chosen])
            if call % 50 == 0:
                results.append((result, chosen))
        for result, chosen in results:
            assert np.array_equal(result, expected[chosen]), "a later call wrote into an earlier result"

    _in_threads(8, work)


def test_threads_with_different_weights_each_get_their_own_results(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx, is_parameter=True), ctx)

    def work(number: int) -> None:
        x, weights = _rows(number, 5), _weights(number)
        expected = _expected(x, *weights)
        for _ in range(100):
            assert np.array_equal(compiled(x, *weights), expected)

    _in_threads(6, work)


def test_a_weight_changed_in_place_shows_in_the_next_call(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx, is_parameter=True), ctx)
    x = _rows(1, 5)
    w1, w2 = (weight.copy() for weight in _weights(1))
    for _ in range(5):
        w1 += 1
        assert np.array_equal(compiled(x, w1, w2), _expected(x, w1, w2))


def test_new_weights_at_the_address_of_freed_ones_are_noticed(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx, is_parameter=True), ctx)
    x = _rows(1, 5)
    for seed in range(20):
        weights = _weights(seed)
        assert np.array_equal(compiled(x, *weights), _expected(x, *weights))
        del weights
        gc.collect(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_runs_what_its_parent_compiled(ctx: CompileContext) -> None:
    compiled = compile_graph(_large_sum(ctx), ctx)
    x = np.arange(1 << 18, dtype=np.float32)
    assert np.array_equal(compiled(x), x + x)
    child = os.fork()
    if child == 0:
        # No exception may leave the child: pytest would run on in it.
        signal.alarm(30)
        os._exit(0 if np.array_equal(compiled(2 * x), 4 * x) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert np.array_equal(compiled(3 * x), 6 * x), "the parent's pool still works"


def _large_sum(ctx: CompileContext) -> Graph:
    """x + x of a size that is shared among threads."""

    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(F32, (1 << 18,)), "x")
        return [b.emit("add", x, x)]

    return _graph(ctx, build)


# --- memory -------------------------------------------------------------------------------------------------------


def test_a_thousand_lengths_keep_a_bounded_number_of_arenas(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx, is_parameter=False), ctx)
    w1, w2 = _weights(0)
    for rows in range(1000):
        assert compiled(np.ones((rows, 16), np.float32), w1, w2).shape == (rows, 8)
    assert compiled._executor.shape_classes == MAX_SHAPE_CLASSES


def test_a_dropped_graph_frees_its_code_its_arenas_and_what_it_knows_of_weights(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx, is_parameter=True), ctx)
    weights = _weights(0)
    compiled(_rows(0, 5), *weights)
    assert compiled._parameters is not None
    parts = [
        weakref.ref(compiled),
        weakref.ref(compiled._code),
        weakref.ref(compiled._executor._first.classes[5,].free[0].arena),
        weakref.ref(compiled._parameters.sets[0]),
    ]
    del compiled
    assert [part() for part in parts] == [None] * len(parts), "freed at once, without the cycle collector"


# --- odd values and shapes ----------------------------------------------------------------------------------------


def _check(ctx: CompileContext, build: Callable[..., Value], *arrays: Array) -> None:
    """The compiled graph of `build(builder, *inputs)` gives what numpy gives, bit for bit up to the sign of NaN."""

    def make(b: GraphBuilder) -> list[Value]:
        return [
            build(b, *(b.input(TensorType(dtypes.from_numpy(a.dtype), a.shape), f"x{n}") for n, a in enumerate(arrays)))
        ]

    graph = _graph(ctx, make)
    (expected,) = interpret(graph, list(arrays))
    result = compile_graph(graph, ctx)(*arrays)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1.0, 3.4e38] * 5, np.float32)


@pytest.mark.parametrize("op", ["add", "mul", "sub", "div", "maximum", "minimum"])
def test_nan_infinities_and_signed_zeros_are_kept(ctx: CompileContext, op: str) -> None:
    with np.errstate(all="ignore"):
        _check(ctx, lambda b, x, y: b.emit(op, x, y), SPECIAL, np.roll(SPECIAL, 3))


@pytest.mark.parametrize("op", ["sum", "amax", "mean"])
def test_reductions_pass_nan_on(ctx: CompileContext, op: str) -> None:
    x = np.ones((3, 40), np.float32)
    x[1, 17] = np.nan
    _check(ctx, lambda b, x: b.emit(op, x, axes=(1,)), x)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 3)])
def test_empty_tensors_give_empty_results(ctx: CompileContext, shape: tuple[int, ...]) -> None:
    _check(ctx, lambda b, x: b.emit("relu", b.emit("add", x, x)), np.zeros(shape, np.float32))


def test_a_product_over_nothing_is_zero(ctx: CompileContext) -> None:
    _check(ctx, lambda b, x, y: b.emit("matmul", x, y), np.ones((3, 0), np.float32), np.ones((0, 4), np.float32))


def test_a_sum_over_nothing_is_zero(ctx: CompileContext) -> None:
    _check(ctx, lambda b, x: b.emit("sum", x, axes=(1,)), np.ones((3, 0), np.float32))


def test_tensors_without_axes_work(ctx: CompileContext) -> None:
    scalar = np.array(2.5, np.float32)
    _check(ctx, lambda b, x, y: b.emit("mul", x, y), scalar, scalar)
    _check(ctx, lambda b, x, y: b.emit("add", x, y), scalar, np.ones((2, 3), np.float32))
    _check(ctx, lambda b, x: b.emit("sum", x, axes=(0, 1)), np.ones((2, 3), np.float32))


@pytest.mark.parametrize(("a", "b"), [((1,), (5,)), ((3, 1), (1, 4)), ((1, 1, 1), (2, 3, 4)), ((2, 1, 3), (5, 1))])
def test_axes_of_extent_one_are_repeated(ctx: CompileContext, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in (a, b))
    _check(ctx, lambda builder, p, q: builder.emit("sub", p, q), x, y)


def test_lengths_that_have_to_agree_are_compared_at_the_call(ctx: CompileContext, tmp_path: Path) -> None:
    other = dims.symbol("other", 0)

    def build(b: GraphBuilder) -> list[Value]:
        x, y = (b.input(TensorType(F32, (size,)), name) for size, name in ((ROWS, "x"), (other, "y")))
        return [b.emit("add", x, y)]

    compiled = compile_graph(_graph(ctx, build), ctx)
    compiled.save(tmp_path / "sum.hidet")
    for run in (compiled, hidet.load(tmp_path / "sum.hidet")):
        assert np.array_equal(run(np.ones(7, np.float32), np.ones(7, np.float32)), np.full(7, 2.0))
        for _ in range(2):
            with pytest.raises(ShapeError, match="operator add needs rows = 7 to be equal to other = 3"):
                run(np.ones(7, np.float32), np.ones(3, np.float32))


def test_elements_beyond_two_to_the_31_are_reached(ctx: CompileContext, tmp_path: Path) -> None:
    rows, columns = (1 << 20) * 3, 1 << 10
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, rows * columns * 4)  # 12 GiB of holes: only what is written takes room
    table = np.memmap(path, np.float32, mode="r+", shape=(rows, columns))
    chosen = np.array([0, rows - 1, (1 << 21) + 1], np.int64)
    for number, row in enumerate(chosen):
        table[row] = np.arange(columns) + 1000 * number

    def build(b: GraphBuilder) -> list[Value]:
        weight = b.input(TensorType(F32, (rows, columns)), "table")
        indices = b.input(TensorType(dtypes.i64, (3,)), "indices")
        end = b.emit("slice", weight, starts=(rows - 2, columns - 5), stops=(rows, columns))
        return [b.emit("embedding", weight, indices), b.emit("relu", end)]

    gathered, end = compile_graph(_graph(ctx, build), ctx)(table, chosen)
    assert np.array_equal(gathered, table[chosen])
    assert np.array_equal(end, table[-2:, -5:])


# --- failures -----------------------------------------------------------------------------------------------------


def _half(x: Array) -> Array:
    if np.isnan(x).any():
        raise FloatingPointError("a NaN came in")
    return x / 2


HALVE = OperatorSpec(name="halve", inputs=("x",), kind="eager", call=_half, infer=lambda types, attrs: (types[0],))


def test_an_exception_of_a_foreign_operator_reaches_the_caller_and_nothing_else_breaks(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(F32, (ROWS, 3)), "x")
        return [b.emit("add", b.emit(HALVE, b.emit("relu", x)), x)]

    compiled = compile_graph(_graph(ctx, build), ctx)
    good, bad = np.ones((4, 3), np.float32), np.full((4, 3), np.nan, np.float32)

    def work(number: int) -> None:
        for call in range(50):
            if (number + call) % 3:
                assert np.array_equal(compiled(good), np.full((4, 3), 1.5))
            else:
                with pytest.raises(FloatingPointError, match="a NaN came in"):
                    compiled(bad)

    _in_threads(4, work)


def test_a_misspelt_option_is_named_with_the_nearest_one(ctx: CompileContext) -> None:
    graph = _large_sum(ctx)
    with pytest.raises(OptionError, match="option 'thread' is unknown\nhint: did you mean 'threads'"):
        hidet.compile(graph, options={"thread": 2})
    with pytest.raises(OptionError, match=r"option 'wholly' is unknown\nhint: known: cache, check_bounds, .* in all"):
        hidet.compile(graph, options={"wholly": 2})
    with pytest.raises(OptionError, match="target 'cpuu' is unknown\nhint: did you mean 'cpu'"):
        hidet.compile(graph, target="cpuu")
    with pytest.raises(OptionError, match="option check_bounds is for modules of kernels"):
        hidet.compile(graph, options={"check_bounds": True})


def test_an_error_in_a_pass_names_the_pass(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    from hidet.passes.graph.eliminate_dead import EliminateDead

    def fail(self: object, graph: Graph, ctx: CompileContext) -> Graph:
        raise ValueError("of its own making")

    monkeypatch.setattr(EliminateDead, "run", fail)
    with pytest.raises(ValueError, match="of its own making") as caught:
        compile_graph(_large_sum(ctx), ctx)
    assert any(note.startswith("while running graph pass 'eliminate-dead'") for note in caught.value.__notes__)


def test_a_pass_that_returns_no_graph_is_named(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    from hidet.passes.graph.eliminate_dead import EliminateDead

    monkeypatch.setattr(EliminateDead, "run", lambda self, graph, ctx: None)
    with pytest.raises(
        PluginError, match="returned a NoneType, expected a Graph\nwhile running graph pass 'eliminate-dead'"
    ):
        compile_graph(_large_sum(ctx), ctx)


def test_a_dump_shows_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_DUMP", str(tmp_path / "dump"))
    ctx = make_context("cpu", {"cache": False})
    graph = _two_layers(ctx, is_parameter=True)
    compile_graph(graph, ctx)
    folder = tmp_path / "dump" / f"{graph.name}_0"
    names = sorted(path.name for path in folder.iterdir())
    passes = [spec.name for spec in ctx.registry.passes_for("graph", "cpu")]
    expected = ["00_import.hir", *(f"{number + 1:02}_{name}.hir" for number, name in enumerate(passes))]
    assert [name for name in names if name[0].isdigit()] == expected
    programs = [name for name in names if name.startswith("program_")]
    assert programs
    assert all((folder / name).read_text().strip() for name in names)


def test_graphs_of_a_process_are_dumped_beside_each_other(ctx: CompileContext, tmp_path: Path) -> None:
    graphs = [_large_sum(ctx), _two_layers(ctx, is_parameter=True), _large_sum(ctx)]
    for graph in graphs:
        hidet.compile(graph, target="cpu", options={"dump": tmp_path, "cache": False})
    folders = sorted(tmp_path.iterdir())
    assert [folder.name for folder in folders] == [f"{graphs[0].name}_{number}" for number in range(3)]
    imported = [(folder / "00_import.hir").read_text() for folder in folders]
    assert imported == [str(graph) for graph in graphs]


def test_dumps_of_subgraphs_lie_beside_those_of_the_graph(tmp_path: Path) -> None:
    case = next(case for case in control_cases() if any(node.op.name == "if" for node in case.graph.nodes))
    hidet.compile(case.graph, target="cpu", options={"dump": str(tmp_path)})
    (branch,) = [node for node in case.graph.nodes if node.op.name == "if"]
    (own,) = tmp_path.iterdir()
    assert (own / "00_import.hir").read_text() == str(case.graph)
    folders = sorted(path.name for path in own.iterdir() if path.is_dir())
    assert folders == ["main_0_0", "main_0_1"]
    assert all((own / folder / "tasks.txt").exists() for folder in folders)
    for folder, name in zip(folders, ("then", "otherwise"), strict=True):
        operators = [node.op.name for node in branch.attrs[name].nodes]
        text = (own / folder / "00_import.hir").read_text()
        assert all(f"= {operator}(" in text for operator in operators)


def test_a_dump_that_cannot_be_written_is_named(ctx: CompileContext, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"stages cannot be dumped into .*file"):
        hidet.compile(_large_sum(ctx), options={"dump": str(tmp_path / "file")})


def test_verification_of_every_stage_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_VERIFY", "1")
    ctx = make_context("cpu", {"cache": False})
    assert ctx.options.verify
    compiled: CompiledGraph = compile_graph(_two_layers(ctx, is_parameter=True), ctx)
    x, weights = _rows(0, 3), _weights(0)
    assert np.array_equal(compiled(x, *weights), _expected(x, *weights))
