"""Records."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from hidet.records import record


def _make(eq: bool) -> type:
    @record(eq=eq)
    class Point:
        x: int
        y: int = 0

    return Point


def test_a_record_is_frozen_while_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_DEBUG", "1")
    point = _make(eq=False)(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2
    assert replace(point, x=2).x == 2


def test_a_record_has_no_other_fields_than_its_own() -> None:
    with pytest.raises(AttributeError):
        _make(eq=False)(1).z = 3


@pytest.mark.parametrize("debug", ["0", "1"])
def test_records_are_equal_by_identity_or_by_value(monkeypatch: pytest.MonkeyPatch, debug: str) -> None:
    monkeypatch.setenv("HIDET_DEBUG", debug)
    by_identity, by_value = _make(eq=False), _make(eq=True)
    assert by_identity(1) != by_identity(1)
    assert by_value(1) == by_value(1) != by_value(2)
    assert len({by_value(1), by_value(1, 0), by_value(2)}) == 2
