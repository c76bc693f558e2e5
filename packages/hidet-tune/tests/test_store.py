"""Choices on disk: many writers, damage, and lines of JSON."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from hidet.cli import main
from hidet.context import make_context
from hidet.errors import CacheError, CacheWarning
from hidet.tuning.meaning import Meaning, arch_of
from hidet.tuning.merge import entries_in, merged
from hidet.tuning.store import Entry, Store, known_choices, line_of, store_path

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
        connection.execute("PRAGMA user_version=3")
    connection.close()
    with pytest.raises(CacheError, match=r"has format 3, expected at most 2\nhint: a newer"):
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


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("seconds", -1.0, "seconds is -1.0"),
        ("default_seconds", float("inf"), "default_seconds is inf"),
        ("tried", 9, "9 of 3 points were tried"),
        ("finished", 7, "finished at level 7"),
        ("params", "<Tiles object at 0x7f>", "params is '<Tiles object at 0x7f>'"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_and_the_others_count(store, column, value, why) -> None:
    other = replace(ENTRY, meaning=replace(ENTRY.meaning, sizes="f32[9]"))
    store.put([replace(ENTRY, **{column: value}), other])
    with pytest.warns(CacheWarning, match=f"1 entries that cannot be: .*{why}"):
        assert store.entries() == [other]
    bad = line_of(replace(ENTRY, **{column: value}))
    with pytest.raises(CacheError, match="line 1 is no tuned choice"):
        store.import_lines([bad])


def test_a_store_of_the_first_version_begins_anew(store) -> None:
    store.put([ENTRY])
    with sqlite3.connect(store.path) as connection:
        connection.execute("ALTER TABLE choices DROP COLUMN finished")
        connection.execute("PRAGMA user_version=1")
    connection.close()
    assert store.entries() == []
    store.put([ENTRY])
    assert store.entries() == [ENTRY]


@pytest.mark.parametrize(
    "better", [{"finished": 1}, {"tried": 3}, {"tried": 2, "seconds": 5e-7}], ids=["finished", "tried", "faster"]
)
def test_merging_keeps_of_two_choices_the_one_whose_search_came_further(better) -> None:
    worse = replace(ENTRY, tried=2, finished=0)
    alone = replace(ENTRY, meaning=replace(ENTRY.meaning, sizes="f32[9]"))
    best = replace(worse, params="32", **better)
    assert merged([[worse, alone], [best]]) == merged([[best], [alone, worse]]) == [best, alone]


def test_stores_and_lines_are_merged_by_the_command(store, tmp_path) -> None:
    store.put([ENTRY])
    lines = tmp_path / "team.jsonl"
    lines.write_text(line_of(replace(ENTRY, meaning=replace(ENTRY.meaning, sizes="f32[9]"))) + "\n")
    for name in ("both.sqlite", "both.jsonl"):
        done = CliRunner().invoke(main, ["tune", "merge", str(store.path), str(lines), "-o", str(tmp_path / name)])
        assert done.output.startswith("2 choices in "), done.output
        assert len(entries_in(tmp_path / name)) == 2
    lines.write_text("{}\n")
    done = CliRunner().invoke(main, ["tune", "merge", str(lines), "-o", str(tmp_path / "none.jsonl")])
    assert f"{lines}:1 is no tuned choice" in done.output and not (tmp_path / "none.jsonl").exists()


def test_ranks_of_a_job_read_a_store_once_and_the_first_one_alone_writes(store, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    store.put([ENTRY])
    assert known_choices(store.path) == {ENTRY.meaning: ENTRY}
    later, mine = (replace(ENTRY, meaning=replace(ENTRY.meaning, sizes=f"f32[{n}]")) for n in (9, 10))
    store.put([later])
    assert known_choices(store.path) == {ENTRY.meaning: ENTRY} == store.choices(), "another rank has written"
    for rank, kept in (("1", 2), ("0", 3)):
        monkeypatch.setenv("RANK", rank)
        assert store.put_or_hold([mine]) is None
        assert known_choices(store.path) == {ENTRY.meaning: ENTRY, mine.meaning: mine}
        assert len(store.entries()) == kept
    monkeypatch.delenv("WORLD_SIZE")
    assert set(known_choices(store.path)) == {entry.meaning for entry in (ENTRY, later, mine)}


def test_the_place_of_the_store_can_be_chosen(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("HIDET_TUNE_STORE", raising=False)
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    assert store_path() == tmp_path / "tuning.sqlite"
    monkeypatch.setenv("HIDET_TUNE_STORE", str(tmp_path / "mine"))
    assert (store_path(), store_path(tmp_path / "other")) == (tmp_path / "mine", tmp_path / "other")
    assert store_path("off") is None


def test_nothing_is_kept_for_a_target_of_no_plug_in() -> None:
    ctx = make_context("cpu", {"threads": 1})
    assert arch_of(ctx) is not None
    assert arch_of(replace(ctx, target=SimpleNamespace(name="none"))) is None
