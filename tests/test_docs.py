"""Python blocks in the documentation run. One that starts with `# path/name.py` is that file, others run in order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# ([\w/]+\.py)\n")


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md") if BLOCK.search(path.read_text())))
def test_examples_in_the_documentation_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin")
    monkeypatch.chdir(tmp_path)
    loaded = set(sys.modules)
    names: dict[str, object] = {"__name__": "example"}
    for block in BLOCK.findall((DOCS / page).read_text()):
        file_name = FILE_NAME.match(block)
        if file_name is None:
            exec(compile(block, page, "exec"), names)
        else:
            path = tmp_path / file_name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
