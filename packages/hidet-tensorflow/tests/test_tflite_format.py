"""The format of TFLite files: our tables against those of PyPI's `tflite`, and files that are damaged."""

from __future__ import annotations

import struct

import pytest

import hidet
from hidet.tensorflow.tflite.flexbuffer import read_numbers
from hidet.tensorflow.tflite.loader import load_lite
from hidet.tensorflow.tflite.schema import DTYPES, FIELDS, OPERATORS

OPTIONS = {
    "ARG_MAX": "ArgMaxOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CONV_2D": "Conv2DOptions",
    "CONV_3D": "Conv3DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "GATHER": "GatherOptions",
    "PACK": "PackOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "WHILE": "WhileOptions",
}


def test_operators_and_types_have_the_numbers_of_the_schema() -> None:
    tflite = pytest.importorskip("tflite", reason="the package of the schema is not installed: nox -s tensorflow")
    named = {name: number for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}
    assert {name: number for number, name in enumerate(OPERATORS)}.items() <= named.items()
    types = {name.lower(): number for name, number in vars(tflite.TensorType).items() if isinstance(number, int)}
    ours = {dtype.numpy().name: number for number, dtype in DTYPES.items()}
    assert {name: types[name] for name in ours} == ours


@pytest.mark.parametrize("operator", OPTIONS)
def test_options_are_the_fields_of_the_schema(operator: str) -> None:
    """A table with all fields, written by the package, reads back with their values."""
    tflite = pytest.importorskip("tflite", reason="the package of the schema is not installed: nox -s tensorflow")
    declared = getattr(tflite, OPTIONS[operator])
    for number, field in enumerate(FIELDS[operator]):
        if field.name == "_":
            continue
        stem = field.name.replace("_", "")
        names = [stem, f"{stem}factor", f"{stem}index", f"fused{stem}function", f"{stem}fm", f"asymmetric{stem}"]
        names += [stem.replace("filterw", "filterwidth").replace("filterh", "filterheight")]
        names += [stem.replace("diagonalrecurrent", "diagonalrecurrenttensors")]
        accessors = {name.lower(): name for name in vars(declared)}
        name = next(accessors[name] for name in names if name in accessors)
        source = declared.__dict__[name].__code__.co_consts
        assert 4 + 2 * number in source, f"{operator}: {field.name} is field {number} of {OPTIONS[operator]}"


def small_file(*, version: int = 3, identifier: bytes = b"TFL3") -> bytes:
    """A file of one table with a version and nothing else."""
    fields = struct.pack("<HHH", 6, 8, 4)
    return struct.pack("<I4s", 16, identifier) + fields + b"\0\0" + struct.pack("<iI", 8, version)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no TFLite model"),
        (b"PK\3\4 and so on", "is no TFLite model"),
        (small_file(version=4), "version 4 of TFLite's schema"),
        (small_file(), "has no sub-graph"),
        (small_file()[:18], "at byte 16"),
        (struct.pack("<I4s", 1 << 30, b"TFL3"), "leads nowhere, at byte 0"),
    ],
)
def test_what_is_no_model_is_refused_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(hidet.errors.ImportFailed, match=message):
        load_lite(data)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(hidet.errors.ImportFailed, match=r"nowhere\.tflite cannot be read"):
        hidet.compile("nowhere.tflite")


def test_options_of_custom_operators_are_mappings_of_numbers() -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers", reason="comes with TensorFlow: nox -s tensorflow")
    options = {"most": 10, "scale": 0.25, "is_fast": True, "large": 1 << 40, "name": "x"}
    found = read_numbers(bytes(flexbuffers.Dumps(options)))
    assert found == {"most": 10, "scale": 0.25, "is_fast": True, "large": 1 << 40}
    with pytest.raises(hidet.errors.ImportFailed, match="no mapping"):
        read_numbers(b"\1\2\3")
