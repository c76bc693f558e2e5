"""Weights of a file stay in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from hidet.errors import ImportFailed
from hidet.onnx import from_onnx
from hidet.onnx.wire import MIN_BYTES, Malformed, without_weights

Make = Callable[..., onnx.ModelProto]
BIG = np.arange(MIN_BYTES, dtype=np.float32)


def _model(make_model: Make) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "big"], ["t"]), helper.make_node("Add", ["t", "small"], ["y"])]
    weights = {"big": BIG, "small": np.ones(1, np.float32)}
    return make_model(nodes, {"x": (np.float32, [MIN_BYTES])}, ["y"], weights)


def test_only_large_weights_are_left_out(make_model: Make) -> None:
    data = _model(make_model).SerializeToString()
    reduced = without_weights(memoryview(data), "model.onnx")
    assert len(reduced) < 1000
    big, small = onnx.ModelProto.FromString(reduced).graph.initializer
    place = {entry.key: entry.value for entry in big.external_data}
    offset, length = int(place["offset"]), int(place["length"])
    assert np.frombuffer(data[offset : offset + length], np.float32).tolist() == BIG.tolist()
    assert (big.name, list(big.dims), small.raw_data) == ("big", [MIN_BYTES], np.ones(1, np.float32).tobytes())


def test_everything_else_stays(make_model: Make) -> None:
    model = _model(make_model)
    reduced = onnx.ModelProto.FromString(without_weights(memoryview(model.SerializeToString()), "model.onnx"))
    del reduced.graph.initializer[:], model.graph.initializer[:]
    assert reduced == model


def test_weights_of_a_file_are_mapped(make_model: Make, tmp_path: Path) -> None:
    onnx.save(_model(make_model), tmp_path / "model.onnx")
    arrays = [constant.data for constant in from_onnx(tmp_path / "model.onnx").constants.values()]
    bases = []
    for array in arrays:
        while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
            array = array.base
        bases.append(type(array))
    assert bases.count(np.memmap) == 1


def test_a_model_behind_a_link_keeps_its_weights(make_model: Make, tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    onnx.save(_model(make_model), tmp_path / "blobs" / "5a3f")
    (tmp_path / "snapshot" / "model.onnx").symlink_to(tmp_path / "blobs" / "5a3f")
    assert len(from_onnx(tmp_path / "snapshot" / "model.onnx").constants) == 2


@pytest.mark.parametrize("cut", [1, 100, 1000, MIN_BYTES])
def test_a_file_that_is_cut_off_is_refused(make_model: Make, tmp_path: Path, cut: int) -> None:
    data = _model(make_model).SerializeToString()[:-cut]
    with pytest.raises(Malformed):
        without_weights(memoryview(data), "model.onnx")
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(ImportFailed, match="damaged"):
        from_onnx(tmp_path / "model.onnx")
