"""Choices of several machines, or people, as one: of each task the one whose search came further."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hidet.tuning.meaning import Meaning
from hidet.tuning.store import Entry, Store, parse_lines

_HEADER = b"SQLite format 3\x00"


def entries_in(path: Path) -> list[Entry]:
    """The entries of a store, or of lines of JSON as `hidet tune export` writes them.

    CacheError where the file is neither, and names the first line that is no entry.
    """
    with path.open("rb") as file:
        is_store = file.read(len(_HEADER)) == _HEADER
    if is_store:
        return Store(path).entries()
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse_lines(lines, str(path))


def merged(stores: Iterable[Iterable[Entry]]) -> list[Entry]:
    """The entries of all, by their keys. Of two for the same task that is kept which was searched at the higher level,
    to the end before only in part, with more points tried, or which is faster over its default."""
    best: dict[Meaning, Entry] = {}
    for entry in (entry for entries in stores for entry in entries):
        other = best.get(entry.meaning)
        if other is None or _worth(entry) > _worth(other):
            best[entry.meaning] = entry
    return [best[meaning] for meaning in sorted(best)]


def _worth(entry: Entry) -> tuple[int, int, float]:
    return entry.finished, entry.tried, entry.default_seconds / entry.seconds
