"""A sample of damaged files; `python -m tests.fuzz.tensorflow_files --count 1000` runs as many as one likes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.tensorflow_files import changed_bytes, make_files, run

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

COUNT = 12


@pytest.mark.slow
def test_damaged_files_are_refused_or_right(tmp_path: Path) -> None:
    files = [entry for entry in make_files(tmp_path) if entry[0].startswith("tflite")]
    found = run(files, COUNT, jobs=1)
    assert len(found) == COUNT
    assert [end for end in found if not end.is_good] == []
    assert {end.kind for end in found} == {"refused", "ran"}


def test_a_seed_makes_the_same_damage_again() -> None:
    data = bytes(range(256)) * 4
    assert changed_bytes(data, random.Random(3)) == changed_bytes(data, random.Random(3))
    assert len({changed_bytes(data, random.Random(seed)) for seed in range(20)}) > 15
