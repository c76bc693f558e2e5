"""Scans: run by the simulator and compiled for every architecture."""

from __future__ import annotations

import numpy as np
import pytest

from hidet.cuda.testing.schedules import assert_compiles, assert_right, sources_of

ARCHITECTURES = ["sm_80", "sm_89", "sm_90a"]


def graph(given: str, result: str, call: str) -> str:
    return f"graph g(%x: {given}):\n  %0: {result} = {call}\n  return %0\n"


def same(type_: str, call: str) -> str:
    return graph(type_, type_, call)


SCANS = {
    "rows of a warp": same("f32[5, 70]", "cumsum(%x, axis=1)"),
    "one row of a warp": same("f32[70]", "cumsum(%x, axis=0)"),
    "rows of several chunks of a warp": same("f16[3, 256]", "cumsum(%x, axis=1)"),
    "rows of a block": same("f32[2, 1500]", "cumsum(%x, axis=1)"),
    "a row in parts": same("f32[8200]", "cumsum(%x, axis=0)"),
    "halves, reduced in f32": same("f16[2, 17000]", "cumsum(%x, axis=1)"),
    "columns of a thread": same("f32[40, 33]", "cumsum(%x, axis=0)"),
    "columns in parts": same("f32[100, 40]", "cumsum(%x, axis=0)"),
    "an axis between others": same("f32[3, 70, 5]", "cumsum(%x, axis=1)"),
    "from the end": same("f32[2, 1500]", "cumsum(%x, axis=1, reverse=True)"),
    "without the element itself": same("f32[3, 300]", "cumsum(%x, axis=1, exclusive=True)"),
    "both, in parts": same("f32[8200]", "cumsum(%x, axis=0, exclusive=True, reverse=True)"),
    "columns from the end, in parts": same("f32[100, 40]", "cumsum(%x, axis=0, exclusive=True, reverse=True)"),
    "bools": graph("bool[2, 300]", "i64[2, 300]", "cumsum(%x, axis=1)"),
    "products": same("f32[4, 60]", "cumprod(%x, axis=1)"),
    "logarithms of sums": same("f32[2, 300]", "logcumsumexp(%x, axis=1)"),
    "doubles": same("f64[2, 300]", "cumsum(%x, axis=1)"),
}


@pytest.mark.parametrize("name", SCANS)
def test_scans_are_right(name: str) -> None:
    text = SCANS[name]
    assert_right(text, "gpu.scan", 1e-2 if "f16" in text else 2e-4)


def extremes(type_: str, op: str, axis: int) -> str:
    places = type_.replace(type_.partition("[")[0], "i64")
    return f"graph g(%x: {type_}):\n  %0: {type_}, %1: {places} = {op}(%x, axis={axis})\n  return %0, %1\n"


@pytest.mark.parametrize(
    ("type_", "axis"), [("i32[3, 300]", 1), ("f32[8200]", 0), ("f16[90, 40]", 0), ("f32[2, 1500]", 1)]
)
@pytest.mark.parametrize("op", ["cummax", "cummin"])
def test_running_extremes_say_where_the_later_of_equals_is(type_: str, op: str, axis: int) -> None:
    shape = tuple(int(n) for n in type_.partition("[")[2].rstrip("]").split(","))
    drawn = np.random.default_rng(len(type_)).integers(-6, 6, shape)
    kind = {"i": np.int32, "f16": np.float16}.get(type_[:3] if type_[0] == "f" else "i", np.float32)
    x = drawn.astype(kind)
    if x.dtype.kind == "f":
        x.reshape(-1)[x.size // 2] = np.nan
        x.reshape(-1)[:3] = -np.inf
    assert_right(extremes(type_, op, axis), "gpu.scan", 0.0, {"x": x})


@pytest.mark.parametrize("hint", [100, 100000])
@pytest.mark.parametrize("length", [1, 31, 2700])
def test_one_program_serves_rows_of_any_length(length: int, hint: int) -> None:
    text = f"symbol n: 1.. hint {hint}\n" + same("f32[2, n]", "cumsum(%x, axis=1)")
    assert_right(text, "gpu.scan", 2e-4, sizes={"n": length})


def test_what_stands_before_and_after_is_part_of_the_kernel() -> None:
    text = """
    graph g(%x: f32[3, 70], %y: f32[3, 70]):
      %0: f32[3, 70] = mul(%x, %y)
      %1: f32[3, 70] = cumsum(%0, axis=1)
      %2: f32[3, 70] = add(%1, %y)
      return %2
    """
    assert_right(text, "gpu.scan", 2e-4)
    assert len(sources_of(text)) == 1


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    "text",
    [
        same("f16[64, 40000]", "cumsum(%x, axis=1)"),
        same("f32[4096, 512]", "cumsum(%x, axis=0)"),
        same("f32[4096, 512]", "logcumsumexp(%x, axis=1)"),
        same("i64[100000]", "cumsum(%x, axis=0)"),
        extremes("bf16[16, 70000]", "cummax", 1),
        extremes("f64[3000, 300]", "cummin", 0),
    ],
)
@pytest.mark.thorough(every=3)
def test_kernels_compile_without_spills(text: str, arch: str) -> None:
    assert_compiles(text, arch)
