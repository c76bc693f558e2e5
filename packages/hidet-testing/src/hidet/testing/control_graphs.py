"""Small graphs with control flow, each with inputs and the results that numpy gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.dims import symbol
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.graph.control import emit_if, emit_while
from hidet.operators import all_operators

Arrays = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ControlCase:
    """A graph, and pairs of inputs and expected outputs."""

    name: str
    graph: Graph
    calls: tuple[tuple[Arrays, Arrays], ...]


def control_cases() -> list[ControlCase]:
    """Branches and loops whose results have fixed, symbolic and data-dependent sizes."""
    return [make() for make in _CASES]


def _builder(name: str) -> GraphBuilder:
    return GraphBuilder({spec.name: spec for spec in all_operators()}, name)


def _f32(*shape: Any) -> TensorType:
    return TensorType(dtypes.f32, shape)


FLAG, COUNT = TensorType(dtypes.boolean, ()), TensorType(dtypes.i64, ())


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def branches_of_one_shape() -> ControlCase:
    """y = a + b if p else a * b, then doubled; a has a symbolic extent."""
    n = symbol("rows")
    b = _builder("branches_of_one_shape")
    p, x, y = b.input(FLAG, "p"), b.input(_f32(n, 4), "x"), b.input(_f32(n, 4), "y")
    branches = []
    for name, op in (("then", "add"), ("otherwise", "mul")):
        inner = b.nested(name)
        left, right = inner.input(_f32(n, 4)), inner.input(_f32(n, 4))
        branches.append(inner.build([inner.emit(op, left, right)]))
    (z,) = emit_if(b, p, [x, y], *branches)
    graph = b.build([b.emit("add", z, z)])
    u, v = _numbers(3, 4), _numbers(3, 4, seed=1)
    w = _numbers(5, 4, seed=2)
    t, f = np.array(True), np.array(False)
    return ControlCase(
        graph.name, graph, (((t, u, v), (2 * (u + v),)), ((f, u, v), (2 * (u * v),)), ((f, w, w), (2 * w * w,)))
    )


def branches_of_different_shapes() -> ControlCase:
    """The first two rows, or all rows twice; what is computed from them has a size that the branch decides."""
    n = symbol("rows", lower=2)
    b = _builder("branches_of_different_shapes")
    p, x = b.input(FLAG, "p"), b.input(_f32(n, 3), "x")
    short, long = b.nested("short"), b.nested("long")
    first = short.input(_f32(n, 3))
    then = short.build([short.emit("slice", first, starts=(0, 0), stops=(2, 3), steps=(1, 1))])
    whole = long.input(_f32(n, 3))
    otherwise = long.build([long.emit("concat", whole, whole, axis=0)])
    (rows,) = emit_if(b, p, [x], then, otherwise)
    graph = b.build([b.emit("exp", rows), b.emit("sum", rows, axes=(0,)), rows])
    u = _numbers(4, 3)
    double = np.concatenate([u, u])
    return ControlCase(
        graph.name,
        graph,
        (
            ((np.array(True), u), (np.exp(u[:2]), u[:2].sum(0), u[:2])),
            ((np.array(False), u), (np.exp(double), double.sum(0), double)),
        ),
    )


def loop_of_given_length() -> ControlCase:
    """x = x * 0.5 + w, `trips` times; each x is stacked, and one plus the last one is returned too."""
    b = _builder("loop_of_given_length")
    trips, x, w = b.input(COUNT, "trips"), b.input(_f32(4), "x"), b.input(_f32(4), "w")
    inner = b.nested("body")
    inner.input(COUNT)
    before, added = inner.input(_f32(4)), inner.input(_f32(4))
    half = inner.emit("mul", before, inner.constant(np.float32(0.5)))
    after = inner.emit("add", half, added)
    last, steps = emit_while(b, inner.build([after, after]), limit=trips, carried=[x], captures=[w])
    graph = b.build([b.emit("add", last, b.constant(np.float32(1))), steps])

    def expected(trips: int, x: Any, w: Any) -> Arrays:
        rows = []
        for _ in range(trips):
            x = x * np.float32(0.5) + w
            rows.append(x)
        return x + np.float32(1), np.array(rows, np.float32).reshape(-1, 4)

    u, v = _numbers(4), _numbers(4, seed=1)
    return ControlCase(graph.name, graph, tuple(((np.array(t), u, v), expected(t, u, v)) for t in (0, 1, 7)))


def loop_until_condition() -> ControlCase:
    """Double x until an element exceeds 100."""
    b = _builder("loop_until_condition")
    x = b.input(_f32(3), "x")
    inner = b.nested("body")
    inner.input(COUNT)
    before = inner.input(_f32(3))
    after = inner.emit("add", before, before)
    goes_on = inner.emit("less_equal", inner.emit("amax", after, axes=(0,)), inner.constant(np.float32(100)))
    (result,) = emit_while(b, inner.build([goes_on, after]), carried=[x], tests=True)
    graph = b.build([result])
    u = np.array([1, 2, 3], np.float32)
    return ControlCase(graph.name, graph, (((u,), (u * 64,)), ((u * 100,), (u * 200,))))


def loop_of_growing_shape() -> ControlCase:
    """Append the number of the iteration to x, `trips` times; the sum after each is stacked."""
    n = symbol("start")
    b = _builder("loop_of_growing_shape")
    trips, x = b.input(COUNT, "trips"), b.input(_f32(n), "x")
    inner = b.nested("body")
    iteration = inner.input(COUNT)
    before = inner.input(_f32(inner.fresh_size()))
    number = inner.emit("reshape", inner.emit("cast", iteration, dtype=dtypes.f32), shape=(1,))
    after = inner.emit("concat", before, number, axis=0)
    total = inner.emit("sum", after, axes=(0,))
    longer, totals = emit_while(b, inner.build([after, total]), limit=trips, carried=[x])
    graph = b.build([b.emit("neg", longer), totals])

    def expected(trips: int, x: Any) -> Arrays:
        totals = []
        for i in range(trips):
            x = np.append(x, np.float32(i))
            totals.append(x.sum())
        return -x, np.array(totals, np.float32)

    u = _numbers(2)
    return ControlCase(graph.name, graph, tuple(((np.array(t), u), expected(t, u)) for t in (0, 1, 4)))


def sizes_read_from_data() -> ControlCase:
    """As many ones as x has positive elements, beside x summed; then twice as many."""
    b = _builder("sizes_read_from_data")
    x = b.input(_f32(symbol("n")), "x")
    positive = b.emit("greater", x, b.constant(np.float32(0)))
    count = b.emit("sum", b.emit("cast", positive, dtype=dtypes.i64), axes=(0,))
    size = b.fresh_size()
    b.emit("read_sizes", count, defines=(size,))
    ones = b.emit("full", shape=(size,), value=1.0, dtype=dtypes.f32)
    scaled = b.emit("mul", ones, b.emit("sum", x, axes=(0,)))
    graph = b.build([scaled, b.emit("exp", b.emit("concat", ones, ones, axis=0))])

    def expected(x: Any) -> Arrays:
        count = int((x > 0).sum())
        return np.full(count, x.sum(), np.float32), np.exp(np.ones(2 * count, np.float32))

    return ControlCase(graph.name, graph, tuple(((u,), expected(u)) for u in (_numbers(9), -np.ones(2, np.float32))))


def scan_over_rows() -> ControlCase:
    """Running sums of the rows of x, and twice each row plus an offset."""
    n = symbol("rows")
    b = _builder("scan_over_rows")
    start, x, offset = b.input(_f32(3), "start"), b.input(_f32(n, 3), "x"), b.input(_f32(3), "offset")
    inner = b.nested("body")
    total, row, shift = inner.input(_f32(3)), inner.input(_f32(3)), inner.input(_f32(3))
    after = inner.emit("add", total, row)
    body = inner.build([after, inner.emit("add", inner.emit("add", row, row), shift), after])
    results = b.emit_all("scan", [start, x, offset], {"body": body, "carried": 1, "scanned": 1})
    graph = b.build(results)

    def expected(start: Any, x: Any, offset: Any) -> Arrays:
        sums = start + np.cumsum(x, 0)
        return (sums[-1] if len(x) else start), 2 * x + offset, sums

    s, o = _numbers(3), _numbers(3, seed=3)
    xs: Sequence[Any] = (_numbers(5, 3, seed=1), _numbers(1, 3, seed=1))
    return ControlCase(graph.name, graph, tuple(((s, x, o), expected(s, x, o)) for x in xs))


def branch_in_a_loop() -> ControlCase:
    """Collatz steps until 1: an if inside a while, counted by a second carried value."""
    b = _builder("branch_in_a_loop")
    x = b.input(COUNT, "x")
    inner = b.nested("body")
    inner.input(COUNT)
    value, count = inner.input(COUNT), inner.input(COUNT)
    one, two = (inner.constant(np.array(k)) for k in (1, 2))
    is_even = inner.emit("equal", inner.emit("remainder", value, two), inner.constant(np.array(0)))
    halved, tripled = inner.nested("even"), inner.nested("odd")
    even, by = halved.input(COUNT), halved.input(COUNT)
    then = halved.build([halved.emit("floor_divide", even, by)])
    odd, _ = tripled.input(COUNT), tripled.input(COUNT)
    product = tripled.emit("mul", odd, tripled.constant(np.array(3)))
    otherwise = tripled.build([tripled.emit("add", product, tripled.constant(np.array(1)))])
    (after,) = emit_if(inner, is_even, [value, two], then, otherwise)
    more = inner.emit("not_equal", after, one)
    body = inner.build([more, after, inner.emit("add", count, one)])
    first = b.emit("not_equal", x, b.constant(np.array(1)))
    results = emit_while(b, body, condition=first, carried=[x, b.constant(np.array(0))], tests=True)
    graph = b.build(results)
    known = ((1, 0), (6, 8), (27, 111))
    return ControlCase(graph.name, graph, tuple(((np.array(n),), (np.array(1), np.array(steps))) for n, steps in known))


_CASES: tuple[Callable[[], ControlCase], ...] = (
    branches_of_one_shape,
    branches_of_different_shapes,
    loop_of_given_length,
    loop_until_condition,
    loop_of_growing_shape,
    sizes_read_from_data,
    scan_over_rows,
    branch_in_a_loop,
)
