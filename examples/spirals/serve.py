"""Train a small network in JAX, export it, compile the export, and run it in a process that cannot import jax.

    pip install hidet-stablehlo[jax]
    python serve.py

No package known to us ships a trained model for JAX, so one is trained here: two spirals, told apart.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import hidet

SERVE = """
import sys
sys.modules["jax"] = None  # importing it is an error
import hidet, numpy
model = hidet.load("spirals.hidet")
numpy.save("said.npy", model(numpy.load("points.npy")))
"""


def points(count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Points [count, 2] of two spirals, and which of them each is on."""
    turn = 3 * np.sqrt(rng.random(count)) + 0.3
    label = rng.integers(0, 2, count)
    angle = 2 * turn + np.pi * label
    places = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 3
    return (places + 0.02 * rng.standard_normal(places.shape)).astype(np.float32), label.astype(np.int32)


def network(params: Any, x: Any) -> Any:
    for weight, bias in params[:-1]:
        x = jax.nn.silu(x @ weight + bias)
    return x @ params[-1][0] + params[-1][1]


def train(steps: int = 1500) -> Any:
    """Weights, by plain gradient descent with momentum."""
    rng = np.random.default_rng(0)
    sizes = (2, 32, 32, 2)
    params = [
        (jnp.asarray(rng.standard_normal((n, m)) * np.sqrt(2 / n), jnp.float32), jnp.zeros(m, jnp.float32))
        for n, m in itertools.pairwise(sizes)
    ]
    speed = jax.tree_util.tree_map(jnp.zeros_like, params)
    x, label = points(512, rng)

    def loss(params: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(network(params, x)), label[:, None], 1).mean()

    @jax.jit
    def step(params: Any, speed: Any) -> Any:
        speed = jax.tree_util.tree_map(lambda v, g: 0.95 * v - 0.1 * g, speed, jax.grad(loss)(params))
        return jax.tree_util.tree_map(jnp.add, params, speed), speed

    for _ in range(steps):
        params, speed = step(params, speed)
    return params


def main() -> float:
    """How many of a thousand new points the served model puts on the right spiral."""
    params = train()
    (batch,) = export.symbolic_shape("batch")
    spec: Any = jax.ShapeDtypeStruct((batch, 2), jnp.float32)
    exported = export.export(jax.jit(lambda x: jax.nn.softmax(network(params, x))))(spec)
    x, label = points(1000, np.random.default_rng(1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "spirals.jax").write_bytes(exported.serialize())
        hidet.compile(path / "spirals.jax").save(path / "spirals.hidet")
        np.save(path / "points.npy", x)
        subprocess.run([sys.executable, "-c", SERVE], cwd=path, check=True)
        said = np.load(path / "said.npy")
    assert np.allclose(said, exported.call(x), atol=1e-5)
    right = float((said.argmax(1) == label).mean())
    print(f"{right:.1%} of {len(x)} points are on the spiral that the model says")
    return right


if __name__ == "__main__":
    main()
