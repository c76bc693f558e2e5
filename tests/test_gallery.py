"""The gallery: scripts that use what hidet 0.6 offers, each by itself. They say by assertions what comes out."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import hidet
import hidet.option

FOLDER = Path(__file__).parents[1] / "examples" / "gallery"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts write files, set options and register rules."""
    from hidet.graph.transforms import clear_registered_resolve_rules, clear_registered_rewrite_rules

    monkeypatch.chdir(tmp_path)
    np.random.seed(0)
    with hidet.option.context():
        yield
    clear_registered_resolve_rules()
    clear_registered_rewrite_rules()
    torch.compiler.reset()


def run(script: str) -> None:
    runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.thorough(every=4)
def test_a_script_of_the_gallery_runs_without_a_gpu(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidet.cuda, "available", lambda: False)
    run(script)


@pytest.mark.gpu
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_of_the_gallery_runs_on_a_gpu(script: str) -> None:
    run(script)
