"""Scalar operations of thread IR give the same on every target where hardware and languages differ (docs/ir.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hidet.errors import LaunchError
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.plugins.host import load_registry
from hidet.testing import check_edges
from hidet.testing.edges import EDGES, Edge

PAGE = Path(__file__).parents[1] / "docs" / "ir.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+)(?: to (\w+))? \| (`.*`) \|$", re.MULTILINE)
CASE = re.compile(r"`([^`]+)` → `([^`]+)`")


def test_the_interpreter_gives_what_the_table_says() -> None:
    report = check_edges(None)
    assert report.wrong == report.refused == ()
    assert report.checked > len(EDGES)


# A driver of OpenCL compiles a kernel for each of some thousand edges, which takes it a minute.
@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [pytest.param(t, marks=[pytest.mark.thorough] if t == "opencl" else []) for t in sorted(load_registry().targets)],
)
def test_a_target_gives_what_the_table_says(target: str) -> None:
    """Of every wheel that is installed. A type may be refused, but not most of them."""
    try:
        report = check_edges(target)
    except LaunchError as error:
        pytest.skip(f"target {target} cannot run here: {error.message}")
    assert report.wrong == ()
    assert report.checked > 300


def test_the_table_of_the_documentation_is_the_one_that_is_checked() -> None:
    rows = [
        Edge(op, types, tuple(operands.split(", ")), result, to)
        for op, types, to, cases in ROW.findall(PAGE.read_text())
        for operands, result in CASE.findall(cases)
    ]
    assert rows == list(EDGES)


def test_the_table_names_operations_that_there_are() -> None:
    assert {edge.op for edge in EDGES} <= {*UNARY_OPS, *BINARY_OPS, "cast"}


def test_a_wrong_result_is_told_with_operation_type_and_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hidet.testing.edges.EDGES", (Edge("add", "i8", ("max", "1"), "max"),))
    assert check_edges(None).wrong == ("add of i8 at (max, 1): -128, -128, -128, expected max",)
