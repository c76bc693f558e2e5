"""Sequences, optional values and strings in models."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from hidet.errors import ImportFailed, PositionError, ValueNeeded
from hidet.onnx import from_onnx
from hidet.onnx.runner import OnnxRunner

FLOAT, INT, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(nodes, inputs, outputs):
    results = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    return helper.make_model(
        helper.make_graph(nodes, "main", inputs, results), opset_imports=[helper.make_opsetid("", 21)]
    )


def tensor(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def sequence(name, shape):
    return helper.make_tensor_sequence_value_info(name, FLOAT, shape)


def vector(*numbers):
    return np.float32(numbers)


def test_a_sequence_goes_in_and_out():
    nodes = [node("SequenceInsert", "s x", "longer"), node("SequenceAt", "longer place", "y"), node("Neg", "y", "z")]
    inputs = [sequence("s", ["n"]), tensor("x", FLOAT, "m"), tensor("place", INT)]
    runner = OnnxRunner(model(nodes, inputs, "longer z"))
    longer, z = runner.run([[vector(1), vector(2, 3)], vector(4, 5, 6), np.array(1)])
    assert [item.tolist() for item in longer] == [[1], [2, 3], [4, 5, 6]] and z.tolist() == [-2, -3]
    with pytest.raises(PositionError):
        runner.run([[vector(1)], vector(2), np.array(9)])


def test_a_loop_collects_a_sequence_from_nothing():
    body = helper.make_graph(
        [
            node("Cast", "i", "i_float", to=FLOAT),
            node("Add", "x i_float", "y"),
            node("SequenceInsert", "s y", "longer"),
        ],
        "body",
        [tensor("i", INT), tensor("more", BOOL), sequence("s", ["n"])],
        [helper.make_empty_tensor_value_info(name) for name in ("more", "longer")],
    )
    loop = node("Loop", "trips", "collected", body=body)
    loop.input.extend(["", "empty"])
    nodes = [
        node("SequenceEmpty", "", "empty"),
        loop,
        node("ConcatFromSequence", "collected", "z", axis=0, new_axis=1),
        node("SequenceLength", "collected", "count"),
    ]
    runner = OnnxRunner(model(nodes, [tensor("trips", INT), tensor("x", FLOAT, "n")], "z count"))
    z, count = runner.run([np.array(3), vector(1, 2)])
    assert z.tolist() == [[1, 2], [2, 3], [3, 4]] and count == 3
    assert len(runner.compiled) == 1


def test_a_sequence_of_numbers_takes_no_vector():
    """defects.md C12: what loop16_seq_none of ONNX's suite does is refused, with the node and what it mixes."""
    nodes = [node("SequenceInsert", "s x", "longer")]
    refused = model(nodes, [sequence("s", []), tensor("x", FLOAT, 1)], "longer")
    with pytest.raises(ValueNeeded, match=r"a sequence of f32\[\] takes no f32\[1\]: values of") as caught:
        from_onnx(refused)
    assert "SequenceInsert that makes 'longer'" in str(caught.value)


def test_a_sequence_argument_must_be_a_list():
    runner = OnnxRunner(model([node("SequenceLength", "s", "n")], [sequence("s", None)], "n"))
    assert runner.run([[vector(1), vector(2)]]) == [2]
    assert runner.run([[]]) == [0]
    with pytest.raises(ImportFailed, match="expected a list of arrays"):
        runner.run([vector(1)])


def test_an_optional_input_may_be_absent():
    type_ = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["n"]))
    nodes = [node("OptionalHasElement", "o", "there")]
    runner = OnnxRunner(model(nodes, [helper.make_value_info("o", type_)], "there"))
    assert [bool(runner.run([value])[0]) for value in (None, vector(1))] == [False, True]


def test_strings_are_split_and_joined():
    nodes = [node("StringConcat", "x y", "both"), node("StringSplit", "both", "parts counts", delimiter="-")]
    inputs = [tensor("x", STRING, "n"), tensor("y", STRING, 1)]
    runner = OnnxRunner(model(nodes, inputs, "parts counts"))
    parts, counts = runner.run([np.array(["a", "b-c"], object), np.array(["-z"], object)])
    assert parts.tolist() == [["a", "z", ""], ["b", "c", "z"]] and counts.tolist() == [2, 3]
