"""Processes of fuzzers: one that died, or whose device is of no use any more, is replaced before the next case."""

from __future__ import annotations

from tests.fuzz.children import ends
from tests.fuzz.frail_child import MODULE


def test_a_child_is_replaced_when_it_died_and_when_its_device_stopped() -> None:
    found = ends(MODULE, [("frail", "", seed) for seed in range(1, 7)], jobs=1)
    assert [(end.seed, end.kind, end.detail.partition("\n")[0]) for end in found] == [
        (1, "ran", "cases [1]"),
        (2, "ran", "cases [1, 2]"),
        (3, "ran", "cases [3]"),
        (4, "died", "exit code -6"),
        (5, "ran", "cases [5]"),
        (6, "ran", "cases [5, 6]"),
    ]
    assert "in end_of" in found[3].detail, "it says where"
