"""The installed wheel: hidet finds the target, and what it compiles computes what numpy computes."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet import dims, dtypes
from hidet.context import make_context
from hidet.drivers import build_ir_module
from hidet.errors import CodegenError, CompileError, LaunchError, OptionError, PositionError
from hidet.graph import GraphBuilder, TensorType
from hidet.ir import build
from hidet.ir.expr import Const, Load, Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.ir.stmt import Print, Stmt, Store
from hidet.ir.types import PointerType
from hidet.testing import check_edges
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_graph, random_inputs

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler: no `cc` on the PATH")

OPTIONS = {"cache": False}
CTX = make_context("example-c", OPTIONS)
X = Var("x", PointerType(dtypes.f32))

COUNT_BITS = """\
module(entry="count_bits")

@kernel
def kernel(x: ~u32, y: ~u32):
    i = grid()
    y[i] = call("example_c.popcount", x[i], type=u32)

@host
def count_bits(x: ~u32, y: ~u32, n: i64):
    launch("kernel", [n], [x, y])
"""


def convolution_model() -> hidet.Graph:
    """Images of any number to probabilities of ten classes."""
    builder = GraphBuilder(CTX.registry.operators)
    n = dims.symbol("n", lower=1)
    images = builder.input(TensorType(dtypes.f32, (n, 3, 8, 8)), "images")
    filters = builder.input(TensorType(dtypes.f32, (4, 3, 3, 3)), "filters", is_parameter=True)
    weight = builder.input(TensorType(dtypes.f32, (10, 64)), "weight", is_parameter=True)
    hidden = builder.emit("relu", builder.emit("conv", images, filters, padding=((1, 1), (1, 1))))
    pooled = builder.emit("max_pool", hidden, kernel=(2, 2), stride=(2, 2))
    rows = builder.emit("reshape", pooled, shape=(n, 64))
    return builder.build([builder.emit("softmax", builder.emit("linear", rows, weight), axis=1)])


def arrays_of_model(images: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = ((images, 3, 8, 8), (4, 3, 3, 3), (10, 64))
    return [random.standard_normal(shape, np.float32) for shape in shapes]


def lookup() -> hidet.Graph:
    builder = GraphBuilder(CTX.registry.operators)
    table = builder.input(TensorType(dtypes.f32, (5, 2)), "table")
    rows = builder.input(TensorType(dtypes.i64, (3,)), "rows")
    return builder.build([builder.emit("index_select", table, rows, axis=0)])


def test_the_target_is_found_by_its_entry_point() -> None:
    owner = CTX.registry.owners["targets", "example-c"]
    assert str(owner) == 'hidet-example-target 0.1.0 (plugin "example_target")'


def test_another_machine_is_refused() -> None:
    with pytest.raises(OptionError, match="for this machine alone, got 'riscv'"):
        make_context("example-c:riscv")


def test_a_model_computes_what_numpy_computes_at_every_size_and_nobody_is_warned() -> None:
    graph = convolution_model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = hidet.compile(graph, target="example-c", options=OPTIONS)
    for images in (1, 3):
        arrays = arrays_of_model(images)
        (expected,) = interpret(graph, arrays)
        np.testing.assert_allclose(np.asarray(compiled(*arrays)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_compute_what_numpy_computes(seed: int) -> None:
    graph = random_graph(seed, CTX.registry.operators, mutating=False)
    arrays = random_inputs(graph, seed=0)
    results = hidet.compile(graph, target="example-c", options=OPTIONS)(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    for ours, right in zip(results, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(np.asarray(ours), right, rtol=1e-6, atol=1e-6)


def test_scalar_operations_are_those_of_docs_ir_at_the_edges() -> None:
    report = check_edges("example-c")
    assert report.wrong == ()
    assert set(report.refused) == {f"target example-c has no type {name}" for name in ("f16", "bf16")}


def test_a_saved_model_runs_again(tmp_path: Path) -> None:
    arrays = arrays_of_model(2)
    compiled = hidet.compile(convolution_model(), target="example-c", options=OPTIONS)
    compiled.save(tmp_path / "model.hidet")
    loaded = hidet.load(tmp_path / "model.hidet")
    np.testing.assert_array_equal(np.asarray(loaded(*arrays)), np.asarray(compiled(*arrays)))


def test_positions_are_checked_without_a_word_from_the_target() -> None:
    compiled = hidet.compile(lookup(), target="example-c", options=OPTIONS)
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert np.asarray(compiled(table, np.array([4, 0, 2]))).tolist() == [[8, 9], [0, 1], [4, 5]]
    with pytest.raises(PositionError, match="5"):
        compiled(table, np.array([0, 5, 0]))


def test_its_intrinsic_is_interpreted_and_compiled_alike() -> None:
    module = parse_module(COUNT_BITS, CTX.registry.intrinsic_rows())
    bits = np.array([0, 1, 255, 2**32 - 1], np.uint32)
    simulated, computed = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    run_module(module, [bits, simulated, 4])
    build_ir_module(module, "example-c", OPTIONS)(bits, computed, 4)
    assert simulated.tolist() == computed.tolist() == [0, 1, 8, 32]


def test_an_assertion_that_fails_ends_the_call_with_its_message() -> None:
    text = """\
