"""How compiled models are called, and what they return: as the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet
import hidet.tensorflow
from hidet.errors import ImportFailed, LaunchError, ShapeError

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")
keras = tf.keras

ONES = np.ones((2, 4), np.float32)
ROWS = tf.TensorSpec((None, 4), tf.float32)


class Scaled(tf.Module):
    """A module whose methods are tf.functions."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable([1.0, 2.0, 3.0, 4.0], name="factor")

    @tf.function(input_signature=[ROWS])
    def __call__(self, x: Any) -> Any:
        return x * self.factor

    @tf.function
    def pair(self, first: Any, second: Any, *, offset: Any) -> Any:
        return {"sum": first + second, "rest": [first - offset, (second, None)]}


def test_a_module_is_called_with_its_own_arguments() -> None:
    compiled = hidet.compile(Scaled())
    assert compiled(ONES).tolist() == [[1, 2, 3, 4]] * 2
    assert compiled(x=ONES[:1]).tolist() == [[1, 2, 3, 4]]


def test_results_keep_their_structure() -> None:
    spec = {"first": ROWS, "second": ROWS, "offset": tf.TensorSpec(())}
    made = hidet.tensorflow.compile(Scaled().pair, spec)(ONES, 2 * ONES, offset=np.float32(1))
    assert list(made) == ["sum", "rest"] and type(made["rest"]) is list and type(made["rest"][1]) is tuple
    assert made["sum"].max() == 3 and made["rest"][0].max() == 0
    assert made["rest"][1][0].max() == 2 and made["rest"][1][1] is None


def test_a_keras_model_takes_what_it_was_built_of() -> None:
    inputs = {"image": keras.Input((4,), name="image"), "scale": keras.Input((1,), name="scale")}
    model = keras.Model(inputs, {"made": inputs["image"] * inputs["scale"], "same": inputs["image"]})
    compiled = hidet.compile(model)
    given = {"scale": np.full((3, 1), 2, np.float32), "image": np.ones((3, 4), np.float32)}
    made = compiled(given)
    assert list(made) == ["made", "same"] and made["made"].max() == 2
    with pytest.raises(ShapeError, match="scale"):
        compiled({**given, "scale": np.ones((2, 1), np.float32)})
    with pytest.raises(LaunchError, match="keys"):
        compiled({"image": given["image"]})


def test_inputs_in_a_list_are_passed_in_a_list() -> None:
    a, b = keras.Input((4,)), keras.Input((4,))
    compiled = hidet.compile(keras.Model([a, b], [a + b, a - b]))
    made = compiled([ONES, ONES])
    assert type(made) is list and made[0].max() == 2 and made[1].max() == 0


def test_a_subclassed_model_is_traced_with_examples_and_does_not_train() -> None:
    class Dropped(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.drop = keras.layers.Dropout(0.5)

        def call(self, image: Any, training: bool = False) -> Any:
            return self.drop(image, training=training)

    with pytest.raises(ImportFailed, match="does not say what it takes"):
        hidet.compile(Dropped())
    compiled = hidet.compile(Dropped(), ROWS)
    assert compiled(image=ONES).tolist() == ONES.tolist()
    assert hidet.compile(Dropped(), ONES).bundle.program.inputs[0].tensor.shape == (2, 4)


def test_open_sizes_may_be_fixed_and_inputs_built_in() -> None:
    function = tf.function(lambda x, y: x + y).get_concrete_function(
        tf.TensorSpec((None, 4), name="x"), tf.TensorSpec((None, 4), name="y")
    )
    fixed = hidet.compile(function, shapes={"x": (2, 4)}, values={"y": ONES})
    assert fixed(ONES).max() == 2
    with pytest.raises(ShapeError):
        fixed(np.ones((3, 4), np.float32))
    with pytest.raises(ImportFailed, match="'z', which is no input: x, y"):
        hidet.compile(function, values={"z": ONES})


def test_an_unknown_number_of_axes_has_to_be_given() -> None:
    function = tf.function(lambda x: tf.nn.relu(x)).get_concrete_function(tf.TensorSpec(None, name="x"))
    with pytest.raises(hidet.errors.ShapeNeeded, match="'x'"):
        hidet.compile(function)
    assert hidet.compile(function, shapes={"x": (2, 4)})(-ONES).max() == 0


def test_variables_are_constants_of_the_compiled_model() -> None:
    module = Scaled()
    compiled = hidet.compile(module)
    module.factor.assign([0.0, 0.0, 0.0, 0.0])
    assert compiled(ONES).tolist() == [[1, 2, 3, 4]] * 2


def test_variables_are_read_where_they_lie() -> None:
    from hidet.tensorflow.loader import load_model

    module = Scaled()
    (held,) = load_model(module).captured
    address = np.from_dlpack(module.factor.read_value()).__array_interface__["data"][0]
    assert held.array.__array_interface__["data"][0] == address


def test_tensors_go_in_and_come_out_without_copies() -> None:
    compiled = hidet.compile(Scaled())
    x = tf.constant(ONES)
    made = compiled(x)
    assert isinstance(made, tf.Tensor) and made.numpy().tolist() == [[1, 2, 3, 4]] * 2
    from hidet.tensorflow.tensors import TensorFlowAdapter

    adapter = TensorFlowAdapter()
    assert adapter.pointer(adapter.convert(x)) == np.from_dlpack(x).__array_interface__["data"][0]
    array, address = adapter.empty((2, 4), (4, 1), "float32")
    assert np.from_dlpack(adapter.finished(array)).__array_interface__["data"][0] == address


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "int8", "int64", "uint8", "bool"])
def test_every_type_of_elements_goes_both_ways(kind) -> None:
    compiled = hidet.compile(tf.function(lambda x: (x, tf.reshape(x, [-1]))), tf.TensorSpec((None, 2), kind))
    x = tf.cast(tf.constant([[0, 1], [1, 0]]), kind)
    same, flat = compiled(x)
    assert same.dtype == x.dtype and bool(tf.reduce_all(same == x)) and flat.shape == (4,)


def test_types_of_arguments_are_checked() -> None:
    with pytest.raises(hidet.errors.DTypeError, match="x"):
        hidet.compile(Scaled())(ONES.astype(np.float64))


def test_plug_ins_add_operators(tmp_path, monkeypatch) -> None:
    from hidet.plugins import HandlerSpec

    (tmp_path / "acme_cross.py").write_text(
        """
def emit_cross(e, a, b):
    def turned(x, steps):
        return e.emit("roll", x, shifts=(steps,), axes=(1,))

    left = e.emit("mul", turned(a, -1), turned(b, -2))
    return e.emit("sub", left, e.emit("mul", turned(a, -2), turned(b, -1)))
"""
    )
    monkeypatch.syspath_prepend(tmp_path)

    class Plugin:
        HIDET_API = 1

        def hidet_handlers(self) -> Any:
            yield HandlerSpec(frontend="tensorflow", operator="Cross", load="acme_cross:emit_cross")

    function = tf.function(lambda x, y: tf.linalg.cross(x, y))
    specs = [tf.TensorSpec((None, 3)), tf.TensorSpec((None, 3))]
    assert [entry.operator for entry in hidet.tensorflow.check(function, specs)] == ["Cross"]
    x, y = np.random.default_rng(0).random((2, 5, 3)).astype(np.float32)
    with hidet.plugins.use(Plugin):
        assert hidet.tensorflow.check(function, specs) == ()
        np.testing.assert_allclose(hidet.compile(function, specs)(x, y), np.cross(x, y), rtol=0, atol=1e-6)
