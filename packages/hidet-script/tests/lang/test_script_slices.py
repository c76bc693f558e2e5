"""Slices of tensors: constant bounds lie in constant extents, as indices do."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.ir.interpret import run_module
from hidet.lang import cast, f32, i32, i64, script
from hidet.lang.module import module_of

n = hidet.dims.symbol("n")

# ruff: noqa: F841  # scripts with the mistakes that are tested


def too_long(x: f32[4]):
    part = x[0:100]


def begins_behind(x: f32[4]):
    part = x[5:]


def counted_from_the_end(x: f32[4]):
    part = x[-2:]


def without_the_last(x: f32[n]):
    part = x[:-1]


def reversed_bounds(x: f32[2, 4]):
    part = x[:, 3:1]


def part_of_a_part(x: f32[2, 4]):
    part = x[1, 2:][0:3]


def beyond_the_part(x: f32[4]):
    x[1:3][2] = 1.0


def row_behind(x: f32[2, 4]):
    row = x[2]


def element_of_nothing(x: f32[4]):
    x[2:2][0] = 1.0


@pytest.mark.parametrize(
    ("function", "problem", "column", "hint"),
    [
        (too_long, "slice 0:100 of dim 0 is outside of its 4 elements", 12, None),
        (begins_behind, "slice 5:4 of dim 0 is outside of its 4 elements", 12, None),
        (counted_from_the_end, "slice -2:4 of dim 0 is outside of its 4 elements", 12, "from the start"),
        (without_the_last, "slice 0:-1 of dim 0 is outside of its n elements", 12, "from the start"),
        (reversed_bounds, "slice 3:1 of dim 1 ends before it begins", 12, None),
        (part_of_a_part, "slice 0:3 of dim 0 is outside of its 2 elements", 12, None),
        (beyond_the_part, "index 2 of dim 0 is outside of its 2 elements", 5, None),
        (row_behind, "index 2 of dim 0 is outside of its 2 elements", 11, None),
        (element_of_nothing, "index 0 of dim 0 is outside of its 0 elements", 5, None),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_constant_bounds_outside_of_a_tensor_are_refused(refused, function, problem, column, hint):
    refused(function, problem, 1, column, hint)


def test_the_end_of_a_tensor_has_an_address():
    @script
    def length(x: f32[4]) -> i64:
        return cast(~x[4], i64) - cast(~x[0], i64)

    assert length.function.result == i64


def test_a_slice_may_be_everything_nothing_or_end_where_the_program_says():
    @script
    def extents(x: f32[4], y: f32[n], k: i32, out: i32[5]):
        whole, nothing, late = x[0:4], x[4:], x[1:k]
        out[0] = whole.shape[0]
        out[1] = nothing.shape[0]
        out[2] = late.shape[0]
        out[3] = y[1:3].shape[0]
        out[4] = y[2:].shape[0]

    out = np.zeros(5, np.int32)
    x = np.zeros(4, np.float32)
    run_module(module_of([extents]), [x, x, 3, out, 4])
    assert out.tolist() == [4, 0, 2, 2, 2]
