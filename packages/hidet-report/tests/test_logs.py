"""Logs by topic, and ranges of other profilers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.errors import PluginWarning
from hidet.report.logs import configure

from .conftest import LAYER, graph


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves a handler behind."""
    before = list(logging.getLogger("hidet").handlers)
    yield
    monkeypatch.delenv("HIDET_LOG", raising=False)
    configure()
    assert logging.getLogger("hidet").handlers == before


def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, setting: str) -> list[str]:
    monkeypatch.setenv("HIDET_LOG", setting)
    capsys.readouterr()
    hidet.compile(graph(LAYER), options={"threads": 1})
    return capsys.readouterr().err.splitlines()


def test_fusion_tells_tasks_and_why_they_read_from_memory(capsys, monkeypatch) -> None:
    lines = told(capsys, monkeypatch, "fusion")
    assert lines[0] == "hidet.fusion: matmul + add + relu at model.py:7 (fc)"
    assert "hidet.fusion: softmax at model.py:9 (attention)" in lines
    assert lines[-1].endswith("from memory: matmul and softmax have schedules of their own")


def test_topics_are_logged_where_they_are_asked_for(capsys, monkeypatch) -> None:
    assert told(capsys, monkeypatch, "") == []
    lines = told(capsys, monkeypatch, "schedule, cache")
    assert {line.partition(":")[0] for line in lines} == {"hidet.schedule", "hidet.cache"}
    assert any("softmax(f32[64, 96]) at model.py:9 (attention): cpu." in line for line in lines)
    assert any(line.endswith("from the cache for cpu") for line in lines)
    assert {line.partition(":")[0] for line in told(capsys, monkeypatch, "all")} == {
        *("hidet.schedule", "hidet.cache", "hidet.fusion"),
    }
    assert told(capsys, monkeypatch, "") == []


def test_passes_that_change_something_are_told(capsys, monkeypatch) -> None:
    monkeypatch.setenv("HIDET_LOG", "passes")
    text = "graph g(%x: f32[2]):\n  %0: f32[2] = neg(%x)\n  %1: f32[2] = exp(%x)\n  return %0\n"
    hidet.compile(graph(text))
    (line,) = capsys.readouterr().err.splitlines()
    assert "2 -> 1 operators" in line


def test_an_unknown_topic_is_told(monkeypatch) -> None:
    monkeypatch.setenv("HIDET_LOG", "fusoin")
    with pytest.warns(PluginWarning, match="topic 'fusoin', which is unknown") as caught:
        configure()
    assert "did you mean 'fusion'?" in str(caught[0].message.hint)


def test_programs_listen_by_loggers_of_their_own(caplog) -> None:
    with caplog.at_level(logging.INFO, logger="hidet.schedule"):
        hidet.compile(graph(LAYER), options={"threads": 1})
    assert {record.name for record in caplog.records} == {"hidet.schedule"}


def test_each_kernel_is_a_range_of_another_profiler(layer) -> None:
    seen: list[str] = []

    def around(name: str, call: Any) -> Any:
        def ranged(*arguments: Any) -> object:
            seen.append(name)
            return call(*arguments)

        return ranged

    given = [np.ones(slot.tensor.shape, np.float32) for slot in layer.bundle.program.inputs]
    np.testing.assert_array_equal(layer.with_ranges(around)(*given), layer(*given))
    assert seen == ["hidet::matmul + 2 (fc)", "hidet::softmax (attention)"]
