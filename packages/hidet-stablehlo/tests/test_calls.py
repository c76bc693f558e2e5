"""How functions of jax are called when they are compiled, and what else jax gives besides functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet
import hidet.jax
from hidet.errors import LaunchError, ShapeError

jax = pytest.importorskip("jax", reason="jax is not installed: nox -s jax")

export = pytest.importorskip("jax.export")
jnp, lax = jax.numpy, jax.lax
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def spec(*shape: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_arguments_by_name_and_results_in_trees() -> None:
    def function(x: Any, *, scale: Any) -> Any:
        return {"made": [x * scale["by"], None], "of": (x.sum(),)}

    compiled = hidet.jax.compile(function, spec(3, 4), scale={"by": spec()})
    made = compiled(X, scale={"by": np.float32(2)})
    assert list(made) == ["made", "of"] and made["made"][1] is None and isinstance(made["of"], tuple)
    np.testing.assert_allclose(made["made"][0], 2 * X)
    with pytest.raises(LaunchError, match=r"keys \['by'\]"):
        compiled(X, scale={"times": np.float32(2)})


def test_an_argument_that_nobody_reads_is_passed_all_the_same() -> None:
    compiled = hidet.jax.compile(lambda x, y: x + 1, spec(3, 4), spec(7))
    np.testing.assert_allclose(compiled(X, np.zeros(7, np.float32)), X + 1)


def test_arrays_of_jax_give_arrays_of_jax() -> None:
    compiled = hidet.jax.compile(lambda x: (x * 2, x.astype(jnp.bfloat16)), spec(3, 4))
    twice, narrow = compiled(jnp.asarray(X))
    assert isinstance(twice, jax.Array) and narrow.dtype == jnp.bfloat16
    assert isinstance(compiled(X)[0], np.ndarray)


def test_a_size_of_one_name_is_one_size() -> None:
    (b,) = export.symbolic_shape("b")
    compiled = hidet.jax.compile(lambda x, y: x + y, spec(b, 4), spec(b, 4))
    np.testing.assert_allclose(compiled(X[:2], X[1:]), X[:2] + X[1:])
    with pytest.raises(ShapeError, match="is 2, expected b = 3"):
        compiled(X, X[:2])


def test_sizes_may_be_computed_from_others() -> None:
    (b,) = export.symbolic_shape("b")
    compiled = hidet.jax.compile(lambda x: x.reshape(-1, 8), spec(2 * b, 4))
    assert compiled(np.ones((6, 4), np.float32)).shape == (3, 8)


def test_an_export_for_several_platforms_runs_what_is_for_the_processor() -> None:
    def function(x: Any) -> Any:
        return lax.platform_dependent(x, cpu=lambda v: v + 1, cuda=lambda v: v - 1)

    exported = export.export(jax.jit(function), platforms=["cuda", "cpu"])(spec(3, 4))
    np.testing.assert_allclose(hidet.compile(exported)(X), X + 1)


def test_a_lowered_function_is_compiled() -> None:
    lowered = jax.jit(lambda x: lax.erfc(x) @ X.T).lower(spec(3, 4))
    np.testing.assert_allclose(hidet.compile(lowered)(X), lax.erfc(X) @ X.T, atol=1e-5)


def test_a_step_of_training_is_compiled() -> None:
    def loss(params: Any, x: Any) -> Any:
        return (jnp.tanh(x @ params["w"]) ** 2).mean()

    step = jax.value_and_grad(loss)
    params = {"w": np.ones((4, 2), np.float32)}
    value, gradient = hidet.jax.compile(step, params, spec(3, 4))(params, X)
    expected = step(params, X)
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient["w"], expected[1]["w"], atol=1e-6)


def test_attention_of_jax_is_scheduled() -> None:
    q = np.random.default_rng(0).standard_normal((2, 6, 4, 8)).astype(np.float32)
    compiled = hidet.jax.compile(lambda q: jax.nn.dot_product_attention(q, q, q), spec(*q.shape))
    np.testing.assert_allclose(compiled(q), jax.nn.dot_product_attention(q, q, q), atol=1e-5)
    assert compiled.report().nodes.fallback == 0
