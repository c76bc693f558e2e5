"""Tasks of graphs as what can be tuned: their default programs, and the points that are worth trying instead."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hidet.compiler.collector import paused_gc
from hidet.compiler.lowering import lower_graph
from hidet.context import CompileContext
from hidet.errors import ScheduleError
from hidet.graph.graph import Graph
from hidet.passes.manager import run_graph_passes
from hidet.plugins.isolation import Failure, attempt
from hidet.report.roofline import work_of
from hidet.schedule.claims import claims
from hidet.schedule.rule import Choice
from hidet.schedule.select import ScheduledTask
from hidet.schedule.shared_programs import build
from hidet.schedule.shortlist import SearchLevel, predicted, shortlist
from hidet.schedule.task import Task, TaskKey
from hidet.tuning.choose import chosen_entry
from hidet.tuning.meaning import Meaning, is_stable, meaning_of
from hidet.tuning.report import TaskReport, TrialReport
from hidet.tuning.store import Entry
from hidet.tuning.strategy import Point, points_of
from hidet.tuning.trial import ProgramText, TaskMemory, memory_of, program_text

SHORTLIST = 32
"""Points that are tried at search level 1, besides the default."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A point of a rule's space. text: the `repr` of its parameters."""

    text: str
    params: Any
    point: Point


@dataclass(slots=True, eq=False)
class Subject:
    """A task that is tuned, in which programs are built when they are asked for.

    choice: its rule with the default parameters. expected: seconds that the model spends in it, as a guess. seconds: of
    a call with the default, 0.0 until that was measured. trial_seconds: what measuring that took, compilation and all.
    refused: why candidates cannot be used, by their texts. start: of the tuning, by `time.monotonic`; trials:
    measurements in order. known: what an earlier tuning has found, as far as it came. before: the parameters that a
    compilation takes before this search, of the nearest sizes where these were not measured.
    """

    task: Task
    uses: int
    choice: Choice[Any, Any]
    ctx: CompileContext
    meaning: Meaning
    memory: TaskMemory
    default: ProgramText
    candidates: list[Candidate]
    known: Entry | None = None
    before: str = ""
    expected: float = 0.0
    trial_seconds: float = 0.0
    start: float = 0.0
    seconds: float = 0.0
    trials: list[TrialReport] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    _programs: dict[int, ProgramText | None] = field(default_factory=dict)

    @property
    def default_params(self) -> str:
        """The `repr` of the default parameters."""
        return repr(self.choice.params)

    @property
    def share(self) -> float:
        """Seconds of a call of the model that pass in the task."""
        return self.uses * self.seconds

    def program(self, place: int) -> ProgramText | None:
        """The program of a candidate; None where there is none of its own, with the reason in `refused`."""
        if place not in self._programs:
            self._programs[place] = self._build(self.candidates[place])
        return self._programs[place]

    def _build(self, candidate: Candidate) -> ProgramText | None:
        built = attempt(partial(build, replace(self.choice, params=candidate.params), self.ctx))
        if isinstance(built, Failure):
            error = built.error
            reason = error.message if isinstance(error, ScheduleError) else f"build raised {built}"
            self.refused[candidate.text] = reason
            return None
        program = program_text(built.program)
        taken = {self.default.digest, *(each.digest for each in self._programs.values() if each is not None)}
        if program is None or program.digest in taken:
            self.refused[candidate.text] = "the same program as by other parameters"
            return None
        return program

    def note_trial(self, candidate: Candidate, ratio: float | None, failure: str) -> None:
        """Keep a measurement for the report."""
        at = time.monotonic() - self.start
        self.trials.append(TrialReport(candidate.text, at, ratio, failure, candidate.point.predicted))

    def report(self, entry: Entry | None = None, note: str = "", **more: Any) -> TaskReport:
        """What became of it. entry: what was found; note: why nothing was."""
        refused = tuple(f"{params}: {why}" for params, why in self.refused.items())
        work = work_of(self.task)
        found = TaskReport(
            self.task.summary,
            self.uses,
            self.choice.rule_name,
            refused=refused,
            note=note,
            flops=work.flops,
            nbytes=work.nbytes,
            trials=tuple(self.trials),
        )
        return found if entry is None else replace(found, **facts_of(entry), **more)


