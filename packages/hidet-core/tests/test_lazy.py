"""Names of a package that are imported at first use."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from hidet.lazy import lazy_attributes


def test_a_name_is_imported_when_it_is_used_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    package, part = ModuleType("boxes"), ModuleType("boxes.part")
    part.lid = "a lid"  # type: ignore[attr-defined]  # what the package offers
    monkeypatch.setitem(sys.modules, "boxes", package)
    monkeypatch.setitem(sys.modules, "boxes.part", part)
    find, names = lazy_attributes("boxes", {"lid": "part"})
    assert "lid" in names()
    assert find("lid") == "a lid"
    assert vars(package)["lid"] == "a lid"


def test_an_unknown_name_is_no_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boxes", ModuleType("boxes"))
    find, _ = lazy_attributes("boxes", {})
    with pytest.raises(AttributeError, match="module 'boxes' has no attribute 'lid'"):
        find("lid")
