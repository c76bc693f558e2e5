"""Plug-ins are written with public modules: docs/plugins.md lists them, and examples and pages import no others."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROW = re.compile(r"^\| `(hidet[\w.]*)` \| [^|]+ \|$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LISTED = ROW.findall((DOCS / "plugins.md").read_text().partition("\n## Public modules\n")[2])

EXAMPLES = sorted(ROOT.glob("examples/plugin-*/**/*.py"))
PAGES = [DOCS / f"{name}.md" for name in ("plugins", "schedules", "targets", "frontends", "testing", "ir")]


def foreign_imports(text: str) -> Iterator[tuple[str, str | None]]:
    """Modules of hidet that a text imports, each with the name that it imports of it, None for the module itself.

    `hidet.*._plugin` is left out: it is named to have a wheel active, not for what it holds.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((name.name, None) for name in node.names if is_of_hidet(name.name))
        elif isinstance(node, ast.ImportFrom) and node.module is not None and is_of_hidet(node.module):
            yield from ((node.module, name.name) for name in node.names)


def is_of_hidet(module: str) -> bool:
    return (module == "hidet" or module.startswith("hidet.")) and not module.endswith("._plugin")


def unlisted(text: str) -> list[str]:
    """What a text imports that no row of the table allows."""
    found = []
    for module, name in foreign_imports(text):
        if name is not None and f"{module}.{name}" in LISTED:
            continue
        if module not in LISTED or (name is not None and name.startswith("_")):
            found.append(module if name is None else f"{module}.{name}")
    return found


def test_a_module_is_listed_once() -> None:
    assert len(LISTED) > 40
    assert [module for module in LISTED if LISTED.count(module) > 1] == []


@pytest.mark.parametrize("module", LISTED)
def test_a_listed_module_is_there_and_says_what_it_is(module: str) -> None:
    assert importlib.import_module(module).__doc__


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT / "examples")))
def test_an_example_imports_public_modules_alone(file: Path) -> None:
    assert unlisted(file.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_for_authors_of_plugins_imports_public_modules_alone(page: Path) -> None:
    assert [name for block in BLOCK.findall(page.read_text()) for name in unlisted(block)] == []


def test_an_import_of_what_is_not_public_is_found() -> None:
    assert unlisted("from hidet.ir import build\nfrom hidet.ir.build import held\nimport hidet.cpu._plugin") == []
    assert unlisted("from hidet.host.program import HostCode") == ["hidet.host.program.HostCode"]
    assert unlisted("from hidet.ir.build import _known") == ["hidet.ir.build._known"]
    assert unlisted("def f():\n    import hidet.fusion.group") == ["hidet.fusion.group"]
