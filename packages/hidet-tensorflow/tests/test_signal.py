"""Complex numbers and Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet
from hidet.errors import UnsupportedOp

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")


def signals(*shape: int) -> Any:
    return lambda rng: [rng.standard_normal(shape).astype(np.float32)]


def test_a_real_signal_has_half_of_the_frequencies(check) -> None:
    def function(x: Any) -> Any:
        short, long = tf.signal.rfft(x, [20]), tf.signal.rfft(x, [32])
        back = tf.signal.irfft(short, [20]), tf.signal.irfft(short * short + 1, [24])
        return (
            tf.abs(short),
            tf.math.angle(long)[..., 1:-1],
            tf.math.real(long),
            tf.math.imag(tf.math.conj(long)),
            *back,
        )

    check(function, signals(3, 24), in_float64=False)


def test_a_spectrogram_is_compiled(check) -> None:
    def function(x: Any) -> Any:
        return tf.abs(tf.signal.stft(x, frame_length=16, frame_step=8, fft_length=16, pad_end=True))

    check(function, signals(2, 100), in_float64=False)


def test_complex_signals_are_transformed_over_one_axis_and_two(check) -> None:
    def function(x: Any) -> Any:
        z = tf.complex(x, x[:, ::-1] * 2)
        there = tf.signal.fft(z), tf.signal.fft2d(z)
        back = tf.signal.ifft(z), tf.signal.ifft2d(there[1])
        return [part(made) for made in (*there, *back) for part in (tf.math.real, tf.math.imag)]

    check(function, signals(3, 8, 12), in_float64=False)


def test_images_and_volumes_are_transformed(check) -> None:
    def function(x: Any) -> Any:
        found = tf.signal.rfft2d(x, [10, 12])
        z = tf.complex(x, x[:, :, ::-1] * 2)
        there = tf.signal.fft3d(z)
        back = tf.signal.irfft2d(found, [10, 12]), tf.signal.irfft2d(found, [8, 9])
        parts = [
            part(made) for made in (found, there, tf.signal.ifft3d(there)) for part in (tf.math.real, tf.math.imag)
        ]
        return *parts, *back

    check(function, signals(2, 3, 8, 12))


def test_complex_arithmetic_is_that_of_pairs(check) -> None:
    def function(x: Any) -> Any:
        z = tf.exp(tf.complex(x, 1 - x)) * tf.constant(1 + 2j, tf.complex64)
        moved = tf.transpose(tf.reshape(z, [4, -1]))[1:] + tf.cast(x[0, 0], tf.complex64)
        return tf.abs(z), tf.math.real(moved), tf.math.imag(tf.reduce_sum(moved, 0)), tf.cast(z, tf.float32)

    check(function, signals(3, 4), in_float64=False)


def test_a_complex_result_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match="complex"):
        hidet.compile(tf.function(lambda x: tf.signal.rfft(x)), tf.TensorSpec((4,)))
