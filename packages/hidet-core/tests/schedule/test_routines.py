"""Routines as thread IR, run by the interpreter: they give what the numpy table says for every element type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hidet import dims
from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.dims import Dim
from hidet.dtypes import from_numpy
from hidet.errors import ScheduleError
from hidet.fusion.fuse import fuse
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.graph import Graph
from hidet.ir.interpret import run_module
from hidet.plugins.host import load_registry
from hidet.schedule.fallback import FallbackRule
from hidet.schedule.task import Task
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]
TARGET: Any = SimpleNamespace(name="none", prefers_channels_last=False, work_item="rows")
TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool"]


def graph_of(operator: str, x: Array, attrs: Mapping[str, Any]) -> Graph:
    """A graph of one operator on one input."""
    builder = GraphBuilder(load_registry().operators)
    value = builder.input(TensorType(from_numpy(x.dtype), x.shape), "x")
    return builder.build(builder.emit_all(operator, [value], attrs))


def context() -> CompileContext:
    return CompileContext(target=TARGET, registry=load_registry(), options=Options(), cache=open_cache(enabled=False))


def task_of(graph: Graph) -> Task:
    """The only task of a graph."""
    (task,) = fuse(graph, context()).tasks
    return task


def constants(sizes: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes of a graph without symbols."""
    return tuple(dims.evaluate(size, {}) for size in sizes)


def run_fallback(graph: Graph, x: Array) -> list[Array]:
    """The results of the fallback's program under the interpreter."""
    task = task_of(graph)
    match = FallbackRule().match(task, context())
    assert match is not None
    program = FallbackRule().build(match, None, context())
    results = [np.zeros(constants(t.type.shape), t.type.dtype.numpy()) for t in task.outputs]
    pointers = program.module.function(program.module.entry).params[1 + len(results) :]
    scratch = [
        np.zeros(nbytes // pointer.dtype.nbytes, pointer.dtype.numpy())
        for nbytes, pointer in zip(constants(program.scratch), pointers, strict=False)
    ]
    run_module(program.module, [np.ascontiguousarray(x), *results, *scratch, *constants(program.arguments)])
    return results


def elements(dtype: str) -> Array:
    """Rows along axis 1 with equal elements; of floats also both zeros, infinities and NaN."""
    values = np.random.default_rng(0).integers(-6, 6, (2, 21, 2)).astype(np.float64)
    if "float" in dtype:
        values += 0.5
        values[0, [3, 9], 1] = np.nan
        values[0, 5, 1], values[1, 12, 0] = np.inf, -np.inf
        values[1, 2, 1], values[1, 4, 1] = -0.0, 0.0
    if dtype in ("uint8", "bool"):
        values = np.abs(values) // (6 if dtype == "bool" else 1)
    return values.astype(getattr(ml_dtypes, dtype, None) or dtype)


def assert_same(actual: list[Array], expected: list[Array]) -> None:
    """Equal elements, NaN included, and equal positions."""
    for a, b in zip(actual, expected, strict=True):
        assert np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("dtype", TYPES)
def test_sort_is_stable_and_has_nan_as_the_largest(dtype: str, descending: bool) -> None:
    x = elements(dtype)
    graph = graph_of("sort", x, {"axis": 1, "descending": descending})
    assert_same(run_fallback(graph, x), interpret(graph, [x]))


@pytest.mark.parametrize("largest", [False, True], ids=["smallest", "largest"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_topk_gives_the_earlier_of_equals_first(dtype: str, largest: bool) -> None:
    x = elements(dtype)
    graph = graph_of("topk", x, {"axis": 1, "k": 5, "largest": largest})
    assert_same(run_fallback(graph, x), interpret(graph, [x]))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 17, 33])
def test_rows_of_every_length_are_merged_to_the_end(length: int) -> None:
    x = np.random.default_rng(length).standard_normal((2, length)).astype("f")
    graph = graph_of("argsort", x, {"axis": -1})
    assert_same(run_fallback(graph, x), interpret(graph, [x]))


@pytest.mark.parametrize("k", [0, 1, 3, 140])
def test_topk_selects_few_and_sorts_for_many(k: int) -> None:
    x = np.random.default_rng(k).standard_normal((1, 150)).astype("f")
    graph = graph_of("topk", x, {"axis": -1, "k": k})
    assert_same(run_fallback(graph, x), interpret(graph, [x]))


@pytest.mark.parametrize("x", [np.float32(3).reshape(()), np.zeros((2, 0), "f"), np.zeros((0, 3), "f")], ids=str)
def test_scalars_and_empty_tensors_are_sorted(x: Array) -> None:
    graph = graph_of("sort", x, {"axis": -1})
    assert_same(run_fallback(graph, x), interpret(graph, [x]))


@pytest.mark.parametrize("ratio", [1e1, 1e4, 1e6, -1e6])
@pytest.mark.parametrize(
    ("operator", "attrs"),
    [
        ("var", {"axes": (1,), "correction": 1}),
        ("moments", {"axes": (1,)}),
        ("layer_norm", {"rank": 1, "eps": 0.0}),
        ("group_norm", {"groups": 1, "eps": 0.0}),
    ],
)
def test_plain_loops_keep_the_digits_of_deviations_where_means_are_large(
    operator: str, attrs: Mapping[str, Any], ratio: float
) -> None:
    """red-team.md goal 5, for targets that have no schedule of their own."""
    x = (np.random.default_rng(0).standard_normal((3, 250)) + ratio).astype("f")
    graph = graph_of(operator, x, attrs)
    wide = graph_of(operator, x.astype(np.float64), attrs)
    found = [np.asarray(a, np.float64) for a in run_fallback(graph, x)]
    right = interpret(wide, [x.astype(np.float64)])
    if operator == "moments":  # what a mean lacks is another number for another mean
        found, right = [found[0] + found[1], *found[2:]], [right[0] + right[1], *right[2:]]
    for a, b in zip(found, right, strict=True):
        assert np.abs(a - b).max() <= 1e-6 * np.abs(b).max()


@pytest.mark.parametrize("operator", ["kthvalue", "median"])
def test_order_statistics_are_read_from_the_sorted_row(operator: str) -> None:
    x = elements("float32")
    graph = graph_of(operator, x, {"axis": 1, **({"k": 4} if operator == "kthvalue" else {})})
    assert_same(run_fallback(graph, x), interpret(graph, [x]))


def test_a_routine_without_a_program_is_named() -> None:
    x = np.zeros((3, 4), "f")
    task = task_of(graph_of("nonzero", x, {"count": 5}))
    with pytest.raises(ScheduleError, match="routine nonzero has no program"):
        FallbackRule().match(task, context())
