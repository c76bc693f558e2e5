"""The page about JAX and StableHLO runs, and so does its example."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="jax is not installed: nox -s jax")

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "stablehlo.md"


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 5
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)


def test_the_example_serves_what_it_has_trained() -> None:
    assert runpy.run_path(str(ROOT / "examples" / "spirals" / "serve.py"))["main"]() > 0.95