def facts_of(entry: Entry) -> dict[str, Any]:
    """What the report of a task takes from an entry of the store."""
    names = ("default_params", "params", "default_seconds", "seconds", "tried", "points")
    return {name: getattr(entry, name) for name in names}


def tasks_of(graphs: Iterable[tuple[Graph, CompileContext]]) -> dict[TaskKey, list[ScheduledTask]]:
    """The tasks of graphs in order, with all their uses."""
    found: dict[TaskKey, list[ScheduledTask]] = {}
    for graph, ctx in graphs:
        with paused_gc():
            lowered = lower_graph(run_graph_passes(graph, ctx), graph, ctx)
        for scheduled in lowered.main:
            for step in scheduled.steps:
                if isinstance(step, ScheduledTask):
                    found.setdefault(step.task.key, []).append(step)
    return found


def subject_of(
    step: ScheduledTask,
    uses: int,
    ctx: CompileContext,
    level: SearchLevel,
    known: Mapping[Meaning, Entry],
    start: float,
) -> Subject | TaskReport:
    """What to tune of a task; a report where there is nothing to measure.

    ctx: a compilation that takes nothing from the store. level: how much of the space is tried. known: the store.
    start: of the tuning, by `time.monotonic`.
    """
    task = step.task
    skipped = partial(TaskReport, task.summary, uses, step.rule_name)
    asked = (claim for claim in claims(task, ctx, []) if claim.spec.name == step.rule_name)
    (claim,) = itertools.islice(asked, 1)
    default = claim.rule.default(claim.match, ctx)
    choice = Choice(claim.spec.name, claim.rule, claim.match, default, claim.spec.is_foreign)
    found = attempt(partial(_candidates, choice, ctx, level))
    if isinstance(found, Failure):
        return skipped(note=f"its rule cannot say what may be chosen: {found}")
    if not found:
        return skipped(note="its rule offers nothing to choose")
    meaning, memory = meaning_of(task, step.rule_name, ctx), memory_of(task)
    program = program_text(build(choice, ctx).program)
    if meaning is None or memory is None or program is None:
        return skipped(note="its sizes are known at run time alone")
    subject = Subject(task, uses, choice, ctx, meaning, memory, program, found, start=start)
    subject.expected = uses * _guessed_seconds(choice, ctx)
    texts = (subject.default_params, *(candidate.text for candidate in found))
    entry = chosen_entry(meaning, known, ctx)
    subject.before = subject.default_params if entry is None or entry.params not in texts else entry.params
    if entry is None or entry.meaning != meaning or entry.params not in texts:
        return subject
    if entry.finished >= level:
        return subject.report(entry, is_stored=True)
    subject.known = entry
    return subject


def _guessed_seconds(choice: Choice[Any, Any], ctx: CompileContext) -> float:
    """Seconds of a call with the default, by the rule's cost model, else by its work: good enough to say which tasks of
    a model come first."""
    guess = attempt(partial(predicted, choice.rule, choice.match, choice.params, ctx))
    if isinstance(guess, float):
        return guess
    work = work_of(choice.match.task)
    return max(work.flops / _SOME_FLOPS, work.nbytes / _SOME_BANDWIDTH)


_SOME_FLOPS, _SOME_BANDWIDTH = 5e10, 1e10


def _candidates(choice: Choice[Any, Any], ctx: CompileContext, level: SearchLevel) -> list[Candidate]:
    """The points to try besides the default, in the order of the space."""
    rule, match = choice.rule, choice.match
    chosen = {repr(params) for params in shortlist(rule, match, ctx, SHORTLIST, level=level)} - {repr(choice.params)}
    return [
        Candidate(repr(params), params, point)
        for params, point in points_of(rule, match, ctx)
        if repr(params) in chosen and is_stable(repr(params))
    ]
