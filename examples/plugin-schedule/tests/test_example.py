"""The installed wheel: hidet finds it, prefers its schedule, and the numbers are right for odd sizes."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.context import make_context
from hidet.fusion.fuse import fuse
from hidet.graph import GraphBuilder
from hidet.graph.types import TensorType
from hidet.schedule.select import select_schedules
from hidet.testing import check_rule

GRAPH = """
symbol m: 0..
symbol n: 0..
graph distances(%points: f32[m, 3], %centers: f32[n, 3]):
  %0: f32[m, n] = squared_distance(%points, %centers)
  return %0
"""


def distance_graph(m: int, n: int, k: int, dtype: dtypes.DType = dtypes.f32) -> hidet.Graph:
    builder = GraphBuilder(make_context("cpu").registry.operators)
    points = builder.input(TensorType(dtype, (m, k)), "points")
    centers = builder.input(TensorType(dtype, (n, k)), "centers")
    return builder.build([builder.emit("squared_distance", points, centers)])


def chosen_rule(graph: hidet.Graph) -> str:
    ctx = make_context("cpu")
    (step,) = select_schedules(fuse(graph, ctx), ctx).steps
    return step.rule_name


def test_the_plugin_is_found_by_its_entry_point() -> None:
    registry = make_context("cpu").registry
    assert str(registry.owners["operators", "squared_distance"]) == 'hidet-example-plugin 0.1.0 (plugin "example")'


def test_its_schedule_is_chosen_for_float32() -> None:
    assert chosen_rule(distance_graph(3, 5, 7)) == "example.squared_distance"


@pytest.mark.parametrize("where", ["interpreter", "target"])
def test_its_schedule_is_right_however_many_centres_are_done_at_a_time(where: Literal["interpreter", "target"]) -> None:
    report = check_rule(make_context("cpu").registry.schedules["example.squared_distance"], GRAPH, where=where)
    assert {trial.params for trial in report.trials} >= {(("squared_distance(f32[m, 3], f32[n, 3])", 1),)}


def test_another_dtype_is_left_to_other_rules() -> None:
    assert chosen_rule(distance_graph(3, 5, 7, dtypes.f64)) != "example.squared_distance"


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (17, 4, 64), (8, 13, 1), (2, 3, 0), (0, 3, 2), (2, 0, 3)]
)
def test_distances_equal_numpy(m, n, k) -> None:
    random = np.random.default_rng(0)
    points, centers = random.standard_normal((m, k), np.float32), random.standard_normal((n, k), np.float32)
    compiled = hidet.compile(distance_graph(m, n, k), target="cpu")
    expected = ((points[:, None].astype(np.float64) - centers[None]) ** 2).sum(-1)
    np.testing.assert_allclose(np.asarray(compiled(points, centers)), expected, rtol=1e-5, atol=1e-6)


def test_without_the_plugin_the_operator_is_unknown() -> None:
    program = (
        "from hidet.context import make_context\n"
        "from hidet.errors import UnsupportedOp\n"
        "try: make_context('cpu').registry.operator('squared_distance')\n"
        "except UnsupportedOp as error: print(error)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], env={"HIDET_PLUGINS": "cpu"}, capture_output=True, text=True, check=True
    )
    assert "operator 'squared_distance' is unknown" in finished.stdout
