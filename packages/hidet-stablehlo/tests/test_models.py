"""Models of Flax and of plain jax, against jax, for batches of several sizes from one import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hidet.jax
from hidet.errors import UnsupportedOp

jax = pytest.importorskip("jax", reason="jax is not installed: nox -s jax")
nn = pytest.importorskip("flax.linen", reason="Flax is not installed: nox -s jax")

jnp, lax = jax.numpy, jax.lax
nnx = pytest.importorskip("flax.nnx")

Array = np.ndarray[Any, np.dtype[Any]]


def floats(*shape: int) -> Callable[[np.random.Generator, int], Sequence[Array]]:
    return lambda rng, batch: [rng.standard_normal((batch, *shape)).astype(np.float32)]


def tokens(length: int, vocabulary: int) -> Callable[[np.random.Generator, int], Sequence[Array]]:
    return lambda rng, batch: [rng.integers(0, vocabulary, (batch, length)).astype(np.int32)]


def of_linen(module: Any, make: Any) -> tuple[Callable[..., Any], Any]:
    """The function of a module and random weights, none of which is 0 or 1 where it would hide what it does."""
    inputs = make(np.random.default_rng(0), 2)
    variables = jax.jit(module.init)(jax.random.key(0), *inputs)
    rng = np.random.default_rng(1)

    def varied(path: Any, leaf: Any) -> Any:
        name = str(path[-1])
        if "scale" in name or "var" in name:
            return (1 + 0.2 * rng.random(leaf.shape)).astype(np.float32)
        if "bias" in name or "mean" in name:
            return (0.1 * rng.standard_normal(leaf.shape)).astype(np.float32)
        return np.asarray(leaf)

    return module.apply, jax.tree_util.tree_map_with_path(varied, variables)


# --- networks of images ----------------------------------------------------------------------------------------------


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
        return nn.relu(x + y)


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(8, (7, 7), (2, 2), use_bias=False)(x)))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for width, stride in ((4, 1), (4, 1), (8, 2)):
            x = Bottleneck(width, stride)(x)
        return nn.Dense(10)(x.mean((1, 2)))


class ConvNeXt(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.LayerNorm(epsilon=1e-6)(nn.Conv(16, (4, 4), (4, 4))(x))
        for number in range(2):
            y = nn.Conv(16, (7, 7), feature_group_count=16)(x)
            y = nn.Dense(64)(nn.LayerNorm(epsilon=1e-6)(y))
            x = x + nn.Dense(16)(nn.gelu(y, approximate=False)) * self.param(
                f"scale_{number}", nn.initializers.ones, (16,)
            )
        return nn.Dense(10)(x.mean((1, 2)))


class MobileNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.hard_swish(nn.Conv(8, (3, 3), (2, 2), padding=[(0, 1), (0, 1)])(x))
        y = nn.relu6(nn.Conv(24, (1, 1))(x))
        y = nn.relu6(nn.Conv(24, (3, 3), feature_group_count=24, kernel_dilation=(2, 2))(y))
        gate = nn.hard_sigmoid(nn.Dense(24)(nn.relu(nn.Dense(6)(y.mean((1, 2))))))
        y = nn.Conv(8, (1, 1))(y * gate[:, None, None])
        x = nn.avg_pool(x + y, (2, 2), strides=(2, 2), count_include_pad=True)
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(16, (4, 4), (4, 4))(x)
        x = x.reshape(x.shape[0], -1, 16)
        for _ in range(2):
            y = nn.LayerNorm()(x).swapaxes(1, 2)
            x = x + nn.Dense(x.shape[1])(nn.gelu(nn.Dense(8)(y))).swapaxes(1, 2)
            x = x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))
        return nn.Dense(5)(nn.LayerNorm()(x).mean(1))


class UNet(nn.Module):
    """A diffusion model: convolutions with group norms, a time embedding, attention, transposed convolutions."""

    @nn.compact
    def __call__(self, x: Any, time: Any) -> Any:
        frequencies = jnp.exp(-jnp.log(1e4) * jnp.arange(8) / 8).astype(x.dtype)
        angles = time[:, None] * frequencies
        embedding = nn.Dense(16)(nn.silu(nn.Dense(16)(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))))

        def block(y: Any, width: int) -> Any:
            z = nn.Conv(width, (3, 3))(nn.silu(nn.GroupNorm(4)(y)))
            z = z + nn.Dense(width)(nn.silu(embedding))[:, None, None]
            z = nn.Conv(width, (3, 3))(nn.silu(nn.GroupNorm(4)(z)))
            return z + (y if y.shape[-1] == width else nn.Conv(width, (1, 1))(y))

        x = nn.Conv(8, (3, 3))(x)
        first = block(x, 8)
        second = block(nn.Conv(16, (3, 3), (2, 2))(first), 16)
        flat = nn.GroupNorm(4)(second).reshape(second.shape[0], -1, 16)
        second = second + nn.MultiHeadDotProductAttention(2)(flat).reshape(second.shape)
        up = nn.ConvTranspose(8, (4, 4), (2, 2))(second)
        return nn.Conv(3, (3, 3))(nn.silu(nn.GroupNorm(4)(block(jnp.concatenate([up, first], -1), 8))))


class Generator(nn.Module):
    @nn.compact
    def __call__(self, z: Any) -> Any:
        x = nn.relu(nn.Dense(4 * 4 * 16)(z)).reshape(-1, 4, 4, 16)
        x = nn.leaky_relu(nn.ConvTranspose(8, (3, 3), (2, 2), padding="VALID")(x))
        return jnp.tanh(nn.ConvTranspose(3, (5, 5), (2, 2), padding="SAME", transpose_kernel=True)(x))


# --- transformers ----------------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    heads: int = 2
    before: bool = True
    approximate: bool = True
    mask: Any = None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm(epsilon=1e-6)(x) if self.before else x
        x = x + nn.MultiHeadDotProductAttention(self.heads)(y, y, mask=self.mask)
        x = x if self.before else nn.LayerNorm(epsilon=1e-12)(x)
        y = nn.LayerNorm(epsilon=1e-6)(x) if self.before else x
        x = x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(32)(y), approximate=self.approximate))
        return x if self.before else nn.LayerNorm(epsilon=1e-12)(x)


class ViT(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(16, (4, 4), (4, 4), padding="VALID")(x)
        x = x.reshape(x.shape[0], -1, 16)
        first = self.param("cls", nn.initializers.normal(), (1, 1, 16))
        x = jnp.concatenate([jnp.broadcast_to(first, (x.shape[0], 1, 16)), x], 1)
        x = x + self.param("position", nn.initializers.normal(), (1, x.shape[1], 16))
        for _ in range(2):
            x = Encoder()(x)
        return nn.Dense(10)(nn.LayerNorm()(x)[:, 0])


class Bert(nn.Module):
    @nn.compact
    def __call__(self, ids: Any) -> Any:
        x = nn.Embed(50, 16)(ids) + nn.Embed(12, 16)(jnp.arange(ids.shape[1]))
        x = nn.LayerNorm(epsilon=1e-12)(x)
        mask = nn.make_attention_mask(ids > 3, ids > 3)
        for _ in range(2):
            x = Encoder(before=False, approximate=False, mask=mask)(x)
        return x, jnp.tanh(nn.Dense(16)(x[:, 0]))


class GPT2(nn.Module):
    @nn.compact
    def __call__(self, ids: Any) -> Any:
        embed = nn.Embed(50, 16)
        x = embed(ids) + nn.Embed(12, 16)(jnp.arange(ids.shape[1]))
        mask = nn.make_causal_mask(ids)
        for _ in range(2):
            x = Encoder(mask=mask)(x)
        return embed.attend(nn.LayerNorm()(x))


def llama(params: Any, x: Any) -> Any:
    """A block with grouped queries: RMS norms, rotary positions, a gated product."""
    heads, groups, width = 4, 2, 8

    def norm(y: Any, weight: Any) -> Any:
        return y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * weight

    def rotated(y: Any) -> Any:
        steps = np.outer(np.arange(y.shape[1]), 1e4 ** (-np.arange(0, width, 2) / width))
        cos, sin = (np.asarray(part, np.float32)[None, :, None] for part in (np.cos(steps), np.sin(steps)))
        a, b = jnp.split(y, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    y = norm(x, params["norm1"])
    q = rotated((y @ params["q"]).reshape(*y.shape[:2], heads, width))
    k = rotated((y @ params["k"]).reshape(*y.shape[:2], groups, width))
    v = (y @ params["v"]).reshape(*y.shape[:2], groups, width)
    k, v = (jnp.repeat(part, heads // groups, axis=2) for part in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.float32(np.sqrt(width))
    allowed = np.tril(np.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(allowed, scores, jnp.finfo(jnp.float32).min), -1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(*x.shape[:2], heads * width)
    x = x + mixed @ params["o"]
    y = norm(x, params["norm2"])
    return x + (jax.nn.silu(y @ params["gate"]) * (y @ params["up"])) @ params["down"]


def of_llama() -> Any:
    rng = np.random.default_rng(3)
    shapes = {
        "q": (32, 32),
        "k": (32, 16),
        "v": (32, 16),
        "o": (32, 32),
        "gate": (32, 64),
        "up": (32, 64),
        "down": (64, 32),
        "norm1": (32,),
        "norm2": (32,),
    }
    return {name: (rng.standard_normal(shape) / 6).astype(np.float32) for name, shape in shapes.items()}


def relative(params: Any, x: Any) -> Any:
    """Attention of T5: a learned bias of distances, no scale."""
    q, k, v = (jnp.einsum("btd,dhw->bhtw", x, params[name]) for name in "qkv")
    places = np.clip(np.arange(x.shape[1])[None] - np.arange(x.shape[1])[:, None] + 4, 0, 8)
    bias = params["bias"][places].transpose(2, 0, 1)[None]
    weights = jax.nn.softmax(jnp.einsum("bhqw,bhkw->bhqk", q, k) + bias, axis=-1)
    return jnp.einsum("bhqw,hwd->bqd", jnp.einsum("bhqk,bhkw->bhqw", weights, v), params["o"])


def of_relative() -> Any:
    rng = np.random.default_rng(3)
    shapes = {"q": (16, 2, 8), "k": (16, 2, 8), "v": (16, 2, 8), "o": (2, 8, 16), "bias": (9, 2)}
    return {name: (rng.standard_normal(shape) / 3).astype(np.float32) for name, shape in shapes.items()}


def experts(params: Any, x: Any) -> Any:
    """Two of four experts a token."""
    gates, chosen = lax.top_k(jax.nn.softmax(x @ params["router"]), 2)
    gates = gates / gates.sum(-1, keepdims=True)
    spread = jnp.einsum("btk,btke->bte", gates, jax.nn.one_hot(chosen, 4, dtype=x.dtype))
    hidden = jax.nn.relu(jnp.einsum("btd,edf->btef", x, params["up"]))
    return jnp.einsum("btef,efd,bte->btd", hidden, params["down"], spread)


def of_experts() -> Any:
    rng = np.random.default_rng(3)
    shapes = {"router": (8, 4), "up": (4, 8, 16), "down": (4, 16, 8)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


# --- sequences, signals, graphs --------------------------------------------------------------------------------------


def lstm(params: Any, x: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ params["w"] + h @ params["u"] + params["b"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[0], 8), x.dtype)
    (h, _), outputs = lax.scan(step, (zeros, zeros), x.swapaxes(0, 1))
    return outputs.swapaxes(0, 1), h


def of_lstm() -> Any:
    rng = np.random.default_rng(3)
    shapes = {"w": (6, 32), "u": (8, 32), "b": (32,)}
    return {name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Bidirectional(nn.RNN(nn.GRUCell(4)), nn.RNN(nn.OptimizedLSTMCell(4)))(x)
        return nn.Dense(3)(nn.RNN(nn.SimpleCell(5))(x))


def spectral(params: Any, x: Any) -> Any:
    """A layer of a Fourier neural operator."""
    kept = jnp.fft.rfft2(x, axes=(1, 2))[:, :4, :4]
    mixed = jnp.einsum("bxyi,xyio->bxyo", kept, params["re"] + 1j * params["im"])
    wide = jnp.pad(mixed, ((0, 0), (0, 4), (0, 1), (0, 0)))
    return jax.nn.gelu(jnp.fft.irfft2(wide, s=(8, 8), axes=(1, 2)) + x @ params["w"])


def of_spectral() -> Any:
    rng = np.random.default_rng(3)
    shapes = {"re": (4, 4, 3, 3), "im": (4, 4, 3, 3), "w": (3, 3)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def products(x: Any) -> Any:
    return (
        jnp.einsum("bij,bkj->bik", x, x),
        jnp.einsum("bij,bij->b", x, x),
        jnp.einsum("bii->bi", x),
        jnp.einsum("bij,bjk,bkl->bil", x, x, x),
        jnp.einsum("bij,cij->bc", x, x[:2]),
        jnp.einsum("bij->ji", x),
        jnp.tensordot(x, x[0], ((1, 2), (0, 1))),
        jnp.kron(x[0], x[1]),
        jnp.matmul(x[:, None], x[None, :2]),
    )


def message_passing(x: Any, senders: Any, receivers: Any) -> Any:
    messages = jax.nn.relu(jnp.asarray(x)[senders])
    total = jax.ops.segment_sum(messages, receivers, num_segments=6)
    largest = jax.ops.segment_max(messages, receivers, num_segments=6)
    return total, jnp.where(jnp.isfinite(largest), largest, 0), jnp.asarray(x).at[receivers].mul(0.5)


def state_space(x: Any) -> Any:
    """A linear recurrence by an associative scan."""

    def joined(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    decay = jax.nn.sigmoid(x)
    return lax.associative_scan(joined, (decay, x), axis=1)[1]


def with_cache(cache: Any, row: Any, place: Any) -> Any:
    """A step of decoding: one row of a cache is written, and attention is over what is there."""
    cache = lax.dynamic_update_slice(cache, row[:, None], (0 * place[0], place[0], 0 * place[0]))
    scores = jnp.einsum("bd,btd->bt", row, cache)
    allowed = jnp.arange(cache.shape[1]) <= place[0]
    return cache, jnp.einsum("bt,btd->bd", jax.nn.softmax(jnp.where(allowed, scores, -1e30)), cache)


def root(x: Any) -> Any:
    """Newton's method until nothing changes."""

    def goes_on(state: Any) -> Any:
        return (state[1] > 1e-7) & (state[2] < 50)

    def step(state: Any) -> Any:
        y = 0.5 * (state[0] + (x * x + 1) / state[0])
        return y, jnp.abs(y - state[0]).max(), state[2] + 1

    return lax.while_loop(goes_on, step, (x * x + 1, jnp.ones((), x.dtype), 0))[0]


