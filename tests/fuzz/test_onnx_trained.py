"""A sample of damaged trained models; `python -m tests.fuzz.onnx_trained` runs as many as one likes."""

from __future__ import annotations

import pytest

from .onnx_trained import COMPARED, run, trained_models

COUNT = 16


@pytest.mark.slow
@pytest.mark.skipif(not trained_models(), reason="silero-vad is not installed")
def test_damaged_trained_models_are_refused_or_right() -> None:
    pytest.importorskip("onnxruntime")
    found = run(COUNT, jobs=2)
    assert len(found) == COUNT
    assert [end for end in found if not end.is_good] == []
    assert any(end.detail == COMPARED for end in found)
