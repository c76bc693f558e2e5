"""TFLite files that TensorFlow's converter makes, against TensorFlow's interpreter."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hidet
import hidet.tensorflow
from hidet.testing.numerics import Sample, check_output

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")
keras = tf.keras
L = keras.layers
Array = np.ndarray[Any, np.dtype[Any]]


def quietly(made: Callable[[], Any]) -> Any:
    """What it makes. The converter warns about what it does itself, the interpreter that it moves elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made()


def interpreter(model: bytes) -> Any:
    return quietly(lambda: tf.lite.Interpreter(model_content=model))


def interpreted(model: bytes, **arrays: Array) -> dict[str, Array]:
    results: dict[str, Array] = interpreter(model).get_signature_runner()(**arrays)
    return results


def small_mobile_net() -> Any:
    """What converters know how to quantise: windows, blocks with a residual, activations, several scales."""
    image = keras.Input((24, 24, 3), name="image")
    x = L.Conv2D(8, 3, strides=2, padding="same", activation="relu")(image)
    y = L.DepthwiseConv2D(3, padding="same")(x)
    y = L.Conv2D(8, 1)(L.ReLU(6.0)(y))
    x = L.Activation("hard_swish")(L.Add()([x, y]))
    x = L.Concatenate()([L.AveragePooling2D(2)(x), L.Activation("sigmoid")(L.MaxPooling2D(2)(x))])
    x = L.Conv2DTranspose(8, 2, strides=2)(x)
    x = L.GlobalAveragePooling2D()(L.UpSampling2D(2, interpolation="bilinear")(x))
    return keras.Model(image, L.Dense(10, activation="softmax")(L.Dense(12, activation="relu")(x)))


def images(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).random((count, 24, 24, 3), dtype=np.float32)


def converted(model: Any, kind: str) -> bytes:
    """A model as a file of a kind: "float", "dynamic", "float16", "int8"."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        converter.representative_dataset = lambda: ([images(1, seed)] for seed in range(10))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return quietly(converter.convert)


def codes_of(model: bytes, x: Array) -> Array:
    """Numbers as codes of the file's input."""
    scale, zero = interpreter(model).get_input_details()[0]["quantization"]
    found: Array = np.clip(np.round(x / scale) + zero, -128, 127).astype(np.int8)
    return found


@pytest.fixture(scope="module")
def model() -> Any:
    keras.utils.set_random_seed(5)
    made = small_mobile_net()
    for number, weight in enumerate(made.weights):
        spread = 0.1 if number < len(made.weights) - 4 else 1.0
        weight.assign(weight + spread * np.random.default_rng(number).standard_normal(weight.shape))
    return made


@pytest.fixture(scope="module")
def wide(model: Any) -> Iterator[Any]:
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        made = small_mobile_net()
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    made.set_weights([weight.numpy() for weight in model.weights])
    return made


@pytest.mark.parametrize("kind", ["float", "dynamic", "float16"])
def test_a_model_of_floats_is_as_right_as_in_the_interpreter(kind: str, model: Any, wide: Any) -> None:
    file = converted(model, kind)
    compiled = hidet.compile(hidet.tensorflow.from_tflite(file))
    for batch in (1, 3):
        x = images(batch, batch)
        made, eager = compiled(x)["output_0"], interpreted(file, image=x)["output_0"]
        verdict = check_output(f"batch {batch}", [Sample(made, eager, wide(x.astype(np.float64)).numpy())])
        assert verdict.correct, str(verdict)
    assert compiled.report().nodes.fallback == 0


def test_a_model_of_codes_is_within_one_of_the_interpreter(model: Any) -> None:
    file = converted(model, "int8")
    compiled = hidet.compile(hidet.tensorflow.from_tflite(file))
    for batch in (1, 4):
        x = codes_of(file, images(batch, 40 + batch))
        made, expected = compiled(x)["output_0"], interpreted(file, image=x)["output_0"]
        assert made.dtype == expected.dtype == np.int8
        assert np.abs(made.astype(int) - expected).max() <= 1
        assert np.ptp(expected.astype(int)) > 50
    assert compiled.report().nodes.fallback == 0


