"""The example that names notes: a trained model of Keras 2, which TensorFlow of today does not load as it is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import hidet

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")
if importlib.util.find_spec("basic_pitch") is None:
    pytest.skip("basic-pitch is not installed: nox -s tensorflow", allow_module_level=True)

SCRIPT = Path(__file__).parents[3] / "examples" / "chord" / "listen.py"


def test_a_trained_model_hears_the_notes_that_are_played() -> None:
    from hidet.tensorflow.compat import load_trained

    spec = importlib.util.spec_from_file_location("listen", SCRIPT)
    listen = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(listen)
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
