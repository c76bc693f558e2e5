"""Models of Flax and plain jax of the sizes that kernels for whole models have, with random weights.

jax and Flax are imported where a model is built: this module is read where they are not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from .framework_model import FrameworkModel, floats


def _of_linen(module: Any, *examples: Any) -> tuple[Callable[..., Any], Any]:
    """The function of a module and its weights, norms' among them, none of which is 0 or 1."""
    import jax

    variables = jax.jit(module.init)(jax.random.key(0), *examples)
    rng = np.random.default_rng(1)

    def varied(path: Any, leaf: Any) -> Any:
        name = str(path[-1])
        if "scale" in name or "var" in name:
            return (1 + 0.2 * rng.random(leaf.shape)).astype(np.float32)
        if "bias" in name or "mean" in name:
            return (0.1 * rng.standard_normal(leaf.shape)).astype(np.float32)
        return np.asarray(leaf)

    return module.apply, jax.tree_util.tree_map_with_path(varied, variables)


def _image(batch: int, size: int) -> Any:
    return np.zeros((batch, size, size, 3), np.float32)


def _res_net() -> tuple[Callable[..., Any], Any]:
    from flax import linen as nn

    class Bottleneck(nn.Module):
        width: int
        stride: int = 1

        @nn.compact
        def __call__(self, x: Any) -> Any:
            def norm(y: Any) -> Any:
                return nn.BatchNorm(use_running_average=True)(y)

            y = nn.relu(norm(nn.Conv(self.width, (1, 1), use_bias=False)(x)))
            y = nn.relu(norm(nn.Conv(self.width, (3, 3), (self.stride, self.stride), use_bias=False)(y)))
            y = norm(nn.Conv(4 * self.width, (1, 1), use_bias=False)(y))
            if x.shape != y.shape:
                x = norm(nn.Conv(4 * self.width, (1, 1), (self.stride, self.stride), use_bias=False)(x))
            return nn.relu(x + 0.5 * y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(32, (7, 7), (2, 2), use_bias=False)(x)))
            x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
            for width, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2)):
                x = Bottleneck(width, stride)(x)
            return nn.Dense(10)(x.mean((1, 2)))

    return _of_linen(ResNet(), _image(1, 64))


def _encoder(nn: Any, x: Any, heads: int) -> Any:
    y = nn.LayerNorm(epsilon=1e-6)(x)
    x = x + nn.MultiHeadDotProductAttention(heads)(y, y)
    return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(2 * x.shape[-1])(nn.LayerNorm(epsilon=1e-6)(x))))


