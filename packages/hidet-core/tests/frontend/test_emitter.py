"""What handlers write graphs with: constants once, views once, and what operators take as tensors as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import ImportFailed, UnsupportedOp, ValueNeeded
from hidet.frontend import Contents, Emitter, NodeFacts
from hidet.graph import GraphBuilder, TensorType, Value
from hidet.plugins.host import load_registry


def input_of(e: Emitter, *shape: object, dtype=dtypes.f32, name: str = "x") -> Value:
    value = e.builder.input(TensorType(dtype, shape), name)
    e.known.inputs[value] = name
    return value


def names(e: Emitter) -> list[str]:
    return [node.op.name for node in e.builder.nodes]


def test_equal_constants_are_one_value_and_numbers_of_other_kinds_are_not(e) -> None:
    assert e.constant(1, dtypes.f32) is e.constant(1, dtypes.f32)
    assert len({e.constant(number, dtypes.f32) for number in (1, 1.0, True)}) == 3


def test_views_of_views_are_one(e) -> None:
    x = input_of(e, 2, 3, 4)
    flat = e.reshape(e.reshape(x, (6, 4)), (24,))
    turned = e.transpose(e.transpose(x, (2, 0, 1)), (0, -1, 1))
    assert names(e) == ["reshape", "reshape", "transpose", "transpose"]
    assert all(e.builder.producer(value).inputs == (x,) for value in (flat, turned))
    assert turned.tensor.shape == (4, 3, 2)


def test_views_that_change_nothing_are_no_nodes(e) -> None:
    n = symbol("n")
    x = input_of(e, 2, n)
    for same in (
        e.reshape(x, [2, n]),
        e.reshape(e.reshape(x, (n, 2)), (2, n)),
        e.transpose(e.transpose(x, (1, 0)), (1, 0)),
        e.expand(x, [2, n]),
        e.squeeze(x, (0, 1)),
        e.unsqueeze(x, ()),
        e.cast(x, dtypes.f32),
    ):
        assert same is x
    assert names(e) == ["reshape", "transpose"]
    turned = e.transpose(x, (1, 0))
    assert e.transpose(turned, (0, 1)) is e.reshape(turned, (n, 2)) is turned


def test_squeeze_keeps_axes_of_other_extents(e) -> None:
    x = input_of(e, 1, 3, 1)
    assert e.squeeze(x, (0, 1)).tensor.shape == (3, 1)
    assert e.squeeze(x, (-1,)).tensor.shape == (1, 3)


def test_an_operator_that_is_written_as_others_is_written_out(e) -> None:
    x = input_of(e, 4, dtype=dtypes.f32)
    spec = e.builder.operators["fourier"]
    assert spec.define is None
    e.emit_all("fourier", [x, None], {"n": 4, "kept": 4})
    assert names(e) and "fourier" not in names(e)


def test_an_operator_that_core_lacks_is_named(e) -> None:
    with pytest.raises(UnsupportedOp, match="core has no operator swirl"):
        e.emit("swirl", input_of(e, 2))


def test_numbers_in_tensors_are_read_through_shape_arithmetic(e) -> None:
    n = symbol("n")
    half = e.emit("floor_divide", e.size(n), e.constant(2, dtypes.i64))
    vector = e.emit("stack", half, e.constant(3, dtypes.i64), axis=0)
    assert e.dims(vector, "the shape") == (n // 2, 3)
    assert e.ints(e.size_vector((4, 5)), "the axes") == (4, 5)
    assert e.one_int(e.constant(7, dtypes.i32), "the count") == 7
    assert e.number(e.constant(0.5, dtypes.f32), "the ratio") == 0.5


def test_a_size_that_is_no_number_is_refused_where_axes_are_asked_for(e) -> None:
    e.facts = NodeFacts("Roll")
    with pytest.raises(ImportFailed, match=r"the axes of Roll depends on a symbolic size: \['n', '3'\]"):
        e.ints(e.size_vector((symbol("n"), 3)), "the axes")
    with pytest.raises(ImportFailed, match="the count of Roll is one number, got 2"):
        e.one_dim(e.size_vector((2, 3)), "the count")


def test_elements_that_must_be_known_name_the_inputs_that_they_come_from(e) -> None:
    n = symbol("n", lower=1)
    x = input_of(e, n, name="x")
    axis = input_of(e, dtype=dtypes.i64, name="axis")
    shifted = e.emit("add", axis, e.size(n))
    e.facts = NodeFacts("Roll")
    with pytest.raises(ValueNeeded, match=r"the axis of Roll must be known .* from input 'axis'") as got:
        e.one_int(shifted, "the axis")
    assert (got.value.inputs, got.value.shapes) == (("axis",), ("x",))
    assert "hidet.compile takes values={'axis': …}, shapes={'x': (…)}" in got.value.hint
    assert "--value axis=… --shape x=1x8" in got.value.hint
    assert e.sizes_needed(x, "the rows must be known").shapes == ("x",)


def test_a_front_end_says_itself_how_its_users_give_elements() -> None:
    builder = GraphBuilder({})
    e = Emitter(builder, Contents(builder, hint="load(path, {python})"))
    x = input_of(e, dtype=dtypes.i64)
    assert e.value_needed(x, "it").hint == e.nested(builder).known.hint.format(python="values={'x': …}")


def test_sizes_that_data_decide_are_read_back_where_that_is_allowed() -> None:
    builder = GraphBuilder(load_registry().operators)
    e = Emitter(builder, reads_sizes=True)
    shape = input_of(e, 2, dtype=dtypes.i32)
    sizes = e.sizes(shape, "the shape")
    assert sizes == e.dims(shape, "the shape")
    assert names(e) == ["cast", "read_sizes"]
    with pytest.raises(ValueNeeded, match="the shape"):
        Emitter(builder.nested("body")).sizes(shape, "the shape")


def test_given_elements_are_used_and_noted(e) -> None:
    x = input_of(e, 2, dtype=dtypes.i64)
    contents = Contents(e.builder, {x: np.array([3, 4])}, inputs={x: "x"})
    e.known = contents
    assert not contents.used
    assert e.ints(e.emit("neg", x), "it") == (-3, -4)
    assert contents.used == {x}


def test_tensors_that_no_machine_holds_are_refused_on_demand() -> None:
    builder = GraphBuilder(load_registry().operators)
    Emitter(builder).emit("full", shape=(1 << 20,), value=0, dtype=dtypes.u8)
    e = Emitter(builder, max_bytes=1000)
    e.facts = NodeFacts("Fill")
    e.emit("full", shape=(250,), value=0, dtype=dtypes.f32)
    with pytest.raises(ImportFailed, match=r"Fill makes f32\[251\], which no machine holds"):
        e.emit("full", shape=(251,), value=0, dtype=dtypes.f32)
    with pytest.raises(ImportFailed, match=r"Fill makes u8\[-1\], which has a negative extent"):
        e.require_size((-1,), dtypes.u8)


def test_all_random_operators_of_a_graph_share_what_is_drawn_at_a_call(e) -> None:
    seed, offset, stream = e.random_source()
    assert e.random_source() == (seed, offset, stream + 1)
    assert names(e) == ["random_state"]
    fixed = e.random_source(seed=7)
    assert [e.number(value, "it") for value in fixed[:2]] == [7, 0]
    assert fixed == e.random_source(seed=7)


def test_results_that_nobody_reads_are_known(e) -> None:
    e.facts = NodeFacts("Split", (True, False))
    assert [e.is_read(number) for number in range(3)] == [True, False, False]
    assert e.operator == "Split"


def test_the_producer_of_a_value_is_found_after_every_node_and_gone_with_taken_nodes() -> None:
    builder = GraphBuilder(load_registry().operators)
    x = builder.input(TensorType(dtypes.f32, (2,)))
    first = builder.emit("neg", x)
    assert builder.producer(first) is builder.nodes[0]
    assert builder.producer(x) is None
    second = builder.emit("exp", first)
    assert builder.producer(second) is builder.nodes[1]
    builder.take_nodes()
    assert builder.producer(first) is None
    third = builder.emit("abs", second)
    assert builder.producer(third) is builder.nodes[0]