def test_products_of_codes_stay_in_integers(model: Any) -> None:
    graph = hidet.tensorflow.from_tflite(converted(model, "int8")).graph
    products = [node for node in graph.nodes if node.op.name in ("conv", "matmul", "linear")]
    assert len(products) == 5
    assert {node.outputs[0].tensor.dtype.name for node in products} == {"int32"}


def test_weights_of_codes_are_held_as_codes() -> None:
    x = keras.Input((64,), name="x")
    file = converted(keras.Model(x, L.Dense(96)(x)), "dynamic")
    graph = hidet.tensorflow.from_tflite(file).graph
    assert [data.data.dtype.name for data in graph.constants.values() if data.data.size > 96] == ["int8"]
    given = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    made, expected = hidet.compile(graph)(given), interpreted(file, x=given)["output_0"]
    # The interpreter rounds what comes in to 8 bits.
    np.testing.assert_allclose(made, expected, atol=0.01 * np.abs(expected).max())


def test_a_model_with_suppressed_boxes_gives_what_the_interpreter_does() -> None:
    @tf.function(input_signature=[tf.TensorSpec((30, 4), name="boxes"), tf.TensorSpec((30,), name="scores")])
    def chosen(boxes: Any, scores: Any) -> Any:
        places, scores = tf.image.non_max_suppression_with_scores(boxes, scores, 12, 0.4, 0.3)
        return {"boxes": tf.gather(boxes, places), "scores": scores}

    file = from_function(chosen)
    rng = np.random.default_rng(0)
    corner = rng.random((30, 2), np.float32)
    boxes = np.concatenate([corner, corner + 0.3], 1)
    given = {"boxes": boxes, "scores": rng.random(30, np.float32)}
    compiled = hidet.compile(hidet.tensorflow.from_tflite(file))
    check_alike(compiled(**given), interpreted(file, **given))


def from_function(function: Any, **settings: Any) -> bytes:
    module = tf.Module()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    for name, value in settings.items():
        setattr(converter, name, value)
    return quietly(converter.convert)


def check_alike(made: dict[str, Any], expected: dict[str, Array]) -> None:
    assert made.keys() == expected.keys()
    for name, array in expected.items():
        assert made[name].dtype == array.dtype and made[name].shape == array.shape
        np.testing.assert_allclose(made[name], array, rtol=2e-6, atol=2e-6)


FLOATS = tf.TensorSpec((2, 6, 8), tf.float32)
IMAGES = tf.TensorSpec((2, 8, 6, 4), tf.float32)
WHOLE = tf.TensorSpec((2, 6), tf.int32)

FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "arithmetic": (lambda x: tf.nn.relu(x + 1) * x - x / (x * x + 2), [FLOATS]),
    "functions": (lambda x: tf.exp(-tf.abs(x)) + tf.sin(x) + tf.math.rsqrt(x * x + 1) + tf.nn.elu(x), [FLOATS]),
    "activations": (lambda x: tf.nn.leaky_relu(x, 0.3) + tf.nn.gelu(x) + tf.nn.relu6(x) + tf.sigmoid(x), [FLOATS]),
    "softmax": (lambda x: tf.nn.softmax(2 * x) + tf.nn.log_softmax(x), [FLOATS]),
    "reductions": (lambda x: tf.reduce_mean(x, 1) + tf.reduce_max(x, [1]) + tf.reduce_prod(x, 1), [FLOATS]),
    "positions": (lambda x: tf.argmax(x, 2) + tf.argmin(x, 2), [FLOATS]),
    "comparisons": (lambda x: tf.where((x > 0) & ~(x > 1) | tf.equal(x, 2.0), x, -x), [FLOATS]),
    "slices": (lambda x: x[:, ::-2, 1:5] + tf.slice(x, [0, 1, 2], [2, 3, 4]), [FLOATS]),
    "joining": (lambda x: tf.concat([x, tf.stack(tf.unstack(x, axis=1), 1)], 2), [FLOATS]),
    "splitting": (lambda x: tf.split(x, 2, 2)[1] * tf.split(x, [3, 5], 2)[1][..., :4], [FLOATS]),
    "padding": (
        lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 3]]) + tf.pad(x, [[0, 0], [2, 1], [1, 2]], "REFLECT"),
        [FLOATS],
    ),
    "tiles": (lambda x: tf.tile(x, [1, 2, 1]) + tf.repeat(x, 2, axis=1), [FLOATS]),
    "products": (lambda x: tf.matmul(x, x, transpose_b=True), [FLOATS]),
    "blocks": (lambda x: tf.nn.space_to_depth(x, 2) + tf.nn.space_to_depth(tf.nn.depth_to_space(x, 2), 4), [IMAGES]),
    "dilated convolutions": (lambda x: tf.nn.conv2d(x, tf.ones((3, 3, 4, 2)), 1, "SAME", dilations=2), [IMAGES]),
    "resizing": (lambda x: tf.image.resize(x, (5, 9)) + tf.image.resize(x, (5, 9), "nearest"), [IMAGES]),
    "norms": (lambda x: tf.nn.local_response_normalization(x) + tf.math.l2_normalize(x, -1), [IMAGES]),
    "picking": (lambda x, n: tf.gather(x, n % 6, axis=1, batch_dims=1), [FLOATS, WHOLE]),
    "picking at places": (lambda x, n: tf.gather_nd(x, n[:, :2] % 2), [FLOATS, WHOLE]),
    "whole numbers": (lambda n: n // 3 + n % 5 * tf.maximum(n, 2) + tf.cumsum(n, 1), [WHOLE]),
    "one hot": (lambda n: tf.one_hot(n % 4, 4) + tf.cast(n, tf.float32)[..., None], [WHOLE]),
    "scattering": (lambda n: tf.scatter_nd(n[0, :, None] % 6, tf.cast(n[1], tf.float32), [8]), [WHOLE]),
    "segments": (lambda x, n: tf.math.unsorted_segment_sum(x[0], n[0] % 3, 3), [FLOATS, WHOLE]),
    "largest": (lambda x: tf.math.top_k(x, 3).values + tf.cast(tf.math.top_k(x, 3).indices, tf.float32), [FLOATS]),
    "reversal": (lambda x: tf.reverse(x, [1]) + tf.reverse_sequence(x, [3, 5], 1, 0), [FLOATS]),
    "shapes": (lambda x: tf.reshape(x, [tf.shape(x)[0], -1]) + tf.cast(tf.size(x), tf.float32), [FLOATS]),
    "a branch": (lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x + 1, lambda: x * 2), [FLOATS]),
    "a loop": (lambda x: tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, tf.sin(y) + x), (0, x))[1], [FLOATS]),
}


def elements(spec: Any, rng: np.random.Generator) -> Array:
    if spec.dtype == tf.int32:
        return rng.integers(0, 50, spec.shape).astype(np.int32)
    found: Array = rng.standard_normal(spec.shape).astype(np.float32)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_computed_as_by_the_interpreter(name: str) -> None:
    function, specs = FUNCTIONS[name]
    named = [tf.TensorSpec(spec.shape, spec.dtype, f"input_{number}") for number, spec in enumerate(specs)]
    wrapped = tf.function(lambda *arguments: {"result": function(*arguments)}, input_signature=named)
    file = from_function(wrapped)
    rng = np.random.default_rng(0)
    given = {spec.name: elements(spec, rng) for spec in named}
    check_alike(hidet.compile(hidet.tensorflow.from_tflite(file))(**given), interpreted(file, **given))


DETECTIONS = """name: "TFLite_Detection_PostProcess"
attr {{ key: "max_detections" value {{ i: 8 }} }} attr {{ key: "max_classes_per_detection" value {{ i: {each} }} }}
attr {{ key: "use_regular_nms" value {{ b: {regular} }} }} attr {{ key: "num_classes" value {{ i: 3 }} }}
attr {{ key: "detections_per_class" value {{ i: 5 }} }} attr {{ key: "nms_score_threshold" value {{ f: 0.2 }} }}
attr {{ key: "nms_iou_threshold" value {{ f: 0.5 }} }} attr {{ key: "y_scale" value {{ f: 10.0 }} }}
attr {{ key: "x_scale" value {{ f: 10.0 }} }} attr {{ key: "h_scale" value {{ f: 5.0 }} }}
attr {{ key: "w_scale" value {{ f: 5.0 }} }}"""


