"""How large fusion groups get."""

from __future__ import annotations

from hidet import dtypes
from hidet.fusion.abilities import NOTHING
from hidet.fusion.group import MAX_COPIES, MAX_INPUTS, group_nodes
from hidet.graph import GraphBuilder, TensorType
from hidet.operators import all_operators

OPERATORS = {spec.name: spec for spec in all_operators()}


def test_a_group_reads_a_bounded_number_of_tensors() -> None:
    builder = GraphBuilder(OPERATORS)
    inputs = [builder.input(TensorType(dtypes.f32, (4,))) for _ in range(100)]
    joined = [builder.emit("concat", *inputs[first : first + 10]) for first in range(0, 100, 10)]
    graph = builder.build([builder.emit("concat", *joined)])
    groups = group_nodes(graph, lambda node, types: NOTHING).groups
    assert len(groups) > 1
    for group in groups:
        inside = {value for node in group.nodes for value in node.outputs}
        assert len({v for node in group.nodes for v in node.values} - inside) <= MAX_INPUTS


def test_reading_the_same_tensors_again_costs_no_room() -> None:
    builder = GraphBuilder(OPERATORS)
    x, y = (builder.input(TensorType(dtypes.f32, (4,))) for _ in range(2))
    value = x
    for _ in range(40):
        value = builder.emit("add", value, y)
    (group,) = group_nodes(builder.build([value]), lambda node, types: NOTHING).groups
    assert len(group.nodes) == 40


def test_a_cast_that_several_nodes_of_a_group_read_is_computed_by_each() -> None:
    builder = GraphBuilder(OPERATORS)
    x = builder.input(TensorType(dtypes.f16, (4, 4)))
    product = builder.emit("matmul", x, x)
    wide = builder.emit("cast", product, dtype=dtypes.f32)
    both = builder.emit("mul", builder.emit("neg", wide), builder.emit("exp", wide))
    graph = builder.build([both])
    first, second = group_nodes(graph, lambda node, types: NOTHING).groups
    assert [node.op.name for node in first.nodes] == ["matmul"]
    assert [node.op.name for node in second.nodes] == ["cast", "neg", "exp", "mul"]
    seen = builder.build([both, wide])
    assert len(group_nodes(seen, lambda node, types: NOTHING).groups) == 3, "what is a result is stored"


def test_copies_of_an_expression_do_not_multiply() -> None:
    """red-team.md finding 9: twelve times `concat(x, x)` were one kernel that took two minutes to compile."""
    builder = GraphBuilder(OPERATORS)
    value = builder.input(TensorType(dtypes.f32, (4,)))
    for _ in range(12):
        value = builder.emit("concat", value, value, axis=0)
    groups = group_nodes(builder.build([value]), lambda node, types: NOTHING).groups
    assert [len(group.nodes) for group in groups] == [4, 4, 4]
    assert all(max(group.copies.values()) == MAX_COPIES for group in groups)


def test_what_is_not_joined_is_noted_with_the_reason() -> None:
    builder = GraphBuilder(OPERATORS)
    x = builder.input(TensorType(dtypes.f32, (4, 4)))
    before = builder.emit("exp", x)
    product = builder.emit("matmul", before, x)
    once, twice = builder.emit("neg", product), builder.emit("abs", product)
    cuts = group_nodes(builder.build([once, twice]), lambda node, types: NOTHING).cuts
    reasons = {(value.name, node.op.name): reason for (value, node), reason in cuts.items()}
    assert reasons[before.name, "matmul"] == "the schedule of matmul computes nothing before it"
    assert reasons[product.name, "neg"] == "the schedule of matmul computes nothing behind it"
    assert (x.name, "matmul") not in reasons, "an input is no cut"
