"""Numbers that Python knows mean in a script what values of their types mean: run by the interpreter."""

import math

import ml_dtypes
import numpy as np
import pytest

from hidet import lang
from hidet.errors import ScriptError
from hidet.ir.interpret import run_module
from hidet.lang import boolean, cast, f8e4m3, f16, f32, f64, i8, i32, i64, u8, u16, u32
from hidet.lang.module import module_of


def written(script, result):
    """What a script writes to its only parameter."""
    run_module(module_of([script]), [result], entry=script.name)
    return result.tolist()


def test_casts_of_known_integers_wrap():
    @lang.script
    def f(o: i64[8]):
        o[0] = cast(cast(-1, i32), u32)
        o[1] = cast(-1, u8)
        o[2] = cast(255, i8)
        o[3] = u16(-1)
        o[4] = cast(cast(200, u8), i8)
        o[5] = -cast(7, u8)
        o[6] = cast(-1, u8) >> 6
        o[7] = o[7] + 9223372036854775807 + 1

    assert written(f, np.zeros(8, np.int64)) == [2**32 - 1, 255, -1, 65535, -56, 249, 3, -(2**63)]


def test_casts_of_known_floats_round_once_a_cast():
    @lang.script
    def f(o: f64[7]):
        o[0] = cast(cast(0.1, f16), f64)
        o[1] = cast(0.1, f64)
        o[2] = cast(cast(70000.0, f16), f64)
        o[3] = cast(cast(16777217, f32), i64)
        o[4] = cast(16777217.0, i64)
        o[5] = cast(cast(0.1, f8e4m3), f64)
        o[6] = cast(1e300, f32)

    expected = [float(np.float16(0.1)), 0.1, math.inf, 16777216.0, 16777217.0, 0.1015625, math.inf]
    assert written(f, np.zeros(7)) == expected


def test_numbers_of_numpy_are_numbers():
    three, half, yes = np.int64(3), np.float32(0.5), np.bool_(True)

    @lang.script
    def f(o: f64[7]):
        n: i64 = 4
        n += three
        o[0] = n
        o[1] = o[1] + half
        o[2] = cast(np.float32(5), i64) * half
        o[3] = three
        o[4] = 2.0 if boolean(yes) and n > three else 3.0
        o[5] = max(n, np.uint8(9)) - np.int8(1)
        o[6] = cast(n, f32) * ml_dtypes.bfloat16(0.25)

    assert written(f, np.zeros(7)) == [7.0, 0.5, 2.5, 3.0, 2.0, 8.0, 1.75]


def test_numbers_of_numpy_are_checked_as_others_are():
    wide = np.int64(300)
    with pytest.raises(ScriptError, match="the value stored is 300, which does not fit into u8"):

        @lang.script
        def too_wide(o: u8[1]):
            o[0] = wide

    half = np.float64(0.5)
    with pytest.raises(ScriptError, match=r"the value stored is 0\.5, expected i64"):

        @lang.script
        def not_whole(o: i64[1]):
            o[0] = half

    number = np.complex64(1j)
    with pytest.raises(ScriptError, match="expected a value of type f32"):

        @lang.script
        def not_real(o: f32[1]):
            o[0] = number
