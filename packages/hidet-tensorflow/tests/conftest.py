"""Functions of TensorFlow compiled, against TensorFlow.

These tests run where TensorFlow is installed (`nox -s tensorflow`), and are skipped elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.testing.numerics import Sample, check_output

with warnings.catch_warnings():
    # TensorFlow and what it needs use what others have deprecated.
    warnings.simplefilter("ignore")
    try:
        import tensorflow as tf
    except ImportError:
        tf = None

Array = np.ndarray[Any, np.dtype[Any]]
SEEDS = 3


@pytest.fixture(autouse=True, scope="session")
def _own_kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIDET_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors but for those of TensorFlow and Keras about what they use of numpy."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"))


def open_specs(arrays: Sequence[Array]) -> list[Any]:
    """What a function takes: tensors like these with an open first axis."""
    return [tf.TensorSpec((None, *array.shape[1:]) if array.ndim else (), array.dtype) for array in arrays]


def flat(results: Any) -> list[Array]:
    return [np.asarray(result) for result in tf.nest.flatten(results)]


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _check(
    function: Callable[..., Any],
    make: Callable[[np.random.Generator], Sequence[Array]],
    *,
    strict: bool = True,
    in_float64: bool = True,
) -> hidet.CompiledGraph:
    """Compile a function with open first axes, and compare its results, over three seeds, with TensorFlow's.

    in_float64: whether the function computes in f64 what it is given in f64; else errors are measured against
    TensorFlow's own f32. strict: whether nothing may be on the fallback nest.
    """
    compiled = hidet.compile(tf.function(function), open_specs(make(np.random.default_rng(0))))
    columns: list[list[Sample]] = []
    for seed in range(SEEDS):
        arrays = make(np.random.default_rng(seed))
        eager = function(*map(tf.constant, arrays))
        reference = flat(function(*[tf.constant(_wide(array)) for array in arrays])) if in_float64 else flat(eager)
        results = compiled(*arrays)
        rows = list(zip(flat(results), flat(eager), reference, strict=True))
        columns = columns or [[] for _ in rows]
        for column, row in zip(columns, rows, strict=True):
            column.append(Sample(*row))
    for number, samples in enumerate(columns):
        # Without a wider reference both errors count as ours.
        verdict = check_output(f"result {number}", samples, 0.0 if in_float64 else 2e-7)
        assert verdict.correct, str(verdict)
    assert not strict or compiled.report().nodes.fallback == 0
    return compiled


def _check_model(make: Callable[[], Any], inputs: Callable[[np.random.Generator, int], Any]) -> hidet.CompiledGraph:
    """Compile a Keras model, and compare it with Keras for batches of two sizes. inputs: of a generator and a batch."""
    keras = tf.keras
    keras.utils.set_random_seed(7)
    model = make()
    _vary_weights(model)
    _set_type("float64")
    try:
        wide = make()
    finally:
        _set_type("float32")
    wide.set_weights([weight.numpy() for weight in model.weights])
    compiled = hidet.compile(model)
    columns: dict[int, list[Sample]] = {}
    for seed, batch in enumerate((1, 3)):
        given = inputs(np.random.default_rng(seed), batch)
        eager, reference = model(given, training=False), wide(tf.nest.map_structure(_wide, given), training=False)
        rows = zip(flat(compiled(given)), flat(eager), flat(reference), strict=True)
        for number, row in enumerate(rows):
            columns.setdefault(number, []).extend([Sample(*row)])
    for number, samples in columns.items():
        for sample in samples:
            verdict = check_output(f"result {number}", [sample])
            assert verdict.correct, str(verdict)
    return compiled


def _set_type(name: str) -> None:
    """The type of new inputs and layers."""
    tf.keras.config.set_floatx(name)
    tf.keras.config.set_dtype_policy(name)


def _vary_weights(model: Any) -> None:
    """Statistics and factors of normalisations, and biases, begin as zeros and ones, which hides what they do."""
    rng = np.random.default_rng(1)
    for weight in model.weights:
        name = weight.path.rpartition("/")[2]
        if name in ("gamma", "moving_variance"):
            weight.assign(1 + 0.2 * rng.random(weight.shape))
        elif name in ("beta", "bias", "moving_mean"):
            weight.assign(0.1 * rng.standard_normal(weight.shape))


@pytest.fixture
def check_model() -> Callable[..., hidet.CompiledGraph]:
    """Compile a Keras model and compare it with Keras."""
    return _check_model


@pytest.fixture
def check() -> Callable[..., hidet.CompiledGraph]:
    """Compile a function and compare it with TensorFlow."""
    return _check
