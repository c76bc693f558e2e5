"""One call of the tuner: tasks are measured one by one in a process of their own, and the model as a whole last.

What is found goes to the store at once, so that Ctrl-C at any moment loses nothing: the model is then compiled with
what the store has.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hidet.budget import Budget
from hidet.cli.timing import measure_alternately
from hidet.compiler.graphs import ImportedModel, compile_graph
from hidet.context import CompileContext
from hidet.errors import CacheError, CacheWarning, HidetError, OptionError
from hidet.report.roofline import roofline_of
from hidet.runtime.compiled import CompiledGraph
from hidet.schedule.shortlist import SearchLevel
from hidet.schedule.task import TaskKey
from hidet.tuning.executor import Executor, MakeExecutor
from hidet.tuning.meaning import Meaning, threads_of
from hidet.tuning.model_calls import GraphCall, graph_call, seconds_of
from hidet.tuning.report import TaskReport, TuneReport
from hidet.tuning.report_live import Observe, Progress
from hidet.tuning.search import TaskSearch, default_trial, first_trials, is_faster
from hidet.tuning.spent import Spent
from hidet.tuning.store import OFF, Entry, Store
from hidet.tuning.strategy import Strategy
from hidet.tuning.strategy_history import History
from hidet.tuning.subjects import Subject, subject_of, tasks_of
from hidet.tuning.trial import settings_of

_LEARNING = 0.3
"""Of the time for the search, at most, to learn how long tasks take by default."""
_FEWEST = 8
"""Candidates that the time of a task is enough for, or there is none for the tasks behind it."""
_TASKS_AHEAD, _TRIALS_AHEAD = 3, 8
"""Of how many tasks, and how many of each, programs are compiled while others are measured."""
_LAST_COMPARISON = 2.0
"""How long it takes, in measurements of the default, compilation and all."""
_MODEL_ROUNDS = 7
_MODEL_TURN = 0.05
"""Seconds of calls in a turn of the model, at least one call."""
_MOST_RESERVED = 0.6
"""Of the time that is left once the model has been compiled, at most, for compiling it again and measuring it."""
_NO_TIME = "the budget was spent before it was measured"
_SPENT = "left by an earlier call with a budget of {:g} s; a larger one goes on"
_INTERRUPTED = "interrupted before it was measured"


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A graph of a model. inputs: what it is measured on as a whole; None for random arrays."""

    imported: ImportedModel
    inputs: Sequence[Any] | Mapping[str, Any] | None = None

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.imported.ctx.target.device


