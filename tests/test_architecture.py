"""docs/architecture.md tells the truth about where the hand-overs are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| [^|]+ \| `(?P<function>\w+)` \| `(?P<file>[\w/.]+)` \|")


def _rows() -> list[tuple[str, str]]:
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    return [(m["function"], m["file"]) for line in lines if (m := ROW.match(line))]


def test_the_page_names_every_hand_over() -> None:
    assert len(_rows()) >= 14


@pytest.mark.parametrize(("function", "file"), _rows())
def test_each_named_function_is_defined_in_the_file_named_for_it(function: str, file: str) -> None:
    found = list(ROOT.glob(f"packages/*/src/{file}"))
    assert len(found) == 1, f"{file} is in {len(found)} packages"
    tree = ast.parse(found[0].read_text())
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
