"""Tuning on a real device."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.errors import HidetWarning
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(f"ignore::{HidetWarning.__module__}.HidetWarning"),
]

PRODUCT = """graph g(%a: f16[512, 1024], %b: f16[1024, 768]):
  %0: f16[512, 768] = matmul(%a, %b)
  return %0
"""


def test_a_product_is_tuned_on_the_device_and_stays_right(tmp_path) -> None:
    graph = parse_graph(PRODUCT, load_registry().operators)
    store = str(tmp_path / "choices.sqlite")
    options = {"search_space": 1}
    report = hidet.tune(graph, target="cuda", budget="60s", store=store, options=options)
    print(report)
    (task,) = report.tasks
    assert not task.note and task.tried > 1 and "MHz" in report.device
    assert report.tuned_seconds is None or report.is_dropped or report.tuned_seconds <= report.default_seconds
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((512, 1024), (1024, 768)))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(report.compiled(a, b), wanted, atol=2e-3 * np.abs(wanted).max())
    again = hidet.tune(graph, target="cuda", budget="60s", store=store, options=options)
    assert again.tasks[0].is_stored and again.tasks[0].params == task.params