class Session:
    """Tunes the graphs of a model, all of one device, for as long as `budget` lasts from now on.

    Where a call with a budget as large has ended, nothing is measured: what it left stays as it is.
    level: how much of a space is tried. candidate_seconds: what a trial may take. progress: hears how far tasks are;
    None where nobody wants to know.
    OptionError for a machine that is not this one.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        store: Store,
        budget: Budget,
        *,
        strategy: Strategy,
        make_executor: MakeExecutor,
        level: SearchLevel,
        candidate_seconds: float,
        progress: Observe | None = None,
    ) -> None:
        self._parts = [_without_tuning(part, store) for part in parts]
        self._store = store
        self._start = time.monotonic()
        self._budget = budget
        self._end = self._start + budget.left
        self._strategy = strategy
        self._make_executor = make_executor
        self._level = level
        self._candidate_seconds = candidate_seconds
        self._progress = progress or _say_nothing
        self._reports: dict[TaskKey, TaskReport] = {}
        self._plan: dict[TaskKey, Subject | TaskReport] = {}
        self._found: list[Entry] = []
        self._before: dict[Meaning, str] = {}
        self._compiled: list[CompiledGraph] = []
        self._is_outdated = True
        self._facts: dict[str, Any] = {}
        self._phases: dict[str, float] = {}
        ctx = parts[0].imported.ctx
        self._memory = ctx.target.memory if ctx.machine is None else None
        if ctx.machine is not None:
            raise OptionError(
                f"{ctx.target.name}:{ctx.machine} is another machine than this one, and schedules are measured where "
                "they are tuned",
                hint=f"tune for target {ctx.target.name!r} on such a machine, and export the store",
            )

    @property
    def compiled(self) -> Sequence[CompiledGraph]:
        """The graphs with the choices, in the order of the parts, after `run`."""
        return self._compiled

    def run(self) -> TuneReport:
        """Everything."""
        is_interrupted = False
        try:
            self._tune()
        except KeyboardInterrupt:
            is_interrupted = True
            for key, each in self._plan.items():
                if isinstance(each, Subject):
                    self._reports.setdefault(key, each.report(note=_INTERRUPTED))
            self._save()
            self._compile()
        return TuneReport(
            self._compiled[0],
            tuple(self._reports[key] for key in self._plan),
            str(self._store.path),
            time.monotonic() - self._start,
            is_interrupted=is_interrupted,
            budget=self._budget.left,
            roofline=roofline_of(self._parts[0].imported.ctx),
            phases=self._phases,
            **self._facts,
        )

    def _tune(self) -> None:
        with self._phase("plan"):
            known = self._store.choices()
            contexts = [self._untuned(part) for part in self._parts]
            graphs = [(part.imported.graph, ctx) for part, ctx in zip(self._parts, contexts, strict=True)]
            for key, steps in tasks_of(graphs).items():
                self._plan[key] = subject_of(steps[0], len(steps), contexts[0], self._level, known, self._start)
        subjects = [each for each in self._plan.values() if isinstance(each, Subject)]
        self._reports = {key: each for key, each in self._plan.items() if isinstance(each, TaskReport)}
        spent = self._spent(subjects) if subjects else 0.0
        if not subjects or self._budget.seconds <= spent:
            note = _SPENT.format(spent)
            for each in subjects:
                self._reports[each.task.key] = each.report(each.known, "" if each.known else note, is_stored=True)
            self._compile()
            return
        ctx = self._parts[0].imported.ctx
        with self._make_executor(settings_of(ctx, threads_of(ctx)), self._candidate_seconds) as executor:
            executor.announce(list(map(default_trial, by_expected_time(subjects))))
            with self._phase("compile"):
                self._compile()
            if time.monotonic() >= self._end:
                self._reports |= {each.task.key: each.report(note=_NO_TIME) for each in subjects}
                return
            calls = [self._call_of(part, compiled) for part, compiled in zip(self._parts, self._compiled, strict=True)]
            once = seconds_of([call for call in calls if call is not None], self._memory)
            judging = 2 * (_MODEL_ROUNDS * max(_MODEL_TURN, once) + once)
            left = max(self._end - time.monotonic(), 0.0)
            reserved = min(1.3 * self._phases["compile"] + judging, _MOST_RESERVED * left)
            self._search(subjects, executor, self._end - reserved)
            self._note_spent(subjects)
            self._facts["device"] = executor.device
        if self._is_outdated:
            with self._phase("compile again"):
                self._compile()
            with self._phase("compare"):
                self._judge(calls, once)

    def _spent(self, subjects: Sequence[Subject]) -> float:
        """Seconds of the largest budget that has left these tasks; 0.0 where there was none, or nobody knows."""
        with suppress(CacheError):
            return Spent(self._store.path).budget((each.meaning for each in subjects), self._level)
        return 0.0

    def _note_spent(self, subjects: Sequence[Subject]) -> None:
        """Keep which tasks the budget has left."""
        finished = {each.meaning for each in self._found if each.finished >= self._level}
        with suppress(CacheError):  # the choices count, and whether they could be kept is told
            left = [each.meaning for each in subjects if each.meaning not in finished]
            Spent(self._store.path).note(left, self._level, self._budget.seconds)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add up what a part of the work takes."""
        start = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.monotonic() - start

    def _untuned(self, part: Part) -> CompileContext:
        """The compilation without what the store has."""
        ctx = part.imported.ctx
        return replace(ctx, options=ctx.options.updated({"tune.store": OFF}))

    def _compile(self) -> None:
        """Compile the graphs with what the store has, unless they are."""
        if self._is_outdated:
            parts = [part.imported for part in self._parts]
            self._compiled = [compile_graph(part.graph, part.ctx, part.signature) for part in parts]
            self._is_outdated = False

    def _search(self, subjects: Sequence[Subject], executor: Executor, end: float) -> None:
        """Measure tasks, those first that the model spends most time in."""
        with self._phase("defaults"):
            left = self._measure_defaults(subjects, executor, end)
        with self._phase("search"):
            self._search_each(left, executor, end)

    def _search_each(self, left: Sequence[Subject], executor: Executor, end: float) -> None:
        """Search tasks whose defaults are measured, one after the other."""
        total = sum(subject.share for subject in left)
        for number, subject in enumerate(left):
            rest = sum(other.share for other in left[number:])
            now = time.monotonic()
            if now >= end:
                self._reports[subject.task.key] = subject.report(note=_NO_TIME)
                continue
            # Less than for a few candidates would be lost.
            part = max((end - now) * subject.share / rest, _FEWEST * subject.trial_seconds)
            progress = Progress(number + 1, len(left), subject.report(), subject.share / total, self._end)
            tell = partial(self._tell, subject, progress)
            # The last comparison of the winner, on other inputs and for more rounds, has to be over by then.
            until = min(now + part, end) - _LAST_COMPARISON * subject.trial_seconds
            following = left[number + 1 : number + 1 + _TASKS_AHEAD] if executor.compiles_ahead else []
            ahead = [trial for other in following for trial in first_trials(other, _TRIALS_AHEAD)]
            search = TaskSearch(subject, executor, until, self._level, tell, ahead)
            try:
                self._keep(subject, search.run(self._strategy, History(self._store.path)))
            except KeyboardInterrupt:
                # What was measured so far is not lost. Who cannot wait a moment presses again.
                self._keep(subject, search.entry())
                raise
            self._progress(replace(progress, task=self._reports[subject.task.key], is_done=True))

    def _measure_defaults(self, subjects: Sequence[Subject], executor: Executor, end: float) -> list[Subject]:
        """Learn how long tasks take by default, those first that seem to take long, for a part of the time. Returns
        those for which that is known, the largest shares of the model first; the others have reports."""
        order = by_expected_time(subjects)
        ahead = [default_trial(subject) for subject in order]
        if order and time.monotonic() < end:
            executor.announce(ahead)
        until = end
        for number, subject in enumerate(order):
            took = self._measure_default(subject, executor, until)
            if number == 0:
                # The process that measures has begun by now, which may take as long as a small budget.
                now = time.monotonic()
                until = now + _LEARNING * (end - now)
                subject.trial_seconds = took or subject.trial_seconds
            if executor.compiles_ahead and subject.seconds:
                ahead += first_trials(subject, _TRIALS_AHEAD)
                executor.announce(ahead[number + 1 :])
        return sorted((subject for subject in order if subject.seconds), key=lambda subject: -subject.share)

    def _tell(self, subject: Subject, progress: Progress) -> None:
        """How far the search of a task is."""
        tried = len({trial.params for trial in subject.trials})
        points = len(subject.candidates)
        task = replace(subject.report(), default_seconds=subject.seconds, tried=tried, points=points)
        self._progress(replace(progress, task=task))

    def _measure_default(self, subject: Subject, executor: Executor, end: float) -> float:
        """Learn how long a task takes with its default; a report where that cannot be. Seconds that the trial took
        where it ran; 0.0 where that is not known."""
        now, note, took = time.monotonic(), _NO_TIME, 0.0
        if now < end:
            try:
                outcome = executor.run(default_trial(subject), end - now)
                subject.seconds = statistics.median(outcome.default_seconds) if not outcome.failure else 0.0
                subject.trial_seconds, took = time.monotonic() - now, outcome.took
                note = f"its default program cannot be measured: {outcome.failure}"
            except TimeoutError:
                note = _NO_TIME
        if not subject.seconds:
            self._reports[subject.task.key] = subject.report(note=note)
        return took

    def _keep(self, subject: Subject, entry: Entry | None) -> None:
        """Keep what a search has found; None for one that had no time."""
        if entry is None:
            self._reports[subject.task.key] = subject.report(note=_NO_TIME)
            return
        self._before[entry.meaning] = subject.before
        self._is_outdated |= entry.params != subject.before
        self._found.append(entry)
        self._reports[subject.task.key] = subject.report(entry)
        self._save()

    def _save(self) -> None:
        """Keep all that was found, which somebody may have lost since: a file that is damaged is begun anew."""
        error = self._store.put_or_hold(self._found) if self._found else None
        if error is not None and "unsaved" not in self._facts:
            self._facts["unsaved"] = error.message
            message = f"{error.message}; what tuning finds holds in this process alone until it can be"
            warnings.warn(CacheWarning(message, hint=error.hint), stacklevel=2)
        elif error is None:
            self._facts.pop("unsaved", None)

    def _judge(self, before: Sequence[GraphCall | None], once: float) -> None:
        """Measure the whole model. Where it has not become faster, the store has the parameters of before instead.

        before: calls of the graphs as they were; once: seconds of all of them.
        """
        after = [self._call_of(part, compiled) for part, compiled in zip(self._parts, self._compiled, strict=True)]
        pairs = [(old, new) for old, new in zip(before, after, strict=True) if old is not None and new is not None]
        if not pairs:
            return
        runs: dict[str, Callable[[], object]] = {
            "before": partial(seconds_of, [old for old, _ in pairs], self._memory),
            "after": partial(seconds_of, [new for _, new in pairs], self._memory),
        }
        left = max(self._end - time.monotonic(), 0.0)
        rounds = min(_MODEL_ROUNDS, max(3, int(left / max(2 * once, 1e-9))))
        turn = min(_MODEL_TURN, left / (4 * rounds))
        backwards = dict(reversed(runs.items()))
        turns = [
            measure_alternately(runs if number % 2 == 0 else backwards, turn, 1, pause=0.01, time_turn=_turn_of)
            for number in range(rounds)
        ]
        old, new = ([each[name].median for each in turns] for name in runs)
        is_dropped = not is_faster([after / before for before, after in zip(old, new, strict=True)], least=0.0)
        self._facts |= {
            "default_seconds": statistics.median(old),
            "tuned_seconds": statistics.median(new),
            "is_dropped": is_dropped,
        }
        if is_dropped:
            self._is_outdated = True
            self._found = [
                replace(each, params=self._before[each.meaning], seconds=each.default_seconds) for each in self._found
            ]
            self._save()
            self._compile()

    def _call_of(self, part: Part, compiled: CompiledGraph) -> GraphCall | None:
        """A call of a graph; None for one that cannot be called by itself, because its sizes are open, or steps of it
        run in a framework."""
        try:
            return graph_call(compiled, part.inputs, self._memory)
        except Exception as error:  # noqa: BLE001  # whatever keeps a graph from being called by itself
            self._facts["unmeasured"] = error.message if isinstance(error, HidetError) else f"{error}"
            return None


def _turn_of(run: Callable[[], Any], seconds: float) -> list[float]:
    """What calls that say how long they took have said, one at least. The first of a turn counts for nothing."""
    run()
    found: list[float] = [run()]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found.append(run())
    return found


def by_expected_time(subjects: Sequence[Subject]) -> list[Subject]:
    """Those first that the model is expected to spend most time in."""
    return sorted(subjects, key=lambda subject: -subject.expected)


def _say_nothing(progress: Progress) -> None:
    return None


def _without_tuning(part: Part, store: Store) -> Part:
    """The part, compiled at once where it is compiled, with the choices of a store."""
    ctx = part.imported.ctx
    options = replace(ctx.options, tune=None, search_space=0).updated({"tune.store": str(store.path)})
    ctx = replace(ctx, options=options)
    return replace(part, imported=replace(part.imported, ctx=ctx))
