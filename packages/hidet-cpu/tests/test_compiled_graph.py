"""Graphs compiled for this CPU: results, symbolic sizes, parameters, artifacts, threads."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hidet
from hidet import dims, dtypes
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, make_context
from hidet.cpu.arch import arch_from_text
from hidet.errors import ArtifactError, DTypeError, LaunchError, ShapeError
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.ir.structural import structural_hash
from hidet.lang import i32
from hidet.lang.module import module_of
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.compiled import CompiledGraph
from hidet.runtime.memory import HostMemory
from hidet.script_operator.operator import ScriptCall, script_operator
from hidet.testing.interpret import interpret

ROWS = dims.symbol("rows", 1, 4096)


@pytest.fixture(scope="module")
def ctx() -> CompileContext:
    return make_context("cpu", {"cache": False})


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(np.float32)


def _graph(ctx: CompileContext, build: Callable[[GraphBuilder], list[Value]]) -> Graph:
    builder = GraphBuilder(ctx.registry.operators)
    return builder.build(build(builder))


def _two_layers(ctx: CompileContext, rows: dims.Dim = ROWS) -> Graph:
    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (rows, 7)), "x")
        w = b.input(TensorType(dtypes.f32, (7, 9)), "w", is_parameter=True)
        doubled = b.emit("add", w, w)
        return [b.emit("relu", b.emit("matmul", x, doubled))]

    return _graph(ctx, build)


def test_one_compilation_serves_every_size_of_a_symbolic_axis(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx), ctx)
    weight = _random(7, 9)
    for rows in (1, 5, 64):
        x = _random(rows, 7)
        np.testing.assert_allclose(compiled(x, weight), np.maximum(x @ (2 * weight), 0), rtol=1e-5, atol=1e-5)


def test_a_changed_parameter_shows_in_the_next_call(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx), ctx)
    x = _random(3, 7)
    for weight in (_random(7, 9), _random(7, 9) + 1):
        np.testing.assert_allclose(compiled(x, weight), np.maximum(x @ (2 * weight), 0), rtol=1e-5, atol=1e-5)


def test_results_of_earlier_calls_stay_valid(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx), ctx)
    x, weight = _random(3, 7), _random(7, 9)
    first = compiled(x, weight)
    kept = first.copy()
    compiled(-x, weight)
    np.testing.assert_array_equal(first, kept)


def test_transposed_reads_and_general_reshapes_are_right(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (5, 7)), "x")
        turned = b.emit("transpose", x, perm=(1, 0))
        return [b.emit("relu", turned), b.emit("reshape", turned, shape=(5, 7))]

    graph = _graph(ctx, build)
    x = _random(5, 7)
    for got, want in zip(compile_graph(graph, ctx)(x), interpret(graph, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_an_input_handed_through_is_copied(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (4, 3)), "x")
        return [x, b.emit("relu", x)]

    x = _random(4, 3)
    same, _ = compile_graph(_graph(ctx, build), ctx)(x)
    assert not np.shares_memory(same, x)
    np.testing.assert_array_equal(same, x)


def test_empty_tensors_give_empty_results(ctx: CompileContext) -> None:
    empty = dims.symbol("n", 0, 100)

    def build(b: GraphBuilder) -> list[Value]:
        return [b.emit("relu", b.input(TensorType(dtypes.f32, (empty, 3)), "x"))]

    assert compile_graph(_graph(ctx, build), ctx)(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_arguments_that_do_not_fit_are_named(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx), ctx)
    with pytest.raises(ShapeError, match=r"argument 1 \(w\).*expected \[7, 9\]"):
        compiled(_random(3, 7), _random(7, 8))
    with pytest.raises(DTypeError, match=r"argument 0 \(x\) is float64"):
        compiled(_random(3, 7).astype(np.float64), _random(7, 9))
    with pytest.raises(LaunchError, match=r"argument 1 \(w\) is missing: the compiled graph takes \(x, w\)"):
        compiled(_random(3, 7))


class _PlacedAdapter(NumpyAdapter):
    """Of arrays that stand for those on a device."""

    is_host = False


def test_what_is_overwritten_on_a_device_is_copied_back_to_an_array_of_the_host(
    ctx: CompileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (3,)), "x")
        return [b.emit("neg", x), b.emit("add", x, x)]

    compiled = compile_graph(replace(_graph(ctx, build), mutates=((0, 1),)), ctx)
    device = SimpleNamespace(adapter=_PlacedAdapter, in_stream=lambda stream: HostMemory())
    monkeypatch.setattr(compiled, "_memory", device)
    x = np.array([1, 2, 3], np.float32)
    assert compiled(x).tolist() == [-1, -2, -3]
    assert x.tolist() == [2, 4, 6]


def test_several_threads_call_one_compiled_graph(ctx: CompileContext) -> None:
    compiled = compile_graph(_two_layers(ctx), ctx)
    weight = _random(7, 9)

    def call(number: int) -> bool:
        x = _random(1 + number % 13, 7) + number
        return bool(np.allclose(compiled(x, weight), np.maximum(x @ (2 * weight), 0), rtol=1e-4, atol=1e-4))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(400)))


def _saved(ctx: CompileContext, path: Path) -> Path:
    weight = _random(7, 9)

    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (ROWS, 7)), "x")
        return [b.emit("relu", b.emit("matmul", x, b.constant(weight)))]

    compile_graph(_graph(ctx, build), ctx).save(path)
    return path


def test_a_saved_graph_gives_the_same_results_after_loading(ctx: CompileContext, tmp_path: Path) -> None:
    loaded = hidet.load(_saved(ctx, tmp_path / "model.hidet"))
    x = _random(5, 7)
    np.testing.assert_allclose(loaded(x), np.maximum(x @ _random(7, 9), 0), rtol=1e-5, atol=1e-5)


def test_loading_needs_neither_torch_nor_the_compiler(ctx: CompileContext, tmp_path: Path) -> None:
    path = _saved(ctx, tmp_path / "model.hidet")
    script = (
        "import sys, numpy, hidet\n"
        f"hidet.load({str(path)!r})(numpy.ones((2, 7), numpy.float32))\n"
        "compiler = ('torch', 'hidet.passes', 'hidet.schedule', 'hidet.cpu.codegen')\n"
        "print([m for m in sys.modules if m.startswith(compiler)])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_a_copied_or_pickled_graph_gives_the_same_results(
    ctx: CompileContext, copied: Callable[[CompiledGraph], CompiledGraph]
) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (3, 7)), "x")
        return [b.emit("add", b.emit("matmul", x, b.constant(_random(7, 9))), b.constant(_random(9)))]

    compiled = compile_graph(_graph(ctx, build), ctx)
    other = copied(compiled)
    assert all(array.ctypes.data % 64 == 0 and not array.flags.writeable for array in other.bundle.constants)
    assert np.array_equal(other(_random(3, 7)), compiled(x=_random(3, 7)))


def test_a_damaged_artifact_is_refused(ctx: CompileContext, tmp_path: Path) -> None:
    path = _saved(ctx, tmp_path / "model.hidet")
    data = bytearray(path.read_bytes())
    place = data.index(b"ELF") + 200
    data[place] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ArtifactError):
        hidet.load(path)
    path.write_bytes(bytes(data[: len(data) // 2]))
    with pytest.raises(ArtifactError, match="not a readable hidet artifact"):
        hidet.load(path)


def test_a_join_is_not_taken_for_an_epilogue_of_one_of_its_parts(ctx: CompileContext) -> None:
    def build(b: GraphBuilder) -> list[Value]:
        x = b.input(TensorType(dtypes.f32, (3, 7)), "x")
        w = b.input(TensorType(dtypes.f32, (7, 5)), "w")
        return [b.emit("concat", b.emit("matmul", x, w), x, axis=1)]

    graph = _graph(ctx, build)
    x, w = _random(3, 7), _random(7, 5)
    np.testing.assert_allclose(compile_graph(graph, ctx)(x, w), np.concatenate([x @ w, x], 1), rtol=1e-5, atol=1e-5)


def test_arrays_of_short_vectors_are_read_where_they_lie() -> None:
    """Vectors of 32 bytes in a local array are not aligned to 64."""
    from hidet.cpu.codegen import emit_module
    from hidet.ir import build
    from hidet.ir.expr import Var
    from hidet.ir.func import Function, Module
    from hidet.ir.stmt import Declare, Store
    from hidet.ir.types import BufferType, PointerType

    out = Var("out", PointerType(dtypes.bf16))
    array = Var("array", BufferType(dtypes.bf16, (build.index(4),), None, "local", lanes=16))
    body = build.seq([Declare(array), Store(out, (build.index(0),), build.load(array, 1))])
    text = emit_module(Module((Function("entry", (out,), body, kind="host"),), "entry"), arch_from_text("haswell"))
    loads = [line for line in text.splitlines() if "load <16 x i16>" in line]
    assert len(loads) == 1
    assert "align 32" in loads[0]


def test_a_saved_script_refuses_sizes_that_its_parameter_does_not_hold(ctx: CompileContext, tmp_path: Path) -> None:
    @hidet.script
    def fill(x: i32[1], y: i32[1], wide: i32):
        y[0] = x[0] + wide

    def build(b: GraphBuilder) -> list[Value]:
        b.input(TensorType(dtypes.i32, (ROWS,)), "told")
        one = TensorType(dtypes.i32, (1,))
        module = module_of([fill])
        call = ScriptCall("test::fill", structural_hash(module), (("input", 0), ("output", 0), ("value", 0)), module)
        return list(b.emit_all(script_operator([one]), [b.input(one, "x")], {"call": call, "values": (ROWS * 2**29,)}))

    compile_graph(_graph(ctx, build), ctx).save(tmp_path / "fill.hidet")
    compiled = hidet.load(tmp_path / "fill.hidet")
    assert compiled(np.zeros(3, np.int32), np.ones(1, np.int32)).tolist() == [3 * 2**29 + 1]
    with pytest.raises(DTypeError, match="argument wide of test::fill is 2147483648, expected an integer of type i32"):
        compiled(np.zeros(4, np.int32), np.ones(1, np.int32))
