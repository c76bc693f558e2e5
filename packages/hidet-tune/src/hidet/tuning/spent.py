"""Budgets that were spent: tasks that a call of the tuner left unfinished are not measured again for as little."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from hashlib import blake2b

from hidet.tuning.meaning import Meaning
from hidet.tuning.store import Store, is_writer

_CREATE = """CREATE TABLE IF NOT EXISTS spent (
    tasks TEXT NOT NULL, level INTEGER NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (tasks, level)
)"""
_IS_THERE = "SELECT 1 FROM sqlite_master WHERE name = 'spent'"
_SELECT = "SELECT seconds FROM spent WHERE tasks = ? AND level >= ? ORDER BY seconds DESC LIMIT 1"
_INSERT = """INSERT INTO spent VALUES (?, ?, ?)
    ON CONFLICT (tasks, level) DO UPDATE SET seconds = max(seconds, excluded.seconds)"""


class Spent(Store):
    """In the file of choices: what was left of a model's tasks when a budget had been spent, and that budget.

    A model that is tuned each time it starts takes its choices from the store the second time, also where its budget
    does not reach all of its tasks. They are found again as a set, because what a task is worth depends on the others.
    """

    def budget(self, left: Iterable[Meaning], level: int) -> float:
        """Seconds of the largest budget after which these tasks, and no others, were left at this search level or a
        higher one; 0.0 where there was none."""
        if not self.path.exists():
            return 0.0

        def read(connection: sqlite3.Connection) -> float:
            if connection.execute(_IS_THERE).fetchone() is None:
                return 0.0
            row = connection.execute(_SELECT, (_digest(left), level)).fetchone()
            return row[0] if row is not None and isinstance(row[0], float) else 0.0

        return self._run(read)

    def note(self, left: Iterable[Meaning], level: int, seconds: float) -> None:
        """Keep that these tasks were left by a budget of as many seconds; in a distributed job the first rank does."""
        if not is_writer():
            return

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_CREATE)
            connection.execute(_INSERT, (_digest(left), level, seconds))

        self._run(write)


def _digest(tasks: Iterable[Meaning]) -> str:
    return blake2b(repr(sorted(set(tasks))).encode(), digest_size=16).hexdigest()
