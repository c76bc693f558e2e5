"""Search of one task: the strategy names candidates, which are measured against the default; the winner once more."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from hidet.errors import CacheError
from hidet.tuning.executor import Executor
from hidet.tuning.store import Entry
from hidet.tuning.strategy import Measurement, Problem, Strategy, ranked, sizes_of
from hidet.tuning.strategy_history import History
from hidet.tuning.subjects import Subject
from hidet.tuning.trial import Outcome, ProgramText, Trial

LEAST_GAIN = 0.02
"""A change has to be worth this much, however quiet the machine is."""

FINAL_ROUNDS = 15
"""Of the winner and the default, which have not chosen it; its results are compared on inputs that nothing has seen."""


_FIRST_ROUNDS = 3
"""Of what is measured before the strategy begins."""


@dataclass(slots=True, eq=False)
class TaskSearch:
    """The search of a task until `end`, of `time.monotonic`.

    level: how much of the space its candidates are. tell: called at first, and after each measurement. ahead: trials
    that are likely to come after this search. found: ratios to the default's time by candidate.
    """

    subject: Subject
    executor: Executor
    end: float
    level: int
    tell: Callable[[], None]
    ahead: Sequence[Trial] = ()
    found: dict[int, list[float]] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    _finished: int = 0

    def run(self, strategy: Strategy, history: History) -> Entry | None:
        """What is best, as far as time allows; None where nothing was tried.

        history: what strategies have learned, and learn from this search.
        """
        self.tell()
        subject, sizes = self.subject, sizes_of(self.subject.task)
        points = [candidate.point for candidate in subject.candidates]
        # The best of an earlier search, or of the nearest sizes, comes first: a short budget must not lose it.
        earlier = [place for place, each in enumerate(subject.candidates) if each.text == subject.before]
        self.measure(earlier, _FIRST_ROUNDS)
        learned: list[Measurement] = []
        with suppress(CacheError):  # what was learned is a help, not a result
            learned = history.known(subject.meaning)
        best = strategy.search(Problem(points, sizes, learned, earlier), self.measure, self.has_time)
        measured = [
            Measurement(sizes, points[place].knobs, self._ratio(place), subject.candidates[place].text)
            for place in self.found
        ]
        with suppress(CacheError):
            history.add(subject.meaning, measured)
        self._finished = self.level if self.has_time() else 0
        return self.entry(min((each for each in (best, *earlier) if each in self.found), key=self._ratio, default=None))

    def entry(self, best: int | None = None) -> Entry | None:
        """What is known of the task now; None where nothing was tried.

        best: the candidate that was chosen; None is the best that was measured. It is used where it stands a last
        comparison, for which a moment is taken even when the time is over.
        """
        subject = self.subject
        if not self.tried:
            return None
        if best is None:
            best = min(self.found, key=self._ratio, default=None)
        default = subject.default_params
        chosen, seconds, default_seconds = default, subject.seconds, subject.seconds
        if best is not None:
            outcome = self._trial(best, FINAL_ROUNDS, seed=1)
            if not outcome.failure and is_faster(ratios(outcome)):
                chosen = subject.candidates[best].text
                seconds = statistics.median(outcome.seconds)
                default_seconds = statistics.median(outcome.default_seconds)
        return Entry(
            subject.meaning,
            subject.task.summary,
            chosen,
            default,
            default_seconds,
            seconds,
            len(self.tried),
            len(subject.candidates),
            self._finished,
        )

    def has_time(self) -> bool:
        """Whether the task's share of the budget lasts."""
        return time.monotonic() < self.end

    def measure(self, places: Sequence[int], rounds: int) -> Mapping[int, float]:
        """As `hidet.tuning.strategy.Measure`."""
        programs = {place: self.subject.program(place) for place in itertools.takewhile(self._is_timely, places)}
        self.tried |= {place for place, program in programs.items() if program is None}
        asked = [
            _trial_of(self.subject, program, rounds, seed=0) for program in programs.values() if program is not None
        ]
        if asked:
            self.executor.announce([*asked, *self.ahead])
        measured: dict[int, float] = {}
        for place, program in programs.items():
            if program is None or not self.has_time():
                continue
            try:
                outcome = self._trial(place, rounds, seed=0, most=self.end - time.monotonic())
            except TimeoutError:
                self.end = time.monotonic()
                break
            if not outcome.failure:
                measured[place] = statistics.median(ratios(outcome))
                self.found.setdefault(place, []).extend(ratios(outcome))
        return measured

    def _ratio(self, place: int | None) -> float:
        return inf if place is None else statistics.median(self.found[place])

    def _is_timely(self, place: int) -> bool:
        return self.has_time()

    def _trial(self, place: int, rounds: int, seed: int, most: float | None = None) -> Outcome:
        subject = self.subject
        program = subject.program(place)
        assert program is not None, "a strategy named a point that has no program"
        outcome = self.executor.run(_trial_of(subject, program, rounds, seed), most)
        self.tried.add(place)
        candidate = subject.candidates[place]
        if outcome.failure:
            subject.refused[candidate.text] = outcome.failure
            self.found.pop(place, None)
        subject.note_trial(candidate, None if outcome.failure else statistics.median(ratios(outcome)), outcome.failure)
        self.tell()
        return outcome


def default_trial(subject: Subject) -> Trial:
    """How long does a task take with its default?"""
    return Trial(subject.memory, subject.default, None, _FIRST_ROUNDS)


def first_trials(subject: Subject, count: int) -> list[Trial]:
    """Trials that a search is likely to begin with: of the points that are expected to be the fastest."""
    order = ranked(Problem([candidate.point for candidate in subject.candidates]))
    programs = map(subject.program, order[:count])
    return [_trial_of(subject, program, _FIRST_ROUNDS, seed=0) for program in programs if program is not None]


def _trial_of(subject: Subject, program: ProgramText, rounds: int, seed: int) -> Trial:
    return Trial(subject.memory, subject.default, program, rounds, seed)


def ratios(outcome: Outcome) -> list[float]:
    """The candidate's time over the default's, round by round."""
    return [mine / other for mine, other in zip(outcome.seconds, outcome.default_seconds, strict=True)]


def is_faster(found: Sequence[float], least: float = LEAST_GAIN) -> bool:
    """Whether ratios of rounds, of the time after to that before, show a gain of `least`, and one above their noise."""
    middle = statistics.median(found)
    # The standard error of a median, from the median deviation, which single disturbed rounds do not move.
    deviation = 1.4826 * statistics.median(abs(ratio - middle) for ratio in found)
    error = 1.2533 * deviation / len(found) ** 0.5
    return middle <= 1 - least and middle + 3 * error < 1
