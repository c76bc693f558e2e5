"""Choices on disk: an SQLite file that many processes read and write at once, and JSON lines for people and teams."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

from hidet import option
from hidet.cache import cache_directory
from hidet.errors import CacheError, CacheWarning
from hidet.tuning.meaning import Meaning, is_stable

OFF = "off"
"""As a path: no store."""

_VERSION = 2
_WAIT = 30.0
"""Seconds to wait for other writers, whose transactions take milliseconds."""

_KEY = tuple(field.name for field in fields(Meaning))
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Entry:
    """What was found out about a task.

    summary: the task for people. params: the `repr` of the chosen parameters; those of default_params where nothing is
    faster. default_seconds, seconds: of a call with the default and with the chosen parameters. tried, points: how many
    points of the rule's space were tried, of how many; those that cannot be built, or make no other program, count.
    finished: the search level (`hidet.schedule.shortlist`) at which the search came to its end; 0 where time ran out.
    """

    meaning: Meaning
    summary: str
    params: str
    default_params: str
    default_seconds: float
    seconds: float
    tried: int
    points: int
    finished: int = 0


_VALUES = {"summary": "TEXT", "params": "TEXT", "default_params": "TEXT", "default_seconds": "REAL", "seconds": "REAL"}
_VALUES |= {"tried": "INTEGER", "points": "INTEGER", "finished": "INTEGER"}
_COLUMNS = (*_KEY, *_VALUES)
_TYPES = {**dict.fromkeys(_KEY, "TEXT"), **_VALUES}
_CREATE = f"""CREATE TABLE IF NOT EXISTS choices (
    {", ".join(f"{name} {kind} NOT NULL" for name, kind in _TYPES.items())}, PRIMARY KEY ({", ".join(_KEY)})
)"""
_PUT = f"INSERT OR REPLACE INTO choices ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM choices ORDER BY {', '.join(_KEY)}"


def store_path(given: str | os.PathLike[str] = "") -> Path | None:
    """The file of choices: `given`, else HIDET_TUNE_STORE, else beside the kernel cache; None for "off"."""
    named = os.fspath(given) or os.environ.get("HIDET_TUNE_STORE", "")
    if named == OFF:
        return None
    if not named:
        return _beside_kernels(option.get_cache_dir())
    return _file(named) if os.path.isabs(named) else Path(named).expanduser().absolute()


# Every task of a compilation asks, and making a path takes longer than looking for the file.
_file = functools.cache(Path)


@functools.cache
def _beside_kernels(cache: str) -> Path:
    return cache_directory(cache) / "tuning.sqlite"


_HELD: dict[Path, dict[Meaning, Entry]] = {}
"""Entries that files do not have, for the compilations of this process."""
_HOLDING = threading.Lock()
"""Held while those change: two threads may tune into one store."""


def known_choices(path: Path) -> Mapping[Meaning, Entry]:
    """The entries of a store, read again only where the file has changed; none where there is no file. Those that this
    process has found and the file does not have are among them.

    In a distributed job (WORLD_SIZE above 1) the file is read once: what ranks write while others start changes nothing
    for anybody, so that ranks with the same store choose alike, whichever comes first.
    """
    read = _read_once(path) if is_distributed() else _read_now(path)
    held = _HELD.get(path)
    return _merged(Same(read), Same(held)) if held else read


def is_distributed() -> bool:
    """Whether this process is one of several ranks, as launchers say (torchrun and others)."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1")


def is_writer() -> bool:
    """Whether this process may write to stores: of the ranks of a distributed job the first one alone."""
    return not is_distributed() or os.environ.get("RANK", "0") == "0"


def _read_now(path: Path) -> Mapping[Meaning, Entry]:
    stamp = _stamp(path)
    return {} if stamp is None else _read(path, stamp)


_read_once = functools.cache(_read_now)


class Same:
    """Entries that are equal to the same object alone, so that what is made of them can be kept."""

    def __init__(self, known: Mapping[Meaning, Entry]) -> None:
        self.known = known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.known is other.known

    def __hash__(self) -> int:
        return id(self.known)


