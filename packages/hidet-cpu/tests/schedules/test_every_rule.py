"""Every schedule of the pack, checked as one who writes schedules would: other parameters, odd and symbolic sizes."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from hidet.context import make_context
from hidet.testing import check_rule


def graph(inputs: str, operation: str, result: str, symbols: str = "") -> str:
    return f"{symbols}graph g({inputs}):\n  %0: {result} = {operation}\n  return %0\n"


ROWS = "symbol m: 1..\nsymbol n: 1..\n"
GRAPHS = {
    "cpu.elementwise": graph("%x: f32[m, n], %y: f32[n]", "add(%x, %y)", "f32[m, n]", ROWS),
    "cpu.reduce": graph("%x: f32[m, n]", "sum(%x, axes=[1])", "f32[m]", ROWS),
    "cpu.scan": graph("%x: f32[m, n]", "cumsum(%x, axis=1)", "f32[m, n]", ROWS),
    "cpu.softmax": graph("%x: f16[m, n]", "softmax(%x, axis=1)", "f16[m, n]", ROWS),
    "cpu.normalize": graph("%x: f32[m, 70], %w: f32[70]", "rms_norm(%x, %w, rank=1)", "f32[m, 70]", "symbol m: 1..\n"),
    "cpu.matmul": graph("%a: f32[m, 33], %b: f32[33, n]", "matmul(%a, %b)", "f32[m, n]", ROWS),
    "cpu.conv": graph("%a: f32[1, 3, 9, 9], %b: f32[8, 3, 3, 3]", "conv(%a, %b, padding=1)", "f32[1, 8, 9, 9]"),
    "cpu.depthwise": graph(
        "%a: f32[1, 8, 9, 9], %b: f32[8, 1, 3, 3]", "conv(%a, %b, padding=1, groups=8)", "f32[1, 8, 9, 9]"
    ),
    "cpu.pool": graph("%a: f32[2, 8, 9, 9]", "max_pool(%a, kernel=[2, 2], stride=[2, 2])", "f32[2, 8, 4, 4]"),
    "cpu.attention": graph(
        "%q: f32[1, 2, 17, 16], %k: f32[1, 2, 19, 16], %v: f32[1, 2, 19, 16]",
        "attention(%q, %k, %v)",
        "f32[1, 2, 17, 16]",
    ),
}


def specs() -> dict[str, Any]:
    return {name: spec for name, spec in make_context("cpu").registry.schedules.items() if name.startswith("cpu.")}


def test_no_schedule_is_left_out() -> None:
    assert specs().keys() == GRAPHS.keys()


@pytest.mark.parametrize("where", ["interpreter", "target"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_schedule_gives_what_its_operator_means(name: str, where: Literal["interpreter", "target"]) -> None:
    sizes = [{"m": 5, "n": 37}, {"m": 1, "n": 8}] if "symbol" in GRAPHS[name] else None
    report = check_rule(specs()[name], GRAPHS[name], where=where, sizes=sizes, points=2, seeds=1)
    assert report.rule == name
