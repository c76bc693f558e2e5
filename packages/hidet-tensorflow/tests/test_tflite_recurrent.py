"""LSTM as one operator of a TFLite file, as converters before Keras 3 write it, against the interpreter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hidet
import hidet.tensorflow
from hidet.errors import UnsupportedOp

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")
tflite = pytest.importorskip("tflite", reason="the package of the schema is not installed: nox -s tensorflow")
flatbuffers = pytest.importorskip("flatbuffers", reason="comes with TensorFlow")

STEPS, WIDTH, UNITS = 6, 3, 4


class File:
    """A file of one node under construction."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)
        self.buffers = [self._buffer(None)]
        self.tensors: list[int] = []

    def _buffer(self, data: bytes | None) -> int:
        place = None if data is None else self.builder.CreateByteVector(data)
        tflite.BufferStart(self.builder)
        if place is not None:
            tflite.BufferAddData(self.builder, place)
        return int(tflite.BufferEnd(self.builder))

    def vector(self, numbers: list[int]) -> int:
        return int(self.builder.CreateNumpyVector(np.asarray(numbers, np.int32)))

    def tensor(self, name: str, shape: tuple[int, ...], data: Any = None, *, is_variable: bool = False) -> int:
        """The number of a new tensor, f32."""
        if data is not None:
            self.buffers.append(self._buffer(data.astype(np.float32).tobytes()))
        text, extents = self.builder.CreateString(name), self.vector(list(shape))
        tflite.TensorStart(self.builder)
        tflite.TensorAddShape(self.builder, extents)
        tflite.TensorAddType(self.builder, tflite.TensorType.FLOAT32)
        tflite.TensorAddBuffer(self.builder, 0 if data is None else len(self.buffers) - 1)
        tflite.TensorAddName(self.builder, text)
        tflite.TensorAddIsVariable(self.builder, is_variable)
        self.tensors.append(int(tflite.TensorEnd(self.builder)))
        return len(self.tensors) - 1

    def finish(self, code: int, options: tuple[int, int], inputs: list[int], outputs: list[int]) -> bytes:
        """The file with a node of this operator, which reads the first input from outside."""
        b = self.builder
        given, made = self.vector(inputs), self.vector(outputs)
        tflite.OperatorStart(b)
        tflite.OperatorAddInputs(b, given)
        tflite.OperatorAddOutputs(b, made)
        tflite.OperatorAddBuiltinOptionsType(b, options[0])
        tflite.OperatorAddBuiltinOptions(b, options[1])
        operators = self._tables([int(tflite.OperatorEnd(b))])
        tensors, first, last = self._tables(self.tensors), self.vector(inputs[:1]), self.vector(outputs)
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, tensors)
        tflite.SubGraphAddInputs(b, first)
        tflite.SubGraphAddOutputs(b, last)
        tflite.SubGraphAddOperators(b, operators)
        graphs = self._tables([int(tflite.SubGraphEnd(b))])
        tflite.OperatorCodeStart(b)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(b, code)
        tflite.OperatorCodeAddBuiltinCode(b, code)
        codes, buffers = self._tables([int(tflite.OperatorCodeEnd(b))]), self._tables(self.buffers)
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddOperatorCodes(b, codes)
        tflite.ModelAddSubgraphs(b, graphs)
        tflite.ModelAddBuffers(b, buffers)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())

    def _tables(self, places: list[int]) -> int:
        self.builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            self.builder.PrependUOffsetTRelative(place)
        return int(self.builder.EndVector())


def weights(file: File, rng: np.random.Generator) -> list[int]:
    """Of a direction: of inputs, of states, no peepholes, biases, no projection."""
    inputs = [file.tensor(f"w{n}", (UNITS, WIDTH), 0.5 * rng.standard_normal((UNITS, WIDTH))) for n in range(4)]
    states = [file.tensor(f"r{n}", (UNITS, UNITS), 0.5 * rng.standard_normal((UNITS, UNITS))) for n in range(4)]
    biases = [file.tensor(f"b{n}", (UNITS,), rng.standard_normal(UNITS)) for n in range(4)]
    return [*inputs, *states, -1, -1, -1, *biases, -1, -1]


def states(file: File, count: int) -> list[int]:
    return [file.tensor(f"state{n}", (2, UNITS), is_variable=True) for n in range(count)]


def one_way(activation: int, clip: float = 0.0) -> bytes:
    file, rng = File(), np.random.default_rng(0)
    x = file.tensor("x", (2, STEPS, WIDTH))
    given = [x, *weights(file, rng), *states(file, 2)]
    made = file.tensor("y", (2, STEPS, UNITS))
    b = file.builder
    tflite.UnidirectionalSequenceLSTMOptionsStart(b)
    tflite.UnidirectionalSequenceLSTMOptionsAddFusedActivationFunction(b, activation)
    tflite.UnidirectionalSequenceLSTMOptionsAddCellClip(b, clip)
    options = tflite.UnidirectionalSequenceLSTMOptionsEnd(b)
    kind = tflite.BuiltinOptions.UnidirectionalSequenceLSTMOptions
    return file.finish(tflite.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, (kind, options), given, [made])


def both_ways(merges: bool) -> bytes:
    file, rng = File(), np.random.default_rng(1)
    x = file.tensor("x", (2, STEPS, WIDTH))
    given = [x, *weights(file, rng), *weights(file, rng), *states(file, 4), *[-1] * 9]
    width = 2 * UNITS if merges else UNITS
    made = [file.tensor(f"y{n}", (2, STEPS, width)) for n in range(1 if merges else 2)]
    b = file.builder
    tflite.BidirectionalSequenceLSTMOptionsStart(b)
    tflite.BidirectionalSequenceLSTMOptionsAddFusedActivationFunction(b, tflite.ActivationFunctionType.TANH)
    tflite.BidirectionalSequenceLSTMOptionsAddMergeOutputs(b, merges)
    tflite.BidirectionalSequenceLSTMOptionsAddTimeMajor(b, False)
    options = tflite.BidirectionalSequenceLSTMOptionsEnd(b)
    kind = tflite.BuiltinOptions.BidirectionalSequenceLSTMOptions
    return file.finish(tflite.BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM, (kind, options), given, made)


FILES = {
    "one way": lambda: one_way(tflite.ActivationFunctionType.TANH),
    "a clipped cell": lambda: one_way(tflite.ActivationFunctionType.TANH, 0.3),
    "both ways": lambda: both_ways(False),
    "both ways joined": lambda: both_ways(True),
}


@pytest.mark.parametrize("name", FILES)
def test_a_layer_is_computed_as_by_the_interpreter(name: str) -> None:
    file = FILES[name]()
    # Joined, the interpreter of TensorFlow 2.21 reads what nobody wrote, from the second row of a batch on.
    is_joined = name == "both ways joined"
    x = np.random.default_rng(2).standard_normal((2, STEPS, WIDTH)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(model_content=FILES["both ways"]() if is_joined else file)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    expected = [interpreter.get_tensor(entry["index"]) for entry in interpreter.get_output_details()]
    if is_joined:
        expected = [np.concatenate(expected, axis=-1)]
    compiled = hidet.compile(hidet.tensorflow.from_tflite(file))
    # State does not last from call to call.
    for _ in range(2):
        made = compiled(x)
        for ours, theirs in zip(made if isinstance(made, tuple) else (made,), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_cells_of_another_activation_are_refused() -> None:
    with pytest.raises(UnsupportedOp, match="activation RELU: expected TANH"):
        hidet.tensorflow.from_tflite(one_way(tflite.ActivationFunctionType.RELU))
