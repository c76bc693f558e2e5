"""The worst position of a tensor, and the error that names it."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from hidet.errors import PositionError
from hidet.graph.attrs import Attrs
from hidet.graph.position import LOWEST, is_outside, position_error
from hidet.operators.check import SPECS


def _reduced(positions: list[int], wraps: bool) -> int:
    """As `require_positions` takes it."""
    array = np.array(positions, np.int64)
    return int((array ^ (array >> 63 if wraps else LOWEST)).max(initial=LOWEST))


@pytest.mark.parametrize(
    ("positions", "wraps", "is_wrong"),
    [
        ([0, 4], False, False),
        ([5, 0], False, True),
        ([0, -1], False, True),
        ([LOWEST], False, True),
        ([4, -5], True, False),
        ([5], True, True),
        ([-6, 0], True, True),
    ],
)
def test_one_number_says_whether_all_positions_are_on_an_axis_of_five(
    positions: list[int], wraps: bool, is_wrong: bool
) -> None:
    assert is_outside(_reduced(positions, wraps), 5, wraps) == is_wrong


def test_the_error_names_the_position() -> None:
    assert "position -3, expected 0 to 4" in str(position_error(_reduced([2, -3], False), 5, False, "x", None))
    assert "position 9, expected 0 to 4" in str(position_error(_reduced([9, 1], False), 5, False, "x", None))
    assert "position 7 or -8, expected -5 to 4" in str(position_error(_reduced([7], True), 5, True, "x", None))
    assert "an axis without elements" in str(position_error(_reduced([0], True), 0, True, "x", None))


def test_require_positions_raises_in_the_reference_too() -> None:
    (spec,) = (spec for spec in SPECS if spec.name == "require_positions")
    assert spec.evaluate is not None

    def check(positions: list[int], extent: int) -> None:
        attrs = {"extent": extent, "count": len(positions), "wraps": False, "what": "input index"}
        assert spec.evaluate is not None
        spec.evaluate([np.array(_reduced(positions, False))], Attrs(attrs))

    check([0, 4], 5)
    check([], 0)
    with pytest.raises(PositionError, match="input index has position 5"):
        check([5], 5)


@pytest.mark.parametrize(("positions", "is_wrong"), [([0, 4, -5], False), ([], False), ([0, 5], True), ([-6], True)])
def test_assert_positions_raises_in_the_reference_too(positions: list[int], is_wrong: bool) -> None:
    (spec,) = (spec for spec in SPECS if spec.name == "assert_positions")
    assert spec.evaluate is not None
    attrs = Attrs({"extent": 5, "wraps": True, "what": "input index"})
    with pytest.raises(PositionError, match="input index") if is_wrong else nullcontext():
        spec.evaluate([np.array(positions, np.int64)], attrs)
