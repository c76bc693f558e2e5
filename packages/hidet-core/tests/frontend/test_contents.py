"""Elements of tensors are followed through graphs: to constants, to sizes, and out of sub-graphs."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dtypes
from hidet.compute.definition import Definition, Operand
from hidet.dims import DimExpr, floordiv, symbol
from hidet.frontend import in_branch
from hidet.frontend.contents import MAX_ELEMENTS
from hidet.graph import TensorType
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.operators.rules import map_elements

N = symbol("n", lower=1)


def _shift(x: Operand, by: int) -> Definition:
    return map_elements("shift", (x,), lambda element: element + by)


SHIFT = OperatorSpec(name="acme.shift", inputs=("x",), attributes=(Attribute("by"),), define=_shift)


@pytest.mark.parametrize(
    ("write", "elements"),
    [
        (lambda e, v: e.emit("mul", v, v), [N * N, 9]),
        (lambda e, v: e.emit("sub", v, e.constant(1, dtypes.i64), alpha=2), [N - 2, 1]),
        (lambda e, v: e.emit("concat", v, v, axis=0), [N, 3, N, 3]),
        (lambda e, v: e.emit("slice", v, starts=(1,), stops=(2,), steps=(1,)), [3]),
        (lambda e, v: e.emit("prod", v, axes=(0,), keepdim=True), [N * 3]),
        (lambda e, v: e.emit("maximum", v, e.constant(1, dtypes.i64)), [N, 3]),
        (lambda e, v: e.transpose(e.reshape(v, (1, 2)), (1, 0)), [[N], [3]]),
        (lambda e, v: e.emit("index_select", v, e.size_vector((1, 0)), axis=0), [3, N]),
        (lambda e, v: e.cast(v, dtypes.i32), [N, 3]),
        (lambda e, v: e.emit("sum", v, axes=(), keepdim=False), N + 3),
        (lambda e, v: e.emit("trunc_divide", v, e.constant(2, dtypes.i64)), [floordiv(N, 2), 1]),
        (lambda e, v: e.emit("where", e.emit("greater", v, e.constant(0, dtypes.i64)), v, v), [N, 3]),
        (lambda e, v: e.builder.emit(SHIFT, v, by=4), [N + 4, 7]),
        (lambda e, v: e.emit("argmax", e.size_vector((N, N + 1)), axes=(0,), keepdim=False), 1),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_arithmetic_of_sizes_is_known_while_importing(e, write, elements) -> None:
    found = e.contents(write(e, e.size_vector((N, 3))))
    assert found.tolist() == elements


@pytest.mark.parametrize(
    "write",
    [
        lambda e, v: e.cast(v, dtypes.f32),
        lambda e, v: e.emit("rand", *e.random_source()[:2], shape=(2,), dtype=dtypes.f32, stream=0),
        lambda e, v: e.emit("equal", v, e.constant(2, dtypes.i64)),
        lambda e, v: e.emit("where", e.emit("equal", v, e.constant(2, dtypes.i64)), v, v),
        lambda e, v: e.emit("trunc_divide", e.emit("neg", v), e.constant(2, dtypes.i64)),
        lambda e, v: e.emit("remainder", e.constant(7, dtypes.i64), e.emit("sub", v, e.constant(9, dtypes.i64))),
        lambda e, v: e.emit("index_select", e.size_vector((4, 5)), v, axis=0),
    ],
    ids=["floats", "random", "undecided", "undecided choice", "negative", "unknown divisor", "unknown place"],
)
def test_what_sizes_do_not_decide_is_unknown(e, write) -> None:
    assert e.contents(write(e, e.size_vector((N, 3)))) is None


def test_numbers_are_computed_by_the_meaning_of_the_operator(e) -> None:
    x = e.array(np.array([1.0, 4.0], np.float32))
    found = e.contents(e.emit("sqrt", x))
    assert found.dtype == np.float32
    assert found.tolist() == [1, 2]


def test_larger_tensors_are_data(e) -> None:
    few, many = (e.emit("full", shape=(count,), value=1, dtype=dtypes.u8) for count in (MAX_ELEMENTS, MAX_ELEMENTS + 1))
    assert e.contents(few) is not None
    assert e.contents(many) is None


def test_elements_are_known_inside_of_a_sub_graph(e) -> None:
    shape = e.size_vector((N, 3))
    inner = e.nested(e.builder.nested("body"))
    captured = inner.builder.input(shape.type)
    inner.known.outer[captured] = (e.known, shape)
    doubled = inner.emit("add", captured, captured)
    assert inner.dims(doubled, "it") == (N * 2, 6)
    assert all(isinstance(size, DimExpr | int) for size in inner.dims(doubled, "it"))


def test_sources_are_found_out_of_a_sub_graph(e) -> None:
    x = e.builder.input(TensorType(dtypes.i64, (2,)), "x")
    e.known.inputs[x] = "x"
    inner = e.nested(e.builder.nested("body"))
    captured = inner.builder.input(x.type)
    inner.known.outer[captured] = (e.known, x)
    error = inner.value_needed(inner.emit("neg", captured), "the shape")
    assert error.inputs == ("x",)
    decided = in_branch(error, ("x", "flag"))
    assert decided.deciding == ("flag",)
    assert "whether this branch is taken is computed from input 'flag'" in decided.message
    assert in_branch(decided, ("flag",)) is decided