class Nnx(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
        self.out = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return nnx.log_softmax(self.out(nnx.relu(self.norm(self.conv(x))).mean((1, 2))))


IMAGES = floats(16, 16, 3)

LINEN: dict[str, tuple[Any, Any]] = {
    "ResNet": (ResNet(), floats(32, 32, 3)),
    "ConvNeXt": (ConvNeXt(), IMAGES),
    "MobileNet": (MobileNet(), IMAGES),
    "Mixer": (Mixer(), IMAGES),
    "U-Net": (UNet(), lambda rng, b: [*floats(8, 8, 3)(rng, b), rng.random(b).astype(np.float32)]),
    "generator": (Generator(), floats(7)),
    "ViT": (ViT(), IMAGES),
    "BERT": (Bert(), tokens(12, 50)),
    "GPT-2": (GPT2(), tokens(12, 50)),
    "recurrent": (Recurrent(), floats(5, 6)),
}


SMOKE = ("Llama block", "LSTM by scan", "Mixer", "Newton", "experts")


RECOGNISED = {
    "BERT": {"attention", "layer_norm"},
    "ConvNeXt": {"layer_norm"},
    "GPT-2": {"attention", "layer_norm"},
    "Llama block": {"attention", "rms_norm"},
    "Mixer": {"layer_norm"},
    "T5 attention": {"attention"},
    "U-Net": {"attention"},
    "ViT": {"attention", "layer_norm"},
    "experts": {"softmax"},
}
"""What jax writes as chains of smaller operators, and has one schedule."""


def test_gelu_is_recognised_in_both_forms(check) -> None:
    for approximate in (False, True):
        compiled = check(lambda x, flag=approximate: jax.nn.gelu(x @ x.T, approximate=flag), floats(6))
        assert compiled.report().nodes.scheduled <= 2


def assert_recognised(name: str, compiled: Any) -> None:
    anchors = {task.partition("(")[0] for use in compiled.report().uses for task in use.tasks}
    assert RECOGNISED.get(name, set()) <= anchors, anchors


ATTENDED: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (4, {}),
    "causal": (4, {"is_causal": True}),
    "shared keys": (2, {"is_causal": True}),
    "one head of keys": (1, {}),
    "window": (4, {"local_window_size": 3}),
}


