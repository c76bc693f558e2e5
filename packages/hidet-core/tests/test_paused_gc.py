"""Compilations and Python's collector of cycles."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from hidet.compiler import collector
from hidet.compiler.collector import paused_gc


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is frozen, as in a process of a user's; the tests of this one are (conftest.py)."""
    monkeypatch.setattr(collector, "_HAS_FROZEN", threading.Event())
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_what_a_compilation_leaves_is_old_and_the_collector_goes_on() -> None:
    with paused_gc():
        assert not gc.isenabled()
        kept: list[object] = [[] for _ in range(3000)]
    assert gc.isenabled() and gc.get_freeze_count() == 0
    young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert not young & set(map(id, kept))


@pytest.mark.usefixtures("thawed")
def test_what_somebody_has_frozen_stays_so() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused_gc():
        pass
    assert gc.get_freeze_count() >= frozen - 10, "but for what has been freed meanwhile"


@pytest.mark.usefixtures("thawed")
def test_what_is_frozen_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.freeze()
    counts: list[int] = []

    def count() -> int:
        counts.append(known())
        return counts[-1]

    known = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", count)
    for _ in range(3):
        with paused_gc():
            pass
    assert len(counts) == 1 and counts[0] > 0


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_as_before_after_an_error(was_on: bool) -> None:
    if not was_on:
        gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), paused_gc():
            raise ZeroDivisionError
        assert gc.isenabled() == was_on
    finally:
        gc.enable()
