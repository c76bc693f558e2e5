"""Lanes of vectors under the names of AVX's intrinsics (Intel Intrinsics Guide)."""

from __future__ import annotations

import pytest

import hidet
from hidet.errors import ScriptError
from hidet.lang import attrs, f32
from hidet.lang.cpu import (
    avx_f32x4_load,
    avx_f32x4_shuffle,
    avx_f32x4_store,
    avx_f32x8_cast_f32x4,
    avx_f32x8_insert_f32x4,
    avx_f32x8_load,
    avx_f32x8_permute2f32x4,
    avx_f32x8_shuffle,
    avx_f32x8_store,
    avx_f32x8_unpackhi,
    avx_f32x8_unpacklo,
)

A, B = [*range(8)], [*range(8, 16)]


def of_two(operation, *more):
    """What an operation makes of vectors whose lanes are numbered."""

    @hidet.script
    def run(a: f32[8], b: f32[8], c: f32[8]):
        attrs.func_kind = "cpu_kernel"
        avx_f32x8_store(c, operation(avx_f32x8_load(a), avx_f32x8_load(b), *more))

    a, b, c = hidet.asarray(A, dtype="float32"), hidet.asarray(B, dtype="float32"), hidet.zeros([8])
    run(a, b, c)
    return c.tolist()


@pytest.mark.parametrize(
    ("operation", "more", "expected"),
    [
        (avx_f32x8_unpacklo, (), [0, 8, 1, 9, 4, 12, 5, 13]),
        (avx_f32x8_unpackhi, (), [2, 10, 3, 11, 6, 14, 7, 15]),
        (avx_f32x8_shuffle, (0x1B,), [3, 2, 9, 8, 7, 6, 13, 12]),
        (avx_f32x8_permute2f32x4, (0x21,), [4, 5, 6, 7, 8, 9, 10, 11]),
        (avx_f32x8_permute2f32x4, (0x83,), [12, 13, 14, 15, 0, 0, 0, 0]),
    ],
)
def test_lanes_of_two_vectors_are_picked(operation, more, expected) -> None:
    assert of_two(operation, *more) == expected


def test_halves_are_put_in_and_taken_out() -> None:
    @hidet.script
    def run(a: f32[8], b: f32[8], c: f32[8], d: f32[4]):
        attrs.func_kind = "cpu_kernel"
        wide, half = avx_f32x8_load(a), avx_f32x4_load(b)
        avx_f32x8_store(c, avx_f32x8_insert_f32x4(wide, half, 1))
        avx_f32x4_store(d, avx_f32x4_shuffle(avx_f32x8_cast_f32x4(wide), half, 0xE4))

    a, b = hidet.asarray(A, dtype="float32"), hidet.asarray(B, dtype="float32")
    c, d = hidet.zeros([8]), hidet.zeros([4])
    run(a, b, c, d)
    assert c.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert d.tolist() == [0, 1, 10, 11]


def test_which_lanes_are_taken_is_known_before_the_script_runs() -> None:
    with pytest.raises(ScriptError, match="known when the script is translated"):

        @hidet.script
        def run(a: f32[8], n: hidet.lang.i32):
            avx_f32x8_store(a, avx_f32x8_shuffle(avx_f32x8_load(a), avx_f32x8_load(a), n))
