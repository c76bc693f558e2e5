"""Fourier transforms against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dtypes
from hidet.errors import HidetError, ShapeError, UnsupportedOp
from hidet.graph import GraphBuilder, TensorType
from hidet.operators import all_operators
from hidet.testing.interpret import interpret

OPERATORS = {spec.name: spec for spec in all_operators()}


def _run(parts: list[np.ndarray], **attrs: object) -> list[np.ndarray]:
    builder = GraphBuilder(OPERATORS)
    values = [builder.input(TensorType(dtypes.f64, part.shape)) for part in parts]
    spec = OPERATORS["fourier"]
    assert spec.decompose is not None
    outputs = spec.decompose(builder, values, spec.attrs(attrs))
    return [np.asarray(result) for result in interpret(builder.build(outputs), parts)]


def _signal(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.standard_normal(shape), generator.standard_normal(shape)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 67, 72, 105])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_transform_of_any_length_is_numpys(n: int, sign: int) -> None:
    real, imaginary = _signal(2, n)
    for parts, signal in (([real, imaginary], real + 1j * imaginary), ([real], real)):
        want = np.fft.fft(signal) if sign < 0 else np.fft.ifft(signal) * n
        kept = n // 2 + 1
        got = _run(parts, n=n, kept=kept, sign=sign)
        np.testing.assert_allclose(got[0] + 1j * got[1], want[:, :kept], atol=1e-11)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 67, 72, 105])
def test_frequencies_of_a_real_signal_are_mirrored_as_numpy_does_it(n: int) -> None:
    real, imaginary = _signal(3, n // 2 + 1)
    (got,) = _run([real, imaginary], n=n, kept=n, sign=1, mirrored=True)
    np.testing.assert_allclose(got, np.fft.irfft(real + 1j * imaginary, n) * n, atol=1e-11)
    (got,) = _run([real], n=n, kept=n, sign=1, mirrored=True)
    np.testing.assert_allclose(got, np.fft.irfft(real, n) * n, atol=1e-11)


def test_a_signal_without_a_batch() -> None:
    real, imaginary = _signal(12)
    got = _run([real, imaginary], n=12, kept=12)
    np.testing.assert_allclose(got[0] + 1j * got[1], np.fft.fft(real + 1j * imaginary), atol=1e-12)


@pytest.mark.parametrize(
    ("attrs", "error", "says"),
    [
        ({"n": 5, "kept": 5}, ShapeError, "expected 5 elements"),
        ({"n": 4, "kept": 5}, ShapeError, "expected 4 elements"),
        ({"n": 0, "kept": 1}, ShapeError, "at least 1"),
        ({"n": 4099, "kept": 1}, UnsupportedOp, "prime factor above 4096"),
        ({"n": 4, "kept": 4, "sign": 2}, UnsupportedOp, "sign 2"),
        ({"n": 4, "kept": 4, "mirrored": True}, ShapeError, "expected 3 for 4"),
    ],
)
def test_other_lengths_are_refused(attrs: dict[str, object], error: type[HidetError], says: str) -> None:
    with pytest.raises(error, match=says):
        _run([_signal(2, 4)[0]], **attrs)
