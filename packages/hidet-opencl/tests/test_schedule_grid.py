"""Every schedule that the compiler chooses for a grid of operators, types, shapes and layouts, run by a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet.context import make_context
from hidet.driver import compile_graph
from hidet.gpu.testing.grid import CASES, GRID, TOLERANCE, argument, graph_of
from hidet.testing.interpret import interpret


def _case(name: str, dtype: str) -> Any:
    """Of each row f32, or its first type, runs with every commit: a driver takes a second or two for a product."""
    types = GRID[name].dtypes
    is_first = dtype == ("f32" if "f32" in types else types[0])
    return pytest.param(name, dtype, marks=() if is_first else pytest.mark.models)


@pytest.mark.parametrize(("name", "dtype"), [_case(*case) for case in CASES])
@pytest.mark.thorough(every=8)
def test_chosen_schedules_are_right_on_the_device(name: str, dtype: str) -> None:
    graph = graph_of(name, dtype, GRID[name].small)
    random = np.random.default_rng(3)
    arrays = [argument(value, random) for value in graph.inputs]
    compiled = compile_graph(graph, make_context("opencl"))
    assert GRID[name].is_nest or compiled.report().nodes.fallback == 0
    found = compiled(*arrays)
    (right,) = (np.asarray(array).astype(np.float64) for array in interpret(graph, arrays))
    scale = max(1.0, float(np.abs(right).max()))
    tolerance = TOLERANCE[graph.outputs[0].tensor.dtype.short]
    np.testing.assert_allclose(found.astype(np.float64), right, rtol=0, atol=tolerance * scale)
