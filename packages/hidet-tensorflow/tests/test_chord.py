"""The example that names notes: a trained model of Keras 2, which TensorFlow of today does not load as it is."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hidet

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")
if importlib.util.find_spec("basic_pitch") is None:
    pytest.skip("basic-pitch is not installed: nox -s tensorflow", allow_module_level=True)

SCRIPT = Path(__file__).parents[3] / "examples" / "chord" / "listen.py"


@pytest.fixture(scope="module")
def listen() -> Any:
    spec = importlib.util.spec_from_file_location("listen", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_tflite_file_hears_what_the_interpreter_does(listen: Any) -> None:
    path = listen.model_path().with_suffix(".tflite")
    compiled = hidet.compile(path)
    assert compiled.report().nodes.fallback == 0
    sound = listen.windows(listen.chord((57, 61, 64)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = tf.lite.Interpreter(str(path)).get_signature_runner()(input_2=sound)
    heard = compiled(input_2=sound)
    assert {note for note, _ in listen.loudest(heard, 3)} == {57, 61, 64}
    for name, array in expected.items():
        np.testing.assert_allclose(heard[name], array, rtol=0, atol=1e-3)


def test_a_trained_model_hears_the_notes_that_are_played(listen: Any) -> None:
    from hidet.tensorflow.compat import load_trained

    path = listen.model_path()
    compiled = hidet.compile(path)
    assert compiled.report().nodes.fallback == 0
    played = (57, 61, 64)
    heard = compiled(listen.windows(listen.chord(played)))
    assert {note for note, _ in listen.loudest(heard, 3)} == set(played)
    eager = load_trained(str(path)).signatures["serving_default"](tf.constant(listen.windows(listen.chord(played))))
    assert heard.keys() == eager.keys()
    for name, array in heard.items():
        # The model divides by the range of a logarithm, so that a bit of the sound is more than one of the result.
        np.testing.assert_allclose(array, eager[name], rtol=0, atol=1e-3)
