"""Which tasks of a segment may run beside those before them, and an order in which more of them do.

A device that starts a kernel while the one before it ends (programmatic dependent launch) may run it beside that one
where neither needs the other. What two tasks read and write tells, as sets of whatever names memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

Memory = TypeVar("Memory", bound=Hashable)
Item = TypeVar("Item")

_AHEAD = 6
"""Tasks that are looked through for one that need not wait: what comes early takes memory for longer."""


@dataclass(frozen=True, slots=True)
class Uses(Generic[Memory]):
    """What a task reads and writes. is_exclusive: whether none may run beside it."""

    read: Set[Memory]
    written: Set[Memory]
    is_exclusive: bool = False

    def depends_on(self, read: Set[Memory], written: Set[Memory]) -> bool:
        """Whether it has to stand behind what reads and writes this."""
        return not (
            self.written.isdisjoint(read) and self.written.isdisjoint(written) and self.read.isdisjoint(written)
        )


class Running(Generic[Memory]):
    """What may still run when the next task of a segment begins: tasks from the last one on that waited for those
    before it."""

    def __init__(self) -> None:
        self.read: set[Memory] = set()
        self.written: set[Memory] = set()
        self._is_exclusive = True

    def allows(self, task: Uses[Memory]) -> bool:
        """Whether a task may run beside them."""
        return not (self._is_exclusive or task.is_exclusive or task.depends_on(self.read, self.written))

    def add(self, task: Uses[Memory], *, is_beside: bool) -> None:
        """A task that runs beside them, or waits for them."""
        if not is_beside:
            self.read, self.written = set(), set()
        self.read |= task.read
        self.written |= task.written
        self._is_exclusive = task.is_exclusive


def order_beside(tasks: Sequence[Item], uses: Callable[[Item], Uses[Memory]]) -> list[Item]:
    """The tasks, those that may run beside the last ones before those that have to wait for them."""
    waiting = deque((task, uses(task)) for task in tasks)
    running, ordered = Running[Memory](), list[Item]()
    while waiting:
        at = _first_beside(running, waiting)
        task, used = waiting[at or 0]
        del waiting[at or 0]
        running.add(used, is_beside=at is not None)
        ordered.append(task)
    return ordered


def _first_beside(running: Running[Memory], waiting: Iterable[tuple[Item, Uses[Memory]]]) -> int | None:
    """The number of the first task that may run beside what runs, before those that it passes; None where all wait."""
    read, written = set[Memory](), set[Memory]()
    for number, (_, task) in enumerate(islice(waiting, _AHEAD)):
        if running.allows(task) and not task.depends_on(read, written):
            return number
        if task.is_exclusive:
            break
        read |= task.read
        written |= task.written
    return None
