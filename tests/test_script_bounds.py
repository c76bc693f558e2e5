"""Option check_bounds for functions of the host: an access outside of an array ends the call, and says where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet.cuda.intrinsics import INTRINSICS
from hidet.errors import LaunchError
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.lang import attrs, f32, grid, i32, tensor
from hidet.lang.cuda import blockIdx, threadIdx
from hidet.passes.program.assert_bounds import assert_bounds

LINES = Path(__file__).read_text().splitlines()
CHECKED = {"check_bounds": True, "threads": 2}
m, n = hidet.dims.symbol("m"), hidet.dims.symbol("n")

with hidet.script_module() as module:

    @hidet.script
    def pick(x: f32[n], i: i32) -> f32:
        attrs.func_kind = "device"
        return x[i]  # in a function

    @hidet.script
    def write(x: f32[16], i: i32):
        attrs.func_kind = "public"
        x[i] = 1.0  # a write

    @hidet.script
    def read(x: f32[16], out: f32[1], i: i32):
        attrs.func_kind = "public"
        out[0] = x[i]  # a read

    @hidet.script
    def called(x: f32[n], out: f32[1], i: i32):
        attrs.func_kind = "public"
        out[0] = pick(x, i)

    @hidet.script
    def of_a_matrix(x: f32[m, n], i: i32, j: i32):
        attrs.func_kind = "public"
        x[i, j] = 1.0  # a matrix

    @hidet.script
    def on_the_stack(out: f32[1], i: i32):
        attrs.func_kind = "public"
        kept = tensor("local", "float32", [4])
        for k in range(4):
            kept[k] = 2.0
        out[0] = kept[i]  # on the stack

    @hidet.script
    def at_the_same_time(x: f32[n], out: f32[n], i: i32):
        attrs.func_kind = "public"
        for k in grid(n, attrs="p"):
            out[k] = x[k + i]  # in parallel

    @hidet.script
    def in_a_condition(x: f32[n], out: f32[1], i: i32):
        attrs.func_kind = "public"
        k = i
        while x[k] == 0.0:  # a condition
            k += 1
        out[0] = 1.0

    @hidet.script
    def guarded(x: f32[n], out: f32[1], i: i32):
        attrs.func_kind = "public"
        k = i
        while k < n and x[k] == 0.0:
            k += 1
        out[0] = x[i] if 0 <= i < n else -1.0

    @hidet.script
    def kernel(x: f32[n], out: f32[64], i: i32):
        attrs.func_kind = "kernel"
        attrs.cuda.grid_dim = 2
        attrs.cuda.block_dim = 32
        k = blockIdx.x * 32 + threadIdx.x
        out[k] = x[k + i]  # in a kernel

    @hidet.script
    def launched(x: f32[n], out: f32[64], i: i32):
        attrs.func_kind = "public"
        kernel(x, out, i)


@pytest.fixture(scope="module")
def checked():
    return module.build("cpu", options=CHECKED)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


FAULTS = [
    ("write", (zeros(16), 10**8), "x[", 100000000, 0, 16, "# a write"),
    ("write", (zeros(16), -1), "x[", -1, 0, 16, "# a write"),
    ("write", (zeros(16), 16), "x[", 16, 0, 16, "# a write"),
    ("read", (zeros(16), zeros(1), 20), "x[", 20, 0, 16, "# a read"),
    ("called", (zeros(5), zeros(1), 5), "x[", 5, 0, 5, "# in a function"),
    ("of_a_matrix", (zeros(4, 8), 4, 0), "x[", 4, 0, 4, "# a matrix"),
    ("of_a_matrix", (zeros(4, 8), 0, 8), "x[", 8, 1, 8, "# a matrix"),
    ("on_the_stack", (zeros(1), 4), "kept[", 4, 0, 4, "# on the stack"),
    ("in_a_condition", (zeros(7), zeros(1), 3), "x[", 7, 0, 7, "# a condition"),
    ("launched", (zeros(64), zeros(64), 1), "x[", 64, 0, 64, "# in a kernel"),
]


@pytest.mark.parametrize(("function", "arguments", "access", "index", "dim", "extent", "line"), FAULTS)
def test_an_access_outside_names_array_index_extent_and_line(
    checked, function, arguments, access, index, dim, extent, line
):
    """red-team.md finding 11."""
    with pytest.raises(LaunchError) as caught:
        checked[function](*arguments)
    error = caught.value
    assert access in error.message
    assert f"index {index} of dim {dim} is outside of its {extent} elements" in error.message
    assert "assertion" not in error.message
    assert error.loc.file == __file__
    assert LINES[error.loc.line - 1].endswith(line)


def test_threads_that_fail_together_report_one_index(checked):
    """red-team.md finding 11."""
    x = zeros(100_000)
    for _ in range(20):
        with pytest.raises(LaunchError, match=r"index 1000[0-9]{2} of dim 0 is outside of its 100000 elements"):
            checked["at_the_same_time"](x, zeros(100_000), 50)


def test_accesses_inside_give_what_they_give_without_checks(checked):
    x, out = np.arange(1, 17, dtype=np.float32), zeros(1)
    checked["read"](x, out, 15)
    assert out == 16
    checked["guarded"](zeros(4), out, 7)
    assert out == -1
    checked["guarded"](zeros(4), out, 2)
    assert out == 0
    checked["on_the_stack"](out, 3)
    assert out == 2
    many = zeros(1000)
    checked["at_the_same_time"](many + 3, many, 0)
    assert (many == 3).all()
    far = zeros(64)
    checked["launched"](np.arange(64, dtype=np.float32), far, 0)
    assert far.tolist() == list(range(64))


def test_a_script_alone_is_built_with_checks_too():
    """user-walk.md section 6, row 12: for a CPU, too."""

    @hidet.script
    def add(a: f32[3], b: f32[3], out: f32[3], i: i32):
        out[i] = a[i] + b[i]

    with pytest.raises(LaunchError, match=r"a\[.*index 3 of dim 0 is outside of its 3 elements"):
        add.build(options=CHECKED)(zeros(3), zeros(3), zeros(3), 3)
    assert "failure" not in add.build("cpu").source()


@pytest.mark.parametrize(("debug", "given", "is_checked"), [("1", None, True), ("0", None, False), ("1", False, False)])
def test_debugging_checks_indices_where_the_option_says_nothing(monkeypatch, debug, given, is_checked):
    monkeypatch.setenv("HIDET_DEBUG", debug)

    @hidet.script
    def put(x: f32[8], i: i32):
        x[i] = 1.0

    assert ("failure" in put.build("cpu", {"check_bounds": given}).source()) == is_checked


def test_assertions_with_values_are_printed_and_parsed():
    function = assert_bounds(write.function)
    text = print_module(hidet.ir.func.Module((function,), function.name))
    assert "of dim 0 is outside of its {} elements', " in text
    assert print_module(parse_module(text, INTRINSICS)) == text