@pytest.mark.parametrize("name", ATTENDED)
def test_attention_of_jax_is_one_operator(name, check) -> None:
    heads, options = ATTENDED[name]

    def make(rng: np.random.Generator, batch: int) -> Sequence[Array]:
        return [rng.standard_normal((batch, 9, n, 16)).astype(np.float32) for n in (4, heads, heads)]

    compiled = check(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, **options), make)
    tasks = [task.partition("(")[0] for use in compiled.report().uses for task in use.tasks]
    assert "attention" in tasks and not {"matmul", "softmax"} & {*tasks}


def test_attention_of_jax_with_a_bias_a_mask_and_lengths(check) -> None:
    def make(rng: np.random.Generator, batch: int) -> Sequence[Array]:
        arrays = [rng.standard_normal((batch, 9, 4, 16)).astype(np.float32) for _ in "qkv"]
        bias = rng.standard_normal((batch, 4, 9, 9)).astype(np.float32)
        return [*arrays, bias, rng.random((batch, 1, 9, 9)) > 0.5, rng.integers(1, 9, batch).astype(np.int32)]

    def attended(q: Any, k: Any, v: Any, bias: Any, mask: Any, lengths: Any) -> Any:
        attention = jax.nn.dot_product_attention
        return attention(q, k, v, bias, mask, query_seq_lengths=lengths, key_value_seq_lengths=lengths)

    compiled = check(attended, make)
    assert "attention" in {task.partition("(")[0] for use in compiled.report().uses for task in use.tasks}


