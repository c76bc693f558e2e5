"""A sample of damaged ONNX models; `python -m tests.fuzz.onnx_models` runs as many as one likes."""

from __future__ import annotations

import onnx
import pytest

from .mutate import mutated
from .onnx_models import base_models, run

COUNT = 64


@pytest.mark.slow
def test_damaged_models_are_refused_or_right() -> None:
    found = run(COUNT, jobs=2)
    assert len(found) == COUNT
    assert [end for end in found if not end.is_good] == []
    assert {end.kind for end in found} == {"refused", "ran"}


def test_a_seed_makes_the_same_damage_again() -> None:
    ((_, model), *_) = base_models(1)
    assert mutated(model, 5) == mutated(model, 5)
    different = {mutated(model, seed) for seed in range(20)}
    assert len(different) > 10
    assert model not in different or len(different) > 15


def test_damage_of_fields_keeps_most_files_readable() -> None:
    ((_, model), *_) = base_models(1)
    readable = 0
    for seed in range(40):
        message = onnx.ModelProto()
        try:
            message.ParseFromString(mutated(model, seed))
            readable += 1
        except Exception:  # noqa: BLE001 - protobuf's own error, whose place differs between versions
            continue
    assert readable > 20