@pytest.mark.parametrize(("regular", "each"), [("false", 1), ("false", 2), ("true", 1)])
def test_the_end_of_a_detector_is_known(regular: str, each: int) -> None:
    """By the best class of each box, with one or two classes told, and class by class."""
    rng = np.random.default_rng(3)
    corners = rng.random((20, 4), np.float32)
    anchors = np.concatenate([corners[:, :2], 0.2 + 0.2 * corners[:, 2:]], 1)
    shapes = {"encodings": (1, 20, 4), "scores": (1, 20, 4)}

    @tf.function(experimental_implements=DETECTIONS.format(regular=regular, each=each))
    def ending(encodings: Any, scores: Any, anchors: Any) -> Any:
        rows = 8 * each
        kinds = [tf.zeros((1, rows, 4)), tf.zeros((1, rows)), tf.zeros((1, rows)), tf.zeros((1,))]
        return [tf.constant(0.0) + kind for kind in kinds]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, name) for name, shape in shapes.items()])
    def detector(encodings: Any, scores: Any) -> Any:
        names = ("boxes", "classes", "scores", "count")
        return dict(zip(names, ending(encodings, scores, tf.constant(anchors)), strict=True))

    file = from_function(detector, allow_custom_ops=True)
    given = {
        "encodings": rng.standard_normal((1, 20, 4)).astype(np.float32),
        "scores": rng.random((1, 20, 4), np.float32),
    }
    expected = interpreted(file, **given)
    assert expected["count"] > 3
    check_alike(hidet.compile(hidet.tensorflow.from_tflite(file))(**given), expected)


def test_recurrent_layers_are_loops_of_the_graph() -> None:
    x = keras.Input((7, 4), batch_size=1, name="x")
    y = L.Bidirectional(L.LSTM(3, return_sequences=True))(L.GRU(5, return_sequences=True)(x))
    file = converted(keras.Model(x, y), "float")
    given = np.random.default_rng(0).standard_normal((1, 7, 4)).astype(np.float32)
    compiled = hidet.compile(hidet.tensorflow.from_tflite(file))
    check_alike(compiled(given), interpreted(file, x=given))


def test_a_file_needs_no_tensorflow(tmp_path: Path, model: Any) -> None:
    file, x = converted(model, "int8"), images(2, 9)
    (tmp_path / "model.tflite").write_bytes(file)
    given = codes_of(file, x)
    np.save(tmp_path / "x.npy", given)
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['tensorflow', 'keras', 'tflite', 'flatbuffers'])); "
        "import numpy, hidet, hidet.tensorflow; assert not hidet.tensorflow.check('model.tflite'); "
        "compiled = hidet.compile('model.tflite'); compiled.save('model.hidet'); "
        "loaded = hidet.load('model.hidet'); numpy.save('y.npy', loaded(numpy.load('x.npy'))['output_0'])"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    made, expected = np.load(tmp_path / "y.npy"), interpreted(file, image=given)["output_0"]
    assert np.abs(made.astype(int) - expected).max() <= 1


def test_the_command_line_takes_a_file(tmp_path: Path, model: Any) -> None:
    (tmp_path / "model.tflite").write_bytes(converted(model, "float"))
    command = [sys.executable, "-m", "hidet", "run", "model.tflite", "--shape", "image=2x24x24x3"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "2x10" in done.stdout or "[2, 10]" in done.stdout


def test_operators_of_tensorflow_inside_of_a_file_are_named() -> None:
    inverse = tf.function(lambda x: tf.linalg.inv(x), input_signature=[tf.TensorSpec((3, 3))])
    sets = tf.lite.OpsSet
    settings = tf.lite.TargetSpec(supported_ops={sets.TFLITE_BUILTINS, sets.SELECT_TF_OPS})
    file = from_function(inverse, target_spec=settings)
    with pytest.raises(hidet.errors.UnsupportedOp, match="FlexMatrixInverse"):
        hidet.tensorflow.from_tflite(file)
