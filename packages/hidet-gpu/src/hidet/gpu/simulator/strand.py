"""Threads that run on their own: strands are coroutines, resumed in turn until all have ended or none can go on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.errors import Deadlock

if TYPE_CHECKING:
    from hidet.gpu.simulator.lanes import Lanes
    from hidet.gpu.simulator.team import Team
    from hidet.ir.stmt import Stmt

MOST_POLLS = 5_000
"""How often threads may ask again, with nothing else happening, before they are taken to wait for ever."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a strand waits for. `ready`: whether it may go on. `what`: the reason, for people. `polls`: it asks itself,
    so it is resumed whenever others had their turn. `follows`: it waits for its own branches, which tell more."""

    what: Callable[[], str]
    ready: Callable[[], bool]
    polls: bool = False
    follows: bool = False


POLL = Wait(lambda: "asks again and again", lambda: True, polls=True)

Steps = Generator[Wait, None, Any]


class Strand:
    """One coroutine of a launch, and where it is."""

    def __init__(self, steps: Steps, team: Team, lanes: Lanes) -> None:
        self.steps = steps
        self.team = team
        self.lanes = lanes
        self.waiting: Wait | None = None
        self.done = False
        self.result: Any = None
        self.stmt: Stmt | None = None
        self.function = ""

    def resume(self) -> None:
        """Run to the next wait or the end."""
        try:
            self.waiting = next(self.steps)
        except StopIteration as end:
            self.done, self.result, self.waiting = True, end.value, None


class Scheduler:
    """Runs strands in turn. `progress` counts what may let others go on: writes, arrivals, ends of strands."""

    def __init__(self) -> None:
        self._strands: list[Strand] = []
        self.current: Strand | None = None
        self.progress = 0

    def add(self, strand: Strand) -> Strand:
        """Start a strand."""
        self._strands.append(strand)
        return strand

    def run(self) -> None:
        """Until all have ended. Deadlock when some wait for what nobody does."""
        polls = 0
        while self._strands:
            before = self.progress
            moved = polled = False
            for strand in tuple(self._strands):
                waiting = strand.waiting
                if waiting is not None and not waiting.ready():
                    continue
                self.current = strand
                strand.resume()
                if strand.waiting is not None and strand.waiting.polls:
                    polled = True
                else:
                    moved = True
            self._strands = [strand for strand in self._strands if not strand.done]
            polls = 0 if moved or self.progress != before else polls + 1
            if self._strands and ((not moved and not polled) or polls > MOST_POLLS):
                raise self._deadlock()

    def _deadlock(self) -> Deadlock:
        from hidet.gpu.simulator.report import statement_text

        stuck = [strand for strand in self._strands if strand.waiting is not None and not strand.waiting.follows]
        lines = []
        for strand in stuck:
            first, last = strand.lanes.index[0], strand.lanes.index[-1]
            describe = strand.team.geometry.describe
            who = describe(int(strand.team.agent[first]))
            if strand.lanes.count > 1:
                who += f" to {describe(int(strand.team.agent[last]))} ({strand.lanes.count} threads)"
            assert strand.waiting is not None
            lines.append(f"  {who} in {strand.function}, {statement_text(strand.stmt)}: {strand.waiting.what()}")
        loc = next((loc for loc in (getattr(strand.stmt, "loc", None) for strand in stuck) if loc is not None), None)
        return Deadlock(
            f"in {stuck[0].function}, threads wait for what no thread does:\n" + "\n".join(lines),
            loc=loc,
            hint="every thread that a barrier counts must come to it, and every phase must be arrived at",
        )
