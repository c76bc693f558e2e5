"""The hash of editable sources, which keeps kernels of an edited compiler apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from hidet.cache_key import source_hash


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


def test_an_unknown_package_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        source_hash("no_such_package")
