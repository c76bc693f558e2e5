"""Loops whose number of iterations is known before the first: their memory is laid out once."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.dims import symbol
from hidet.graph import GraphBuilder, TensorType
from hidet.operators import all_operators
from hidet.runtime.executor import Executor

OPERATORS = {spec.name: spec for spec in all_operators()}


ROWS = symbol("rows")


def recurrence(steps, rows=ROWS):
    """h = x[i] + 0.5 h and g = g * h, with h stacked, for x[steps, rows]."""
    b = GraphBuilder(OPERATORS)
    x, h, g = (b.input(TensorType(dtypes.f32, shape)) for shape in ((steps, rows), (rows,), (rows,)))
    body = b.nested("step")
    state, product, now = (body.input(TensorType(dtypes.f32, (rows,))) for _ in range(3))
    after = body.emit("add", now, body.emit("mul", state, body.constant(0.5, dtypes.f32)))
    graph = body.build([after, body.emit("mul", product, after), after])
    return b.build(b.emit_all("scan", [h, g, x], {"body": graph, "carried": 2, "scanned": 1}))


def expected(x, h, g):
    rows = []
    for now in x:
        h = now + np.float32(0.5) * h
        g = g * h
        rows.append(h)
    return h, g, np.array(rows, np.float32).reshape(x.shape)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 12])
def test_carried_and_stacked_values_are_right_after_any_number_of_iterations(steps):
    compiled = hidet.compile(recurrence(symbol("steps")), target="cpu")
    rng = np.random.default_rng(steps)
    x, h, g = (rng.standard_normal(shape).astype(np.float32) for shape in ((steps, 5), (5,), (5,)))
    before = h.copy(), g.copy()
    for _ in range(2):
        for made, wanted in zip(compiled(x, h, g), expected(x, h, g), strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-6)
    # The first iteration reads what the caller has, and none writes there.
    assert np.array_equal(h, before[0]) and np.array_equal(g, before[1])


def test_results_of_a_loop_outlive_the_next_call():
    compiled = hidet.compile(recurrence(40), target="cpu")
    x, y = np.random.default_rng(0).standard_normal((2, 40, 3)).astype(np.float32)
    start = np.ones(3, np.float32)
    first = compiled(x, start, start)
    kept = [made.copy() for made in first]
    compiled(y, start, start)
    for made, wanted in zip(first, kept, strict=True):
        assert np.array_equal(made, wanted)


def test_iterations_of_a_known_number_are_not_calls_of_a_program(monkeypatch):
    compiled = hidet.compile(recurrence(40), target="cpu")
    calls = []
    execute = Executor.execute
    monkeypatch.setattr(Executor, "execute", lambda self, *given: calls.append(self) or execute(self, *given))
    ones = np.ones(3, np.float32)
    made = compiled(np.ones((40, 3), np.float32), ones, ones)
    assert len(calls) == 1
    np.testing.assert_allclose(made[0], 2, rtol=1e-6)