def _vit() -> tuple[Callable[..., Any], Any]:
    from flax import linen as nn
    from jax import numpy as jnp

    class ViT(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(128, (8, 8), (8, 8), padding="VALID")(x)
            x = x.reshape(x.shape[0], -1, 128)
            first = self.param("cls", nn.initializers.normal(), (1, 1, 128))
            x = jnp.concatenate([jnp.broadcast_to(first, (x.shape[0], 1, 128)), x], 1)
            x = x + self.param("position", nn.initializers.normal(), (1, x.shape[1], 128))
            for _ in range(2):
                x = _encoder(nn, x, 2)
            return nn.Dense(10)(nn.LayerNorm()(x)[:, 0])

    return _of_linen(ViT(), _image(1, 64))


def _mixer() -> tuple[Callable[..., Any], Any]:
    from flax import linen as nn

    class Mixer(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(128, (8, 8), (8, 8))(x)
            x = x.reshape(x.shape[0], -1, 128)
            for _ in range(2):
                y = nn.LayerNorm()(x).swapaxes(1, 2)
                x = x + nn.Dense(x.shape[1])(nn.gelu(nn.Dense(64)(y))).swapaxes(1, 2)
                x = x + nn.Dense(128)(nn.gelu(nn.Dense(256)(nn.LayerNorm()(x))))
            return nn.Dense(5)(nn.LayerNorm()(x).mean(1))

    return _of_linen(Mixer(), _image(1, 64))


def _diffusion() -> tuple[Callable[..., Any], Any]:
    from flax import linen as nn
    from jax import numpy as jnp

    class UNet(nn.Module):
        """Convolutions with group norms, a time embedding, attention, a transposed convolution."""

        @nn.compact
        def __call__(self, x: Any, time: Any) -> Any:
            angles = time[:, None] * np.exp(-np.log(1e4) * np.arange(16) / 16).astype(x.dtype)
            embedding = nn.Dense(64)(nn.silu(nn.Dense(64)(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))))

            def block(y: Any, width: int) -> Any:
                z = nn.Conv(width, (3, 3))(nn.silu(nn.GroupNorm(8)(y)))
                z = z + nn.Dense(width)(nn.silu(embedding))[:, None, None]
                z = nn.Conv(width, (3, 3))(nn.silu(nn.GroupNorm(8)(z)))
                return z + (y if y.shape[-1] == width else nn.Conv(width, (1, 1))(y))

            first = block(nn.Conv(32, (3, 3))(x), 32)
            second = block(nn.Conv(64, (3, 3), (2, 2))(first), 64)
            flat = nn.GroupNorm(8)(second).reshape(second.shape[0], -1, 64)
            second = second + nn.MultiHeadDotProductAttention(2)(flat).reshape(second.shape)
            up = nn.ConvTranspose(32, (4, 4), (2, 2))(second)
            return nn.Conv(3, (3, 3))(nn.silu(nn.GroupNorm(8)(block(jnp.concatenate([up, first], -1), 32))))

    return _of_linen(UNet(), _image(1, 16), np.zeros(1, np.float32))


_HEADS, _GROUPS, _WIDTH = 4, 2, 64


def _llama(params: Any, x: Any) -> Any:
    """A block with grouped queries: RMS norms, rotary positions, a gated product."""
    import jax
    from jax import numpy as jnp

    def norm(y: Any, weight: Any) -> Any:
        wide = y.astype(jnp.promote_types(y.dtype, np.float32))
        return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(y.dtype) * weight

    def rotated(y: Any) -> Any:
        steps = np.outer(np.arange(y.shape[1]), 1e4 ** (-np.arange(0, _WIDTH, 2) / _WIDTH))
        cos, sin = (np.asarray(part, y.dtype)[None, :, None] for part in (np.cos(steps), np.sin(steps)))
        a, b = jnp.split(y, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    y = norm(x, params["norm1"])
    q = rotated((y @ params["q"]).reshape(*y.shape[:2], _HEADS, _WIDTH))
    k = rotated((y @ params["k"]).reshape(*y.shape[:2], _GROUPS, _WIDTH))
    v = (y @ params["v"]).reshape(*y.shape[:2], _GROUPS, _WIDTH)
    k, v = (jnp.repeat(part, _HEADS // _GROUPS, axis=2) for part in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (_WIDTH**-0.5)
    allowed = np.tril(np.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(allowed, scores, jnp.finfo(x.dtype).min), -1)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(*x.shape[:2], _HEADS * _WIDTH) @ params["o"]
    y = norm(x, params["norm2"])
    return x + (jax.nn.silu(y @ params["gate"]) * (y @ params["up"])) @ params["down"]


def _of_llama() -> tuple[Callable[..., Any], Any]:
    rng, size = np.random.default_rng(3), _HEADS * _WIDTH
    shapes = {"q": (size, size), "k": (size, size // 2), "v": (size, size // 2), "o": (size, size)}
    shapes |= {"gate": (size, 256), "up": (size, 256), "down": (256, size)}
    made = {name: (rng.standard_normal(shape) / 16).astype(np.float32) for name, shape in shapes.items()}
    norms = {name: (1 + 0.2 * rng.random(size)).astype(np.float32) for name in ("norm1", "norm2")}
    return _llama, made | norms


def _lstm(params: Any, x: Any) -> Any:
    import jax
    from jax import numpy as jnp

    def step(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ params["w"] + h @ params["u"] + params["b"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[0], 64), x.dtype)
    (h, _), outputs = jax.lax.scan(step, (zeros, zeros), x.swapaxes(0, 1))
    return outputs.swapaxes(0, 1), h


def _of_lstm() -> tuple[Callable[..., Any], Any]:
    rng = np.random.default_rng(3)
    shapes = {"w": (32, 256), "u": (64, 256), "b": (256,)}
    return _lstm, {name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}


JAX_MODELS: Mapping[str, FrameworkModel] = MappingProxyType(
    {
        "jax ResNet": FrameworkModel(_res_net, floats(64, 64, 3)),
        "jax ViT": FrameworkModel(_vit, floats(64, 64, 3)),
        "jax Mixer": FrameworkModel(_mixer, floats(64, 64, 3)),
        "jax diffusion": FrameworkModel(_diffusion, lambda rng, b: [*floats(16, 16, 3)(rng, b), *floats()(rng, b)]),
        "jax Llama": FrameworkModel(_of_llama, floats(40, 256)),
        "jax LSTM": FrameworkModel(_of_lstm, floats(24, 32)),
    }
)
"""What `build` of an entry gives: a function of weights and inputs, and the weights."""
