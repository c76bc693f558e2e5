"""Recipes of docs/recipes.md: each runs as a program of its own, where the library that it is about is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPE = re.compile(r"^## (.*?)$.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
RECIPES = dict(RECIPE.findall((ROOT / "docs" / "recipes.md").read_text()))
LIBRARIES = ("transformers", "diffusers", "sentence_transformers", "timm")

# These libraries import torchvision where it is installed, and the index has it for another torch than a CPU one.
PRELOAD = "import tests.models.preload\n"


def test_there_is_a_recipe_for_each_library() -> None:
    for library in LIBRARIES:
        assert any(f"from {library}" in code or f"import {library}" in code for code in RECIPES.values()), library


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs(recipe: str, tmp_path: Path) -> None:
    code = RECIPES[recipe]
    for library in re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: nox -s recipes has it")
    (tmp_path / "recipe.py").write_text(PRELOAD + code)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "recipe.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
