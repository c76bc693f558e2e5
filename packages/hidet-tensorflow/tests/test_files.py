"""Models in files, saved models without TensorFlow, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
import hidet.tensorflow
from hidet.cli import main
from hidet.errors import ArtifactError, ImportFailed, UnsupportedOp
from hidet.runtime.artifact import verify_file

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")
keras = tf.keras

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture
def model() -> Any:
    x = keras.Input((4,), name="row")
    return keras.Model({"row": x}, {"made": keras.layers.Dense(3, activation="relu")(x)})


def test_a_keras_file_is_compiled(model, tmp_path) -> None:
    model.save(tmp_path / "model.keras")
    made = hidet.compile(tmp_path / "model.keras")({"row": X})
    np.testing.assert_allclose(made["made"], model({"row": X})["made"], rtol=0, atol=1e-6)


def test_a_saved_model_of_keras_is_compiled(model, tmp_path) -> None:
    model.export(tmp_path / "saved", verbose=False)
    compiled = hidet.compile(str(tmp_path / "saved"))
    expected = model({"row": X})["made"]
    for made in (compiled(X), compiled(row=X)):
        np.testing.assert_allclose(made["made"], expected, rtol=0, atol=1e-6)


def test_any_signature_of_a_saved_model_is_imported(tmp_path) -> None:
    module = tf.Module()
    module.twice = tf.function(lambda x: {"y": x * 2}, input_signature=[tf.TensorSpec((None,), tf.float32, "x")])
    module.last = tf.function(lambda x: {"y": x[-1:]}, input_signature=[tf.TensorSpec((None,), tf.float32, "x")])
    tf.saved_model.save(module, tmp_path / "saved", signatures={"twice": module.twice, "last": module.last})
    for name, expected in (("twice", [2, 4]), ("last", [2])):
        compiled = hidet.compile(hidet.tensorflow.from_saved_model(tmp_path / "saved", signature=name))
        assert compiled(np.array([1, 2], np.float32))["y"].tolist() == expected
    with pytest.raises(ImportFailed, match="no signature 'serving_default': it has twice, last"):
        hidet.tensorflow.from_saved_model(tmp_path / "saved")


def test_signatures_of_a_saved_model_are_one_file_with_their_weights_once(tmp_path) -> None:
    module = tf.Module()
    module.weight = tf.Variable(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32))
    given = [tf.TensorSpec((None, 64), tf.float32, "x")]
    module.there = tf.function(lambda x: {"y": x @ module.weight}, input_signature=given)
    module.cut = tf.function(lambda x: {"y": tf.nn.relu(x @ module.weight)}, input_signature=given)
    saved = tmp_path / "saved"
    tf.saved_model.save(module, saved, signatures={"there": module.there, "cut": module.cut})
    compiled = hidet.tensorflow.compile_signatures(saved)
    hidet.save_signatures(compiled, tmp_path / "both.hidet")
    compiled["there"].save(tmp_path / "one.hidet")
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    for name, function in (("there", module.there), ("cut", module.cut)):
        loaded = hidet.load(tmp_path / "both.hidet", signature=name)
        np.testing.assert_allclose(loaded(x=x)["y"], function(x)["y"], rtol=0, atol=1e-5)
    weights = [verify_file(tmp_path / name).weight_bytes for name in ("one.hidet", "both.hidet")]
    assert weights[0] == weights[1] >= 64 * 64 * 4
    with pytest.raises(ArtifactError, match="no signature 'serving_default': it has there, cut"):
        hidet.load(tmp_path / "both.hidet")
    with pytest.raises(ArtifactError, match="it holds one graph"):
        hidet.load(tmp_path / "one.hidet", signature="there")


def test_a_saved_model_of_hidet_runs_where_tensorflow_cannot_be_imported(model, tmp_path) -> None:
    compiled = hidet.compile(model)
    compiled.save(tmp_path / "model.hidet")
    np.save(tmp_path / "x.npy", X)
    program = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras"):
            raise ImportError(name)

sys.meta_path.insert(0, Refused())
import numpy, hidet
made = hidet.load("model.hidet")({"row": numpy.load("x.npy")})
assert list(made) == ["made"]
numpy.save("y.npy", made["made"])
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert np.array_equal(np.load(tmp_path / "y.npy"), compiled({"row": X})["made"])


def test_the_command_line_compiles_keras_files_and_saved_models(model, tmp_path) -> None:
    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "saved", verbose=False)
    for source in ("model.keras", "saved"):
        target = tmp_path / f"{source}.hidet"
        result = CliRunner().invoke(main, ["compile", str(tmp_path / source), "-o", str(target)])
        assert result.exit_code == 0, result.output
        assert "row: f32[" in result.output and target.exists()


def test_a_damaged_file_is_refused(model, tmp_path) -> None:
    (tmp_path / "model.keras").write_bytes(b"PK no zip")
    with pytest.raises(ImportFailed, match=r"model\.keras cannot be read"):
        hidet.compile(tmp_path / "model.keras")
    model.export(tmp_path / "saved", verbose=False)
    graph = tmp_path / "saved" / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[: graph.stat().st_size // 2])
    with pytest.raises(ImportFailed, match="saved cannot be read"):
        hidet.compile(tmp_path / "saved")
    with pytest.raises(ImportFailed, match=r"missing\.keras cannot be read"):
        hidet.compile(Path(tmp_path / "missing.keras"))


def test_a_saved_model_whose_signatures_are_no_functions_is_refused(tmp_path) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    module = tf.Module()
    module.call = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec((2,), name="x")])
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.call})
    file = tmp_path / "saved_model.pb"
    message = SavedModel()
    message.ParseFromString(file.read_bytes())
    for node in message.meta_graphs[0].object_graph_def.nodes:
        if node.user_object.identifier == "signature_map":
            node.user_object.identifier = "_generic_user_object"
    file.write_bytes(message.SerializeToString())
    with pytest.raises(ImportFailed, match="its signatures are no functions by name"):
        hidet.compile(tmp_path)


def test_all_unknown_operators_are_named_at_once() -> None:
    @tf.function
    def function(x: Any) -> Any:
        return tf.cond(tf.size(x) > 2, lambda: tf.strings.upper(x), lambda: tf.strings.lower(tf.strings.strip(x)))

    spec = tf.TensorSpec((None,), tf.string)
    with pytest.raises(UnsupportedOp, match="3 operators of the model cannot be imported") as error:
        hidet.compile(function, spec, options={"strict": True})
    found = hidet.tensorflow.check(function, spec)
    assert [entry.operator for entry in found] == ["StringLower", "StringStrip", "StringUpper"]
    assert all(str(entry) in error.value.message for entry in found)


def test_a_model_that_writes_to_variables_is_refused() -> None:
    count = tf.Variable(0.0)

    @tf.function
    def function(x: Any) -> Any:
        count.assign_add(1.0)
        return x + count

    with pytest.raises(UnsupportedOp, match="AssignAddVariableOp"):
        hidet.compile(function, tf.TensorSpec((2,)))


def test_an_error_names_the_node() -> None:
    @tf.function
    def function(x: Any) -> Any:
        return tf.raw_ops.BatchMatMulV2(x=x, y=x, name="product")

    with pytest.raises(hidet.errors.HidetError) as error:
        hidet.compile(function, tf.TensorSpec((2, None, 3)), shapes={"x": (2, 4, 3)})
    assert "BatchMatMulV2 'product'" in str(error.value)


def test_a_model_on_another_backend_of_keras_is_refused(monkeypatch, model) -> None:
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ImportFailed, match="Keras runs on jax"):
        hidet.compile(model)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ImportFailed, match="cannot be called"):
        hidet.compile(tf.Module())
