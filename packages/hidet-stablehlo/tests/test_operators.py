"""Operators of jax one by one, against jax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed: nox -s jax")

jnp, lax = jax.numpy, jax.lax

Array = np.ndarray[Any, np.dtype[Any]]


def floats(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator, int], Sequence[Array]]:
    return lambda rng, batch: [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def mixed(*kinds: tuple[str, tuple[int, ...], int]) -> Callable[[np.random.Generator, int], Sequence[Array]]:
    """Arrays of "f" or "i" and whole numbers below a limit, or "?" for booleans."""

    def make(rng: np.random.Generator, batch: int) -> Sequence[Array]:
        made: list[Array] = []
        for kind, shape, limit in kinds:
            whole = rng.integers(0, max(limit, 1), shape)
            made.append(rng.standard_normal(shape).astype(np.float32) if kind == "f" else whole.astype(kind))
        return made

    return make


SQUARE = floats((4, 6))
WAVES = lax.conv_dimension_numbers((1, 1, 1), (1, 1, 1), ("NWC", "WIO", "NWC"))


def convolved(numbers: tuple[str, str, str], **options: Any) -> Callable[..., Any]:
    def function(x: Any, w: Any) -> Any:
        window = {"window_strides": (1,) * (len(numbers[0]) - 2), "padding": "SAME", **options}
        return lax.conv_general_dilated(x, w, dimension_numbers=numbers, **window)

    return function


FAMILIES: dict[str, tuple[Callable[..., Any], Any]] = {
    "arithmetic": (
        lambda x, y: (x + y, x * y, x / y, lax.pow(jnp.abs(x), y), jnp.sign(x), lax.rem(x, y), jnp.cbrt(x), x**3),
        floats((3, 4), (3, 4)),
    ),
    "functions": (
        lambda x: (jnp.expm1(x), jnp.log1p(jnp.abs(x)), jnp.tan(x), lax.rsqrt(jnp.abs(x)), jnp.arctan2(x, x + 1)),
        SQUARE,
    ),
    "special functions": (
        lambda x: (lax.erf(x), lax.erfc(x), lax.erf_inv(0.9 * jnp.tanh(x)), lax.lgamma(jnp.abs(x) + 1)),
        SQUARE,
    ),
    "rounding": (
        lambda x: (lax.round(4 * x), jnp.round(4 * x), jnp.floor(x), jnp.ceil(x), jnp.clip(x, -0.5, 0.25)),
        SQUARE,
    ),
    "whole numbers": (
        lambda a, b: (a // (b + 1), a % (b + 1), a & b, a ^ b, a << 2, lax.shift_right_logical(-a, 3 + 0 * a), ~a),
        mixed(("i4", (20,), 1000), ("i4", (20,), 7)),
    ),
    "bits": (
        lambda a: (
            *(lax.population_count(a), lax.clz(a), lax.bitcast_convert_type(a, jnp.float32)),
            lax.bitcast_convert_type(lax.bitcast_convert_type(a, jnp.uint8), jnp.int32),
        ),
        mixed(("i4", (9,), 1 << 30)),
    ),
    "comparisons": (
        lambda x, y: (x < y, x == y, x != y, x >= y, jnp.isfinite(x / 0), jnp.isnan(x)),
        floats((9,), (9,)),
    ),
    "conversions": (
        lambda x: (
            x.astype(jnp.int32),
            (x > 0).astype(jnp.float32),
            x.astype(jnp.float16),
            lax.reduce_precision(x, 8, 7),
        ),
        SQUARE,
    ),
    "products": (
        lambda x, y, z: (
            *(x @ y, x.T @ x, jnp.outer(x[0], y[0]), jnp.einsum("ij,kj->ik", x, x)),
            *(jnp.einsum("abc,cd->abd", z, y), lax.batch_matmul(z, z.swapaxes(1, 2)), jnp.vdot(x, x)),
        ),
        floats((4, 6), (6, 5), (3, 2, 6)),
    ),
    "products of whole numbers": (
        lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32),
        mixed(("i1", (4, 6), 127), ("i1", (6, 5), 127)),
    ),
    "convolution NHWC": (
        convolved(("NHWC", "HWIO", "NHWC"), window_strides=(2, 1)),
        floats((2, 7, 6, 3), (3, 2, 3, 4)),
    ),
    "convolution NCHW": (convolved(("NCHW", "OIHW", "NCHW"), rhs_dilation=(2, 2)), floats((2, 3, 9, 8), (4, 3, 3, 3))),
    "convolution CHWN": (convolved(("CHWN", "IHWO", "HWNC")), floats((3, 5, 6, 2), (3, 3, 3, 4))),
    "convolution of waves": (convolved(("NWC", "WIO", "NWC"), padding=[(-1, 3)]), floats((2, 9, 3), (3, 3, 4))),
    "convolution of volumes": (convolved(("NDHWC", "DHWIO", "NDHWC")), floats((1, 4, 5, 3, 2), (2, 3, 2, 2, 3))),
    "convolution in groups": (
        convolved(("NHWC", "HWIO", "NHWC"), feature_group_count=2),
        floats((2, 6, 6, 4), (3, 3, 2, 6)),
    ),
    "convolution by groups of the batch": (
        convolved(("NHWC", "HWIO", "NHWC"), batch_group_count=2),
        floats((4, 6, 6, 3), (3, 3, 3, 4)),
    ),
    "transposed convolution": (
        convolved(("NHWC", "HWIO", "NHWC"), lhs_dilation=(2, 2), padding=[(1, 2), (2, 2)]),
        floats((2, 5, 6, 3), (3, 3, 3, 4)),
    ),
    "transposed convolution with strides": (
        convolved(("NHWC", "HWIO", "NHWC"), lhs_dilation=(2, 3), window_strides=(3, 2), padding=[(4, 0), (1, 1)]),
        floats((2, 5, 6, 3), (3, 3, 3, 4)),
    ),
    "gradient of a convolution": (
        lambda x, w: jax.grad(lambda *xs: (convolved(("NHWC", "HWIO", "NHWC"))(*xs) ** 2).sum(), (0, 1))(x, w),
        floats((2, 6, 6, 3), (3, 3, 3, 4)),
    ),
    "reductions": (
        lambda x: (x.sum(0), x.max(), x.min(1), x.prod((0, 1)), (x > 0).any(1), (x > 0).all(), x.mean(), x.std(0)),
        SQUARE,
    ),
    "positions": (lambda x: (x.argmax(1), x.argmin(0), jnp.argmax(x), x.argsort(1)), SQUARE),
    "reduction by a region": (
        lambda x: lax.reduce(x, np.float32(0), lambda a, b: jnp.hypot(a, b), (1,)),
        SQUARE,
    ),
    "running": (
        lambda x: (
            *(jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 1), lax.cummin(x, 0, reverse=True)),
            *(lax.cumsum(x, 1, reverse=True), lax.cumlogsumexp(x, 1)),
        ),
        SQUARE,
    ),
    "windows": (
        lambda x: (
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"),
            lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 2, 1), (1, 1, 2, 1), "VALID"),
            lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 2, 1, 1), "SAME"),
            lax.reduce_window(x, 1.0, lax.mul, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        ),
        floats((2, 6, 7, 3)),
    ),
    "sorting": (
        lambda x, y: (
            *(jnp.sort(x, 0), jnp.sort(x, 1, descending=True), lax.top_k(x, 3)),
            *(lax.sort((jnp.round(x), y), num_keys=2), jnp.lexsort((x[0], jnp.round(y[0]))), jnp.median(x)),
        ),
        floats((4, 6), (4, 6)),
    ),
    "slices": (
        lambda x: (
            x[1:3, ::2],
            x[::-1, -1],
            jnp.pad(x, ((1, 2), (0, 1))),
            jnp.concatenate([x, x], 1),
            jnp.roll(x, 2, 1),
        ),
        SQUARE,
    ),
    "padding": (
        lambda x: (
            lax.pad(x, np.float32(7), ((1, 2, 1), (-1, 3, 0))),
            lax.pad(x, x[0, 0], ((1, -2, 0), (0, 0, 2))),
            jnp.pad(x, 2, mode="reflect"),
        ),
        SQUARE,
    ),
    "dynamic slices": (
        lambda x, i: (
            *(lax.dynamic_slice(x, (i[0], i[1]), (2, 3)), lax.dynamic_slice(x, (i[0], 0 * i[0]), (1, 6))),
            *(lax.dynamic_update_slice(x, x[:2, :2], (i[0], i[1])), x.at[i[0]].set(0.0)),
        ),
        mixed(("f", (4, 6), 0), ("i4", (2,), 9)),
    ),
    "picked": (
        lambda x, i: (
            *(x[i], x[:, i], x[i, i], jnp.take_along_axis(x, jnp.stack([i, i, i], 1), 1)),
            *(jnp.take(x, i + 3, axis=0, mode="clip"), jnp.take(x, i + 2, axis=0, mode="fill")),
            *(x.at[i, i].get(mode="promise_in_bounds"), jax.vmap(lambda row, n: row[n])(x, i)),
            jax.vmap(lambda row, n: lax.dynamic_slice(row, (n,), (2,)))(x, i),
        ),
        mixed(("f", (4, 6), 0), ("i4", (4,), 4)),
    ),
    "written": (
        lambda x, i, y: (
            *(x.at[i].set(y), x.at[i].add(y), x.at[i].max(y), x.at[i].min(y), x.at[i].mul(y)),
            *(x.at[:, i].add(1.0), x.at[i + 2].add(y), x.at[i, i].set(5.0)),
            jax.vmap(lambda row, n: row.at[n].add(1.0))(x, i),
        ),
        lambda rng, batch: [
            rng.standard_normal((4, 6)).astype(np.float32),
            rng.permutation(4).astype(np.int32),
            rng.standard_normal((4, 6)).astype(np.float32),
        ],
    ),
    "branches": (
        lambda x: (
            lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x),
            lax.switch((x.sum() > 0).astype(jnp.int32) + 1, [lambda v: v, lambda v: v + 1, lambda v: v * v], x),
        ),
        SQUARE,
    ),
    "loops": (
        lambda x: (
            lax.fori_loop(0, 4, lambda i, c: c * 0.5 + x[i % 4].sum(), 0.0),
            lax.while_loop(lambda c: c[0] < 50, lambda c: (c[0] * 2 + 1, c[1] + 1), (jnp.abs(x[0, 0]), 0)),
            lax.scan(lambda c, row: (c + row, (c * row, row.max())), x[0], x),
            lax.scan(lambda c, row: (c + row, c), x[0], x, reverse=True),
            lax.map(lambda row: row[::-1].cumsum(), x),
        ),
        SQUARE,
    ),
    "complex numbers": (
        lambda x: (
            *(jnp.abs(jnp.exp(1j * x)), jnp.real((x + 1j) * (x - 2j) / (1 + 1j * x)), jnp.imag(jnp.conj(x + 1j))),
            *(jnp.abs((x + 1j * x) @ (x.T - 1j)), jnp.angle(x + 1j)),
        ),
        SQUARE,
    ),
    "Fourier transforms": (
        lambda x: (
            *(jnp.abs(jnp.fft.fft(x)), jnp.real(jnp.fft.ifft2(x)), jnp.fft.irfft(jnp.fft.rfft(x), 6)),
            jnp.fft.irfftn(jnp.fft.rfftn(x) * 2, x.shape),
        ),
        SQUARE,
    ),
    "shapes": (
        lambda x: (x.reshape(3, 8), x.T, x[None, :, None], jnp.broadcast_to(x[0], (2, 3, 6)), jnp.tile(x, (2, 1))),
        SQUARE,
    ),
    "ranges": (
        lambda x: (jnp.arange(5) + x[0, 0], jnp.eye(4, 6) + x, jnp.tril(x), jnp.linspace(0, 1, 5) + x[0, 1]),
        SQUARE,
    ),
    "random numbers of a key": (
        lambda key: (jax.random.normal(key, (5,)), jax.random.uniform(key, (3, 2)), jax.random.bits(key, (4,))),
        mixed(("u4", (2,), 1 << 30)),
    ),
}


WIDE = {"arithmetic", "convolution NHWC", "functions", "products", "reductions", "running", "special functions"}
"""Those that are measured against jax in f64."""


@pytest.mark.parametrize("name", FAMILIES)
def test_operators_are_right(name, check) -> None:
    function, make = FAMILIES[name]
    check(lambda *xs: function(*map(jnp.asarray, xs)), make, symbolic=False, in_float64=name in WIDE, strict=False)
