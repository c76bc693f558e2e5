"""The page about TensorFlow runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGE = Path(__file__).parents[3] / "docs" / "tensorflow.md"


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 5
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