@functools.lru_cache(maxsize=2)
def _merged(read: Same, held: Same) -> Mapping[Meaning, Entry]:
    return {**read.known, **held.known}


@functools.lru_cache(maxsize=4)
def _read(path: Path, stamp: tuple[int, ...]) -> Mapping[Meaning, Entry]:
    try:
        return {entry.meaning: entry for entry in Store(path).entries()}
    except CacheError as error:
        warnings.warn(CacheWarning(error.message, hint="tasks take their default schedules"), stacklevel=2)
        return {}


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when a store is written to; None where there is none."""
    try:
        main = os.stat(path)
    except OSError:
        return None
    found: tuple[int, ...] = (main.st_ino, main.st_size, main.st_mtime_ns)
    # An empty log is what a reader leaves.
    with contextlib.suppress(OSError):
        log = os.stat(f"{path}-wal")
        found += (log.st_size, log.st_mtime_ns) if log.st_size else ()
    return found


class Store:
    """A file of choices. Each method is one short transaction, so that any number of processes may work on it.

    A file that is no store, or damaged, is renamed with a CacheWarning, and a new one begins. CacheError where the file
    cannot be read or written (permissions, a full disk), or was written by a newer hidet-tune.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """All entries, by their keys; none where there is no file. Those that cannot be, such as one with a negative
        time, are left out with a CacheWarning."""
        if not self.path.exists():
            return []
        rows = self._run(lambda connection: connection.execute(_SELECT).fetchall())
        found: list[Entry] = []
        refused: list[str] = []
        for row in rows:
            try:
                found.append(_entry(row))
            except ValueError as error:
                refused.append(f"{row[len(_KEY)]}: {error}")
        if refused:
            message = f"the store of tuned choices {self.path} has {len(refused)} entries that cannot be: {refused[0]}"
            warnings.warn(CacheWarning(message, hint="they are not used; tune again"), stacklevel=3)
        return found

    def choices(self) -> Mapping[Meaning, Entry]:
        """The entries by their keys, as compilations of this process see them (`known_choices`). CacheError where the
        file cannot be read."""
        if is_distributed():
            return known_choices(self.path)
        return {**{entry.meaning: entry for entry in self.entries()}, **_HELD.get(self.path, {})}

    def put(self, entries: Iterable[Entry]) -> None:
        """Keep entries, in place of those with the same keys."""
        rows = [_row(entry) for entry in entries]
        self._run(lambda connection: connection.executemany(_PUT, rows))
        _read.cache_clear()

    def put_or_hold(self, entries: Sequence[Entry]) -> CacheError | None:
        """As `put`; where the file cannot take them, this process alone has them, and the reason is returned. What was
        held before is tried again. Of the ranks of a distributed job the first one alone writes."""
        with _HOLDING:
            waiting = {**_HELD.get(self.path, {}), **{entry.meaning: entry for entry in entries}}
            _HELD[self.path] = waiting
            try:
                if is_writer():
                    self.put(waiting.values())
            except CacheError as error:
                return error
            if not is_distributed():
                del _HELD[self.path]
            return None

    def clear(self) -> int:
        """Delete all entries, what strategies have learned from, and which budgets were spent. Returns how many entries
        there were."""
        with _HOLDING:
            _HELD.pop(self.path, None)
        if not self.path.exists():
            return 0

        def delete(connection: sqlite3.Connection) -> int:
            for table in ("measurements", "spent"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            return connection.execute("DELETE FROM choices").rowcount

        count = self._run(delete)
        _read.cache_clear()
        return count

    def export_lines(self) -> Iterator[str]:
        """Each entry as a line of JSON, sorted, so that files can be compared."""
        return map(line_of, self.entries())

    def import_lines(self, lines: Iterable[str]) -> int:
        """Keep the entries that `export_lines` gave. Returns how many there are.

        CacheError names the first line that is none; nothing is kept then.
        """
        entries = parse_lines(lines)
        self.put(entries)
        return len(entries)

    def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        for is_last in (False, True):
            identity = self._identity()
            try:
                with contextlib.closing(self._open()) as connection, connection:
                    return work(connection)
            except sqlite3.OperationalError as error:
                raise CacheError(
                    f"the store of tuned choices {self.path} cannot be used: {error}",
                    hint="another file: option tune.store, --store or HIDET_TUNE_STORE",
                ) from error
            except (sqlite3.DatabaseError, ValueError) as error:
                if is_last:
                    raise CacheError(f"the store of tuned choices {self.path} is damaged: {error}") from error
                self._put_aside(identity, error)
        raise AssertionError("unreachable")

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CacheError(f"cannot make the folder {self.path.parent}: {error}") from error
        connection = sqlite3.connect(self.path, timeout=_WAIT)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise CacheError(
                    f"the store of tuned choices {self.path} has format {version}, expected at most {_VERSION}",
                    hint="a newer hidet-tune wrote it: pip install -U hidet-tune",
                )
            if version < _VERSION:
                with connection:
                    if version == 1:
                        connection.execute("DROP TABLE IF EXISTS choices")  # it does not say how far searches came
                    connection.execute(_CREATE)
                    connection.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _identity(self) -> int | None:
        try:
            return os.stat(self.path).st_ino
        except OSError:
            return None

    def _put_aside(self, identity: int | None, error: Exception) -> None:
        """Rename a damaged file, unless somebody else has done so."""
        if identity is None or self._identity() != identity:
            return
        kept = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        try:
            os.replace(self.path, kept)
            for ending in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self.path}{ending}", f"{kept}{ending}")
        except OSError as failure:
            raise CacheError(f"the damaged store {self.path} cannot be renamed: {failure}") from failure
        message = f"the store of tuned choices {self.path} is damaged ({error})"
        warnings.warn(CacheWarning(message, hint=f"it is {kept.name} now, and a new one begins"), stacklevel=5)