def test_attention_in_f16_which_jax_has_for_gpus_alone_is_compiled() -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((2, 9, 4, 16)).astype(np.float16) for _ in "qkv"]
    compiled = hidet.jax.compile(jax.nn.dot_product_attention, *given)
    assert [task.partition("(")[0] for use in compiled.report().uses for task in use.tasks] == ["attention"]
    wide = jax.nn.dot_product_attention(*[array.astype(np.float32) for array in given])
    np.testing.assert_allclose(compiled(*given).astype(np.float32), wide, rtol=0, atol=2e-3)


def smoke_first(names: Any) -> list[Any]:
    """The names, those that are no smoke test marked as whole models."""
    return [name if name in SMOKE else pytest.param(name, marks=pytest.mark.models) for name in names]


@pytest.mark.parametrize("name", smoke_first(LINEN))
def test_models_of_flax_are_right_and_scheduled(name, check) -> None:
    module, make = LINEN[name]
    function, params = of_linen(module, make)
    # Flax carries the states of recurrent cells in f32, whatever it is given.
    compiled = check(function, make, params, in_float64=name != "recurrent")
    assert_recognised(name, compiled)


PLAIN: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "Llama block": (llama, floats(6, 32), of_llama),
    "T5 attention": (relative, floats(6, 16), of_relative),
    "experts": (experts, floats(5, 8), of_experts),
    "LSTM by scan": (lstm, floats(5, 6), of_lstm),
    "Fourier operator": (spectral, floats(8, 8, 3), of_spectral),
    "einsum": (products, floats(4, 4), None),
    "state space": (state_space, floats(7, 3), None),
    "Newton": (root, floats(4), None),
}


