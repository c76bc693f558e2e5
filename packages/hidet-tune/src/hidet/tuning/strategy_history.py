"""What was measured of points, beside the choices: strategies that learn begin with it on other sizes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hidet.tuning.meaning import Meaning
from hidet.tuning.store import Store
from hidet.tuning.strategy import KnobValue, Measurement

MOST_ROWS = 4096
"""Of a rule on a machine; older ones are forgotten."""

_CREATE = """CREATE TABLE IF NOT EXISTS measurements (
    arch TEXT NOT NULL, rule TEXT NOT NULL, version TEXT NOT NULL, task TEXT NOT NULL, sizes TEXT NOT NULL,
    params TEXT NOT NULL, extents TEXT NOT NULL, knobs TEXT NOT NULL, ratio REAL NOT NULL,
    PRIMARY KEY (arch, rule, version, task, sizes, params)
)"""
_OF_RULE = "arch = ? AND rule = ? AND version = ?"
_SELECT = f"SELECT extents, knobs, ratio, params FROM measurements WHERE {_OF_RULE} ORDER BY rowid"
_SELECT_RATIOS = "SELECT task, sizes, arch, rule, version, params, ratio FROM measurements"
_INSERT = "INSERT OR REPLACE INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE_OLD = f"""DELETE FROM measurements WHERE {_OF_RULE} AND rowid NOT IN
    (SELECT rowid FROM measurements WHERE {_OF_RULE} ORDER BY rowid DESC LIMIT ?)"""


class History(Store):
    """Measurements, in the file of choices: of each point of a task the last one."""

    def known(self, meaning: Meaning) -> list[Measurement]:
        """Measurements of the rule on this machine, for any task; the oldest first."""
        if not self.path.exists():
            return []
        rows = self._read(_SELECT, (meaning.arch, meaning.rule, meaning.version))
        return [measurement for row in rows if (measurement := _parsed(*row)) is not None]

    def ratios(self) -> Mapping[Meaning, Mapping[str, float]]:
        """By task, the time over the default's of each point that was measured, by its parameters."""
        found: dict[Meaning, dict[str, float]] = {}
        for *key, params, ratio in self._read(_SELECT_RATIOS) if self.path.exists() else []:
            found.setdefault(Meaning(*key), {})[params] = ratio
        return found

    def _read(self, select: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            connection.execute(_CREATE)
            return connection.execute(select, values).fetchall()

        return self._run(read)

    def add(self, meaning: Meaning, measurements: Iterable[Measurement]) -> None:
        """Keep measurements of a task's points."""
        rule = (meaning.arch, meaning.rule, meaning.version)
        task = (*rule, meaning.task, meaning.sizes)
        rows = [
            (*task, each.params, json.dumps(each.sizes), json.dumps(dict(each.knobs)), each.ratio)
            for each in measurements
        ]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_CREATE)
            connection.executemany(_INSERT, rows)
            connection.execute(_DELETE_OLD, (*rule, *rule, MOST_ROWS))

        self._run(write)


def _parsed(sizes: object, knobs: object, ratio: object, params: str) -> Measurement | None:
    """None for a row that is none: strategies do without it."""
    try:
        given_sizes, given_knobs = json.loads(str(sizes)), json.loads(str(knobs))
        if not all(isinstance(size, int) for size in given_sizes) or not isinstance(ratio, float) or not ratio > 0:
            return None
        if not all(isinstance(value, KnobValue) for value in given_knobs.values()):
            return None
        return Measurement(tuple(given_sizes), given_knobs, ratio, params)
    except (ValueError, TypeError, AttributeError):
        return None
