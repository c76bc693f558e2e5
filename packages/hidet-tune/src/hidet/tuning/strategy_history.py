"""What was measured of points, beside the choices: strategies that learn begin with it on other sizes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from hidet.tuning.meaning import Meaning
from hidet.tuning.store import Store
from hidet.tuning.strategy import KnobValue, Measurement

MOST_ROWS = 4096
"""Of a rule on a machine; older ones are forgotten."""

_CREATE = """CREATE TABLE IF NOT EXISTS measurements (
    arch TEXT NOT NULL, rule TEXT NOT NULL, version TEXT NOT NULL, task TEXT NOT NULL,
    sizes TEXT NOT NULL, knobs TEXT NOT NULL, ratio REAL NOT NULL
)"""
_SELECT = "SELECT sizes, knobs, ratio FROM measurements WHERE arch = ? AND rule = ? AND version = ? ORDER BY rowid"
_DELETE_SAME = """DELETE FROM measurements
    WHERE arch = ? AND rule = ? AND version = ? AND task = ? AND sizes = ? AND knobs = ?"""
_INSERT = "INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE_OLD = """DELETE FROM measurements WHERE arch = ? AND rule = ? AND version = ? AND rowid NOT IN
    (SELECT rowid FROM measurements WHERE arch = ? AND rule = ? AND version = ? ORDER BY rowid DESC LIMIT ?)"""


class History(Store):
    """Measurements, in the file of choices: of each point of a task the last one."""

    def known(self, meaning: Meaning) -> list[Measurement]:
        """Measurements of the rule on this machine, for any task; the oldest first."""
        if not self.path.exists():
            return []
        rows = self._run(lambda connection: _measured(connection, meaning))
        return [measurement for row in rows if (measurement := _parsed(*row)) is not None]

    def add(self, meaning: Meaning, measurements: Iterable[Measurement]) -> None:
        """Keep measurements of a task's points."""
        rule = (meaning.arch, meaning.rule, meaning.version)
        rows = [
            (*rule, meaning.task, json.dumps(each.sizes), json.dumps(dict(each.knobs), sort_keys=True), each.ratio)
            for each in measurements
        ]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_CREATE)
            connection.executemany(_DELETE_SAME, [row[:-1] for row in rows])
            connection.executemany(_INSERT, rows)
            connection.execute(_DELETE_OLD, (*rule, *rule, MOST_ROWS))

        self._run(write)


def _measured(connection: sqlite3.Connection, meaning: Meaning) -> list[tuple[str, str, float]]:
    connection.execute(_CREATE)
    return connection.execute(_SELECT, (meaning.arch, meaning.rule, meaning.version)).fetchall()


def _parsed(sizes: object, knobs: object, ratio: object) -> Measurement | None:
    """None for a row that is none: strategies do without it."""
    try:
        given_sizes, given_knobs = json.loads(str(sizes)), json.loads(str(knobs))
        if not all(isinstance(size, int) for size in given_sizes) or not isinstance(ratio, float) or not ratio > 0:
            return None
        if not all(isinstance(value, KnobValue) for value in given_knobs.values()):
            return None
        return Measurement(tuple(given_sizes), given_knobs, ratio)
    except (ValueError, TypeError, AttributeError):
        return None