@pytest.mark.parametrize("name", smoke_first(PLAIN))
def test_models_of_plain_jax_are_right_and_scheduled(name, check) -> None:
    function, make, params = PLAIN[name]
    assert_recognised(name, check(function, make, None if params is None else params()))


def test_messages_of_a_graph_are_summed_where_they_arrive(check) -> None:
    def make(rng: np.random.Generator, batch: int) -> Sequence[Array]:
        ids = [rng.integers(0, 6, 11).astype(np.int32) for _ in range(2)]
        return [rng.standard_normal((6, 4)).astype(np.float32), *ids]

    check(message_passing, make, symbolic=False)


def test_a_cache_is_written_where_a_step_says(check) -> None:
    def make(rng: np.random.Generator, batch: int) -> Sequence[Array]:
        cache = rng.standard_normal((batch, 6, 8)).astype(np.float32)
        return [cache, rng.standard_normal((batch, 8)).astype(np.float32), rng.integers(0, 6, 1).astype(np.int32)]

    check(with_cache, make)


def test_arrays_that_a_function_closes_over_are_shared() -> None:
    weight = jnp.asarray(np.random.default_rng(0).standard_normal((64, 32)), jnp.float32)
    graph = hidet.jax.from_jax(lambda x: x @ weight, jax.ShapeDtypeStruct((2, 64), jnp.float32)).graph
    held = [constant.numpy() for constant in graph.constants.values() if constant.numpy().size > 1]
    assert [np.shares_memory(array, np.asarray(weight)) for array in held] == [True]


def test_an_error_names_the_line_of_the_model() -> None:
    def solved(x: Any) -> Any:
        return jnp.linalg.cholesky(x)

    with pytest.raises(UnsupportedOp, match=r"test_models\.py:\d+"):
        hidet.jax.compile(solved, jax.ShapeDtypeStruct((3, 3), jnp.float32))


def test_a_module_of_nnx_is_compiled(check) -> None:
    check(Nnx(), floats(8, 8, 3), in_float64=False)
