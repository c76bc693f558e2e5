"""The hash of editable sources, which keeps kernels of an edited compiler apart."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from hidet.cache_key import code_hash, source_hash


def make_package(folder: Path, name: str) -> Path:
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text("X = 1\n")
    return package


def test_edited_sources_change_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_package(tmp_path, "edited_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = source_hash("edited_package")
    assert source_hash("edited_package") == before
    (package / "rules.py").write_text("X = 22\n")
    assert source_hash("edited_package") == before, "one process keeps the code that it has imported"
    source_hash.cache_clear()
    assert source_hash("edited_package") != before


def test_an_installed_wheel_is_named_by_its_version_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_package(tmp_path / "site-packages", "installed_package")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    assert source_hash("installed_package") == ""


def test_a_module_that_is_a_file_is_named_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "single_file.py").write_text("A = 1\n")
    before = source_hash("single_file")
    source_hash.cache_clear()
    (tmp_path / "single_file.py").write_text("A = 1000\n")
    assert len({"", before, source_hash("single_file")}) == 3
    source_hash.cache_clear()


def test_a_module_under_a_name_of_its_own_is_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("A = 1\n")
    script = ModuleType("my_script")
    script.__file__ = str(tmp_path / "script.py")
    monkeypatch.setitem(sys.modules, "my_script", script)
    before = code_hash("my_script")
    assert code_hash("my_script") == before
    (tmp_path / "script.py").write_text("A = 1000\n")
    assert code_hash("my_script") != before


def test_code_of_no_file_is_never_taken_for_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target or a pass of a notebook, whose cell may have been run again."""
    monkeypatch.setitem(sys.modules, "my_notebook", ModuleType("my_notebook"))
    assert code_hash("my_notebook") != code_hash("my_notebook")


def test_an_unknown_package_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        source_hash("no_such_package")