def line_of(entry: Entry) -> str:
    """An entry as a line of JSON."""
    values = {**asdict(entry.meaning), **{name: getattr(entry, name) for name in _VALUES}}
    return json.dumps(values, ensure_ascii=False)


def parse_lines(lines: Iterable[str], file: str = "") -> list[Entry]:
    """Entries from what `line_of` gave. CacheError names the first line that is none."""
    return [
        _parsed(line, f"{file}:{number}" if file else f"line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _row(entry: Entry) -> tuple[object, ...]:
    return (*(getattr(entry.meaning, name) for name in _KEY), *(getattr(entry, name) for name in _VALUES))


def _entry(row: tuple[object, ...]) -> Entry:
    """ValueError for a row that cannot be."""
    python = {"TEXT": str, "REAL": float, "INTEGER": int}
    for name, value in zip(_COLUMNS, row, strict=True):
        if not isinstance(value, python[_TYPES[name]]):
            raise ValueError(f"{name} is {value!r}")
    key, values = row[: len(_KEY)], row[len(_KEY) :]
    entry = Entry(Meaning(*key), *values)  # type: ignore[arg-type]  # their types were checked
    for name in ("default_seconds", "seconds"):
        if not 0 < getattr(entry, name) < math.inf:
            raise ValueError(f"{name} is {getattr(entry, name)!r}")
    if not 0 <= entry.tried <= entry.points or entry.finished not in (0, 1, 2):
        raise ValueError(f"{entry.tried} of {entry.points} points were tried, finished at level {entry.finished}")
    if not entry.params or not is_stable(entry.params):
        raise ValueError(f"params is {entry.params!r}")
    return entry


def _parsed(line: str, place: str) -> Entry:
    try:
        given = json.loads(line)
        row = tuple(float(given[n]) if _TYPES[n] == "REAL" else given[n] for n in _COLUMNS)
        return _entry(row)
    except (ValueError, TypeError, KeyError) as error:
        raise CacheError(
            f"{place} is no tuned choice: {type(error).__name__}: {error}",
            hint="expected lines as `hidet tune export` writes them",
        ) from error
