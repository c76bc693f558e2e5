"""A sample of damaged artifacts; `python -m tests.fuzz.artifacts` makes as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .artifacts import mutated, run, write_bases

COUNT = 150


@pytest.mark.slow
def test_damaged_artifacts_are_refused_or_right() -> None:
    """red-team.md findings 3, 4, 12, 13 and 14."""
    found = run(COUNT, jobs=2)
    assert len(found) == 2 * COUNT
    assert [end for end in found if not end.is_good] == []
    assert {end.kind for end in found} == {"refused", "ran"}


def test_a_seed_makes_the_same_damage_again(tmp_path: Path) -> None:
    ((_, path), *_) = write_bases(tmp_path)
    data = Path(path).read_bytes()
    assert [mutated(data, seed) for seed in range(20)] == [mutated(data, seed) for seed in range(20)]
    assert len({content for _, content in (mutated(data, seed) for seed in range(20))}) > 18
    assert {what.split(" ")[0] for what, _ in (mutated(data, seed) for seed in range(40))} == {
        *("bytes", "program", "manifest", "weights")
    }