module(entry="check")

@kernel
def kernel(x: ~f32):
    i = grid()
    assert i < 2, ("element {} of {}", i, 2)
    x[i] = 1.0

@host
def check(x: ~f32, n: i64):
    launch("kernel", [n], [x])
"""
    compiled = build_ir_module(parse_module(text), "example-c", OPTIONS)
    x = np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match="in kernel kernel: element 2 of 2"):
        compiled(x, 4)
    assert x.tolist() == [1, 1, 0, 0]
    compiled(x, 2)


def host_function(*body: Stmt) -> Module:
    """`main(x: ~f32)` with these statements, which name `X`."""
    return Module((Function("main", (X,), build.seq(body), "host"),), "main")


def test_memory_of_a_side_that_is_not_chosen_is_not_read() -> None:
    missing = Load(Const(0, PointerType(dtypes.f32)), (build.index(0),), dtypes.f32)
    first = build.load(X, 0)
    value = build.select(first > 1.0, missing * missing + 1.0, first + 1.0)
    x = np.zeros(1, np.float32)
    build_ir_module(host_function(Store(X, (build.index(0),), value)), "example-c", OPTIONS)(x)
    assert x.tolist() == [1]


def test_parts_that_are_shared_are_written_once() -> None:
    value = build.load(X, 0)
    for _ in range(40):
        value = value + value
    compiled = build_ir_module(host_function(Store(X, (build.index(0),), value)), "example-c", OPTIONS)
    x = np.ones(1, np.float32)
    compiled(x)
    assert x.tolist() == [2.0**40]
    assert compiled.source().count(" + ") < 100


def test_what_is_printed_goes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    module = host_function(Print('%d of "%5.2f"?\n', (build.index(3), build.load(X, 0))))
    build_ir_module(module, "example-c", OPTIONS)(np.full(1, 2.5, np.float32))
    assert capfd.readouterr().out == '3 of " 2.50"?\n'


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("x[0] = broadcast(1.0, 4)", "no expression Broadcast"),
        ("x[0] = erfinv(x[1])", "no operation erfinv of f32"),
        ("asm('nop', [], [], [], True, False)", "no statement Assembly"),
    ],
)
def test_what_it_does_not_have_is_refused_by_name(statement: str, message: str) -> None:
    module = parse_module(f'module(entry="main")\n\n@host\ndef main(x: ~f32):\n    {statement}\n')
    with pytest.raises(CodegenError, match=message):
        build_ir_module(module, "example-c", OPTIONS)


def test_launches_with_blocks_of_threads_are_refused() -> None:
    text = (
        'module(entry="main")\n\n@kernel\ndef kernel(x: ~f32):\n    x[0] = 1.0\n\n'
        '@host\ndef main(x: ~f32):\n    launch("kernel", [1], [x], block=[32])\n'
    )
    with pytest.raises(CodegenError, match="kernel kernel is launched with blocks of threads"):
        build_ir_module(parse_module(text), "example-c", OPTIONS)


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError, match="no `cc` on the PATH"):
        hidet.compile(lookup(), target="example-c", options=OPTIONS)
