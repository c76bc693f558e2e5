"""Choices on disk: many writers, damage, and lines of JSON."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hidet.errors import CacheError, CacheWarning
from hidet.tuning.meaning import Meaning
from hidet.tuning.store import Entry, Store, known_choices, store_path

ENTRY = Entry(Meaning("ab12", "f32[8]", "cpu", "rule", "1.0"), "square(f32[8])", "16", "8", 2e-6, 1e-6, 3, 3)
WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from hidet.tuning.store import Entry, Store
from hidet.tuning.meaning import Meaning

store = Store(Path(sys.argv[1]))
sys.stdin.readline()
for number in range(50):
    meaning = Meaning(sys.argv[2], str(number), "cpu", "rule", "1.0")
    store.put([Entry(meaning, "", "16", "8", 2e-6, 1e-6, 3, 3)])
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "folder" / "choices.sqlite")


def test_entries_come_back_and_the_newest_of_a_task_counts(store) -> None:
    store.put([ENTRY])
    store.put([replace(ENTRY, params="32")])
    assert store.entries() == [replace(ENTRY, params="32")]


def test_a_store_that_is_not_there_is_empty_and_is_not_made(store) -> None:
    assert (store.entries(), store.clear(), known_choices(store.path)) == ([], 0, {})
    assert not store.path.parent.exists()


def test_a_reader_sees_what_was_written_since(store) -> None:
    store.put([ENTRY])
    assert known_choices(store.path) == {ENTRY.meaning: ENTRY}
    assert known_choices(store.path) is known_choices(store.path)
    store.put([replace(ENTRY, params="32")])
    assert known_choices(store.path)[ENTRY.meaning].params == "32"


def test_two_processes_that_write_at_once_lose_nothing(store) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), name], stdin=subprocess.PIPE) for name in "ab"
    ]
    for writer in writers:
        writer.stdin.write(b"go\n")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(store.entries()) == 100


@pytest.mark.parametrize("damage", [b"no store at all" * 100, None])
def test_a_damaged_store_is_put_aside_with_a_warning(store, damage) -> None:
    store.put([replace(ENTRY, meaning=replace(ENTRY.meaning, sizes=str(n))) for n in range(200)])
    content = store.path.read_bytes()
    store.path.write_bytes(damage or content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.warns(CacheWarning, match=r"choices\.sqlite is damaged \("):
        assert store.entries() == []
    store.put([ENTRY])
    assert store.entries() == [ENTRY]
    assert len(list(store.path.parent.glob("*.damaged-*"))) == 1


def test_a_store_of_a_newer_version_is_left_alone(store) -> None:
    store.put([ENTRY])
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version=2")
    connection.close()
    with pytest.raises(CacheError, match=r"has format 2, expected at most 1\nhint: a newer"):
        store.entries()


def test_exported_lines_are_imported_as_they_were(store, tmp_path) -> None:
    store.put([ENTRY, replace(ENTRY, meaning=replace(ENTRY.meaning, sizes="f32[9]"), seconds=2e-6)])
    other = Store(tmp_path / "other.sqlite")
    assert other.import_lines(store.export_lines()) == 2
    assert other.entries() == store.entries()


@pytest.mark.parametrize("line", ["{", "[]", '{"task": "a"}'])
def test_a_line_that_is_no_choice_is_named_and_nothing_is_imported(store, line) -> None:
    store.put([ENTRY])
    good = next(store.export_lines())
    other = Store(store.path.with_name("other.sqlite"))
    with pytest.raises(CacheError, match="line 2 is no tuned choice"):
        other.import_lines([good, line])
    assert other.entries() == []


def test_the_place_of_the_store_can_be_chosen(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("HIDET_TUNE_STORE", raising=False)
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    assert store_path() == tmp_path / "tuning.sqlite"
    monkeypatch.setenv("HIDET_TUNE_STORE", str(tmp_path / "mine"))
    assert (store_path(), store_path(tmp_path / "other")) == (tmp_path / "mine", tmp_path / "other")
    assert store_path("off") is None
