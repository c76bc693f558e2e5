"""Small graphs whose results have a size that depends on data, with inputs and the results that numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dims import symbol
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.types import ValueType
from hidet.operators import all_operators, selection
from hidet.testing.control_graphs import Arrays, ControlCase

_ROWS = symbol("rows")


def selection_cases() -> list[ControlCase]:
    """nonzero, masked_select, masked_scatter, compress and unique on tensors of fixed and of symbolic sizes, empty ones
    too."""
    flat = [_nonzero(), _masked_select(), _masked_scatter(), _compress(), _compress_flat()]
    return [*flat, *_uniques(), _unique_rows(0), _unique_rows(1)]


def _builder(name: str) -> GraphBuilder:
    return GraphBuilder({spec.name: spec for spec in all_operators()}, name)


def _tensor(*shape: Any, dtype: Any = dtypes.f32) -> ValueType:
    return TensorType(dtype, shape)


def _digits(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 4, shape).astype(np.float32)


def _nonzero() -> ControlCase:
    b = _builder("nonzero")
    graph = b.build([selection.nonzero(b, b.input(_tensor(_ROWS, 3)))])
    arrays = (_digits(5, 3), np.zeros((2, 3), np.float32), np.zeros((0, 3), np.float32))
    return ControlCase("nonzero", graph, tuple(((x,), (np.argwhere(x),)) for x in arrays))


def _masked_select() -> ControlCase:
    b = _builder("masked_select")
    x, mask = b.input(_tensor(_ROWS, 3)), b.input(_tensor(3, dtype=dtypes.boolean))
    kept = selection.masked_select(b, x, mask)
    graph = b.build([b.emit("neg", kept)])

    def call(rows: int, *flags: bool) -> tuple[Arrays, Arrays]:
        x, mask = _digits(rows, 3), np.array(flags)
        return (x, mask), (-x[np.broadcast_to(mask, x.shape)],)

    return ControlCase(
        "masked_select", graph, (call(4, True, False, True), call(2, False, False, False), call(3, True, True, True))
    )


def _masked_scatter() -> ControlCase:
    b = _builder("masked_scatter")
    x, mask, src = (b.input(_tensor(_ROWS, 3)), b.input(_tensor(3, dtype=dtypes.boolean)), b.input(_tensor(4, 5)))
    graph = b.build([selection.masked_scatter(b, x, mask, src)])

    def call(rows: int, *flags: bool) -> tuple[Arrays, Arrays]:
        x, mask, src = _digits(rows, 3), np.array(flags), _digits(4, 5, seed=1)
        result = x.copy()
        result[np.broadcast_to(mask, x.shape)] = src.reshape(-1)[: rows * mask.sum()]
        return (x, mask, src), (result,)

    calls = (call(5, True, False, True), call(6, False, True, True), call(4, False, False, False), call(0, *[True] * 3))
    return ControlCase("masked_scatter", graph, calls)


def _compress() -> ControlCase:
    b = _builder("compress")
    x, condition = b.input(_tensor(_ROWS, 3)), b.input(_tensor(2, dtype=dtypes.boolean))
    graph = b.build([selection.compress(b, x, condition, 1)])
    flags = ([True, False], [False, True], [False, False])
    array = _digits(4, 3)
    return ControlCase(
        "compress", graph, tuple(((array, np.array(f)), (np.compress(f, array, axis=1),)) for f in flags)
    )


def _compress_flat() -> ControlCase:
    b = _builder("compress_flat")
    x, condition = b.input(_tensor(2, 3)), b.input(_tensor(6, dtype=dtypes.boolean))
    graph = b.build([selection.compress(b, x, condition, None)])
    array, flags = _digits(2, 3), np.array([True, False, True, True, False, False])
    return ControlCase("compress_flat", graph, (((array, flags), (np.compress(flags, array),)),))


def _uniques() -> list[ControlCase]:
    arrays = (
        _digits(9),
        np.array([3, 1, 3, 2, 1], np.float32),
        np.array([np.nan, 1, np.nan, 1], np.float32),
        np.array([], np.float32),
    )
    cases = []
    for is_sorted in (True, False):
        b = _builder("unique" if is_sorted else "unique_in_order")
        graph = b.build(selection.unique(b, b.input(_tensor(_ROWS)), None, is_sorted=is_sorted))
        calls = tuple(((x,), _expected_unique(x, None, is_sorted)) for x in arrays)
        cases.append(ControlCase(b.name, graph, calls))
    return cases


def _unique_rows(axis: int) -> ControlCase:
    name = f"unique_along_{axis}"
    b = _builder(name)
    graph = b.build(selection.unique(b, b.input(_tensor(_ROWS, 2, 3)), axis))
    x = (_digits(6, 2, 3) > 1).astype(np.float32)
    repeated = np.concatenate([x, x], axis=0)
    return ControlCase(name, graph, tuple(((a,), _expected_unique(a, axis, True)) for a in (x, repeated)))


def _expected_unique(x: Any, axis: int | None, is_sorted: bool) -> Arrays:
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    inverse = inverse.reshape(-1)
    if not is_sorted:
        turn = np.argsort(first)
        values, first, counts = values[turn], first[turn], counts[turn]
        inverse = np.argsort(turn)[inverse] if len(turn) else inverse
    return values, first, inverse, counts
