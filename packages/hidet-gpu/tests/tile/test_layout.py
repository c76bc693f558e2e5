"""Tiles in shared memory: each element has its place, and matrix fragments have no bank conflicts."""

import pytest

from hidet.errors import ScheduleError
from hidet.gpu.tile.layout import SharedLayout
from hidet.ir import build
from hidet.ir.expr import Const

SHAPES = [(16, 8), (16, 16), (32, 32), (16, 64), (16, 128), (8, 256), (16, 24), (16, 48), (16, 80), (8, 192)]


def offset(layout, row, column):
    place = layout.offset(row, column)
    assert isinstance(place, Const)
    return int(place.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_element_has_a_place_of_its_own(shape):
    layout = SharedLayout(*shape, 2)
    places = {offset(layout, row, column) for row in range(shape[0]) for column in range(shape[1])}
    assert len(places) == shape[0] * shape[1]
    assert min(places) >= 0
    assert max(places) < layout.size


@pytest.mark.parametrize("shape", SHAPES)
def test_eight_rows_of_a_fragment_lie_in_different_banks(shape):
    layout = SharedLayout(*shape, 2)
    for first in range(0, shape[0] - 7, 8):
        for column in range(0, shape[1], 8):
            chunks = [offset(layout, first + row, column) * 2 // 16 % 8 for row in range(8)]
            assert sorted(chunks) == list(range(8))


@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_of_16_bytes_stay_together_and_aligned(shape):
    layout = SharedLayout(*shape, 2)
    for row in range(shape[0]):
        for column in range(0, shape[1], 8):
            first = offset(layout, row, column)
            assert first % 8 == 0
            assert [offset(layout, row, column + i) for i in range(8)] == list(range(first, first + 8))


def test_rows_are_whole_chunks():
    with pytest.raises(ScheduleError, match="rows of 12 x 2 bytes, expected a multiple of 16"):
        SharedLayout(16, 12, 2)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] % 16 == 0])
def test_places_a_constant_way_off_are_found_from_one_place(shape):
    layout = SharedLayout(*shape, 2)
    for row in range(8):
        for column in (0, 8):
            place = layout.offset(row, column)
            for down in range(0, shape[0], 8):
                for right in range(0, shape[1], 16):
                    found = layout.shifted(place, build.index(down), build.index(right))
                    assert isinstance(found, Const)
                    assert found.value == offset(layout, row + down, column + right)
