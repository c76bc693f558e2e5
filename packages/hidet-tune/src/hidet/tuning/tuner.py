"""`tune`: spend a budget where a model's time goes, and keep what is faster.

Each task whose rule has a space is measured in a process of its own, on random inputs that stay in the caches, in turns
with the default. What wins is measured again, and the whole model last.
"""

from __future__ import annotations

import itertools
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from hidet.cli.inputs import random_array
from hidet.cli.timing import measure_alternately, time_calls
from hidet.compiler.graphs import ImportedModel, compile_graph, import_model, paused_gc
from hidet.compiler.lowering import lower_graph
from hidet.context import CompileContext, Options, options_from
from hidet.dims import Dim
from hidet.errors import OptionError, ScheduleError
from hidet.passes.manager import run_graph_passes
from hidet.plugins.isolation import Failure, attempt
from hidet.runtime.compiled import CompiledGraph
from hidet.schedule.claims import claims
from hidet.schedule.rule import Choice
from hidet.schedule.select import ScheduledTask
from hidet.schedule.shared_programs import build
from hidet.schedule.task import Task, TaskKey
from hidet.tuning.executor import Executor, MakeExecutor, executor_named
from hidet.tuning.meaning import Meaning, is_stable, meaning_of, threads_of
from hidet.tuning.report import TaskReport, TuneReport
from hidet.tuning.store import OFF, Entry, Store, store_path
from hidet.tuning.strategy import Measurement, Point, Problem, Strategy, points_of, sizes_of, strategy_named
from hidet.tuning.strategy_history import History
from hidet.tuning.trial import Outcome, ProgramText, TaskMemory, Trial, memory_of, program_text, settings_of

LEAST_GAIN = 0.02
"""A change has to be worth this much, however quiet the machine is."""

_FINAL_ROUNDS = 15
_MODEL_SHARE = 0.2
"""Of the budget, for compiling the model twice and measuring it."""
_MODEL_ROUNDS = 7
_MODEL_TURN = 0.05
"""Seconds of calls in a turn of the model, at least one call."""
_NO_TIME = "the budget was spent before it was measured"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def tune(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    budget: str | float = "60s",
    *,
    target: str = "cpu",
    options: Options | Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    values: Mapping[str, Any] | None = None,
    store: str = "",
    strategy: Strategy | str = "halving",
    executor: MakeExecutor | str = "local",
    candidate_seconds: float = 10.0,
    progress: Callable[[str], None] | None = None,
) -> TuneReport:
    """Measure parameters of a model's schedules and keep the faster ones, which later compilations then take.

    model, example_inputs, options, shapes, values: as `hidet.compile` takes them; the model is measured on the example
    inputs, random ones where there are none. Choices are for these sizes, this machine and this number of threads.
    budget: seconds, or "90s", "2m". What an earlier call has measured is taken from the store and not measured again.
    store: its file; "" is the option tune.store, HIDET_TUNE_STORE, or a file beside the kernel cache.
    strategy: how points are searched: a name (`hidet plugins -v` lists them), or a strategy itself.
    executor: where programs are compiled and measured: a name, or a function that makes an executor.
    candidate_seconds: what a trial may take before it counts as one that never ends.
    progress: called with a line of text for each task.
    Ctrl-C ends the search: what was found is kept, and the model is compiled with it.
    OptionError for a budget that cannot be read, and for targets other than this CPU.
    """
    start = time.monotonic()
    seconds = parse_budget(budget)
    if isinstance(model, CompiledGraph):
        raise OptionError(
            "a compiled graph does not hold the graph that it was made from, so it cannot be tuned",
            hint="give hidet.tune what was given to hidet.compile",
        )
    chosen = options_from(options)
    path = store_path(store or chosen.plugin_options.get("tune.store", ""))
    if path is None:
        raise OptionError('tuning needs a store, and tune.store is "off"', hint="leave it out, or name a file")
    imported = import_model(
        model,
        example_inputs,
        target=target,
        options=chosen.updated({"tune.store": str(path)}),
        shapes=shapes,
        values=values,
    )
    if imported.ctx.target.memory is not None or imported.ctx.machine is not None:
        raise OptionError(f"target {target!r} cannot be tuned yet: programs are measured on this CPU alone")
    session = _Session(
        imported,
        Store(path),
        start + seconds,
        strategy_named(strategy, imported.ctx.registry) if isinstance(strategy, str) else strategy,
        executor_named(executor, imported.ctx.registry) if isinstance(executor, str) else executor,
        candidate_seconds,
        progress or _say_nothing,
    )
    return session.run(start, seconds, example_inputs)


def parse_budget(budget: str | float) -> float:
    """Seconds, from a number or from text such as "90s" or "2m"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", str(budget))
    if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
        raise OptionError(f'the budget is {budget!r}, expected seconds, or text such as "90s" or "2m"')
    return float(found[1]) * _UNITS[found[2]]


def _say_nothing(line: str) -> None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """Parameters and their program, and what strategies see of them."""

    params: str
    program: ProgramText
    point: Point = field(default_factory=Point)


@dataclass(slots=True, eq=False)
class _Subject:
    """A task that is tuned. best: parameters that an earlier call has chosen, "" for none; seconds: of a call with the
    default; refused: by point."""

    task: Task
    rule: str
    uses: int
    meaning: Meaning
    memory: TaskMemory
    default: _Point
    points: list[_Point]
    size: int
    best: str = ""
    seconds: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Seconds of a call of the model."""
        return self.uses * self.seconds


@dataclass(frozen=True, slots=True, eq=False)
class _Session:
    """One call of `tune`."""

    imported: ImportedModel
    store: Store
    end: float
    strategy: Strategy
    make_executor: MakeExecutor
    candidate_seconds: float
    progress: Callable[[str], None]

    @property
    def untuned(self) -> CompileContext:
        """The compilation without what the store has."""
        ctx = self.imported.ctx
        return replace(ctx, options=ctx.options.updated({"tune.store": OFF}))

    def run(self, start: float, budget: float, example_inputs: Sequence[Any] | Mapping[str, Any] | None) -> TuneReport:
        """Everything, task by task."""
        known = {entry.meaning: entry for entry in self.store.entries()}
        plan = self._plan(known)
        subjects = [each for each in plan.values() if isinstance(each, _Subject)]
        reports = {key: each for key, each in plan.items() if isinstance(each, TaskReport)}
        is_interrupted = False
        found: list[Entry] = []
        settings = settings_of(self.imported.ctx, threads_of(self.imported.ctx))
        try:
            with self.make_executor(settings, self.candidate_seconds) as executor:
                self._search(subjects, reports, executor, found, self.end - _MODEL_SHARE * budget)
        except KeyboardInterrupt:
            is_interrupted = True
            for subject in subjects:
                reports.setdefault(subject.task.key, _report(subject, note="interrupted before it was measured"))
        compiled = self._compiled(self.imported.ctx)
        report = TuneReport(
            compiled, tuple(reports[key] for key in plan), str(self.store.path), 0.0, is_interrupted=is_interrupted
        )
        if any(entry.params != entry.default_params for entry in found) and not is_interrupted:
            try:
                report = self._judged(report, found, example_inputs)
            except KeyboardInterrupt:
                report = replace(report, is_interrupted=True)
        return replace(report, seconds=time.monotonic() - start)

    def _compiled(self, ctx: CompileContext) -> CompiledGraph:
        return compile_graph(self.imported.graph, ctx, self.imported.signature)

    def _plan(self, known: Mapping[Meaning, Entry]) -> dict[TaskKey, _Subject | TaskReport]:
        """The tasks in order: those to measure, and reports of all others."""
        ctx, graph = self.untuned, self.imported.graph
        with paused_gc():
            lowered = lower_graph(run_graph_passes(graph, ctx), graph, ctx)
        steps: dict[TaskKey, list[ScheduledTask]] = {}
        for scheduled in lowered.main:
            for step in scheduled.steps:
                if isinstance(step, ScheduledTask):
                    steps.setdefault(step.task.key, []).append(step)
        return {key: self._subject(uses[0], len(uses), known) for key, uses in steps.items()}

    def _subject(self, step: ScheduledTask, uses: int, known: Mapping[Meaning, Entry]) -> _Subject | TaskReport:
        ctx, task = self.untuned, step.task
        skipped = partial(TaskReport, task.summary, uses, step.rule_name)
        asked = (claim for claim in claims(task, ctx, []) if claim.spec.name == step.rule_name)
        (claim,) = itertools.islice(asked, 1)
        choice = Choice(
            claim.spec.name, claim.rule, claim.match, claim.rule.default(claim.match, ctx), claim.spec.is_foreign
        )
        space = {repr(params): (params, point) for params, point in points_of(claim.rule, claim.match, ctx)}
        points = {text: each for text, each in space.items() if text != repr(choice.params) and is_stable(text)}
        if not points:
            return skipped(note="its rule offers nothing to choose")
        meaning, memory = meaning_of(task, step.rule_name, ctx), memory_of(task)
        default = program_text(build(choice, ctx).program)
        if meaning is None or memory is None or default is None:
            return skipped(note="its sizes are known at run time alone")
        entry = known.get(meaning)
        if entry is not None and entry.is_complete and entry.params in (repr(choice.params), *points):
            return skipped(
                default_params=entry.default_params,
                params=entry.params,
                default_seconds=entry.default_seconds,
                seconds=entry.seconds,
                tried=entry.tried,
                points=entry.points,
                is_stored=True,
            )
        subject = _Subject(
            task, step.rule_name, uses, meaning, memory, _Point(repr(choice.params), default), [], len(points)
        )
        subject.best = "" if entry is None else entry.params
        digests = {default.digest}
        for text, (params, point) in points.items():
            built = attempt(partial(build, replace(choice, params=params), ctx))
            if isinstance(built, Failure):
                error = built.error
                subject.refused[text] = error.message if isinstance(error, ScheduleError) else f"build raised {built}"
                continue
            program = program_text(built.program)
            if program is None or program.digest in digests:
                subject.refused[text] = "the same program as by other parameters"
                continue
            digests.add(program.digest)
            subject.points.append(_Point(text, program, point))
        return subject if subject.points else _report(subject, note="no other parameters make another program")

    def _search(
        self,
        subjects: list[_Subject],
        reports: dict[TaskKey, TaskReport],
        executor: Executor,
        found: list[Entry],
        end: float,
    ) -> None:
        """Measure tasks, those first that the model spends most time in. `reports` and `found` receive the results, and
        the store as soon as there is one."""
        for subject in subjects:
            if time.monotonic() >= end:
                reports[subject.task.key] = _report(subject, note=_NO_TIME)
                continue
            outcome = executor.run(Trial(subject.memory, subject.default.program, None, rounds=3))
            if outcome.failure:
                note = f"its default program cannot be measured: {outcome.failure}"
                reports[subject.task.key] = _report(subject, note=note)
            else:
                subject.seconds = statistics.median(outcome.default_seconds)
        left = sorted((s for s in subjects if s.seconds), key=lambda subject: -subject.share)
        for number, subject in enumerate(left):
            rest = sum(other.share for other in left[number:])
            now = time.monotonic()
            if now >= end:
                reports[subject.task.key] = _report(subject, note=_NO_TIME)
                continue
            entry = self._tuned(subject, executor, now + (end - now) * subject.share / rest)
            self.store.put([entry])
            found.append(entry)
            report = _report(subject, entry)
            reports[subject.task.key] = report
            self.progress(f"[{number + 1}/{len(left)}] {report}")

    def _tuned(self, subject: _Subject, executor: Executor, end: float) -> Entry:
        """What is best for a task, as far as time allows."""
        tried: set[int] = set()

        def run(place: int, rounds: int, seed: int) -> Outcome:
            point = subject.points[place]
            trial = Trial(subject.memory, subject.default.program, point.program, rounds, seed)
            outcome = executor.run(trial)
            tried.add(place)
            if outcome.failure:
                subject.refused[point.params] = outcome.failure
            return outcome

        measured: dict[int, float] = {}

        def measure(places: Sequence[int], rounds: int) -> Mapping[int, float]:
            programs = [subject.points[place].program for place in places]
            executor.announce([Trial(subject.memory, subject.default.program, each, rounds) for each in programs])
            timely = itertools.takewhile(lambda _: has_time(), places)
            outcomes = {place: run(place, rounds, seed=0) for place in timely}
            found = {place: statistics.median(ratios(each)) for place, each in outcomes.items() if not each.failure}
            measured.update(found)
            return found

        def has_time() -> bool:
            return time.monotonic() < end

        # What was the best so far comes first, so that a short budget does not lose it.
        first = [place for place, each in enumerate(subject.points) if each.params == subject.best]
        history, sizes = History(self.store.path), sizes_of(subject.task)
        problem = Problem([each.point for each in subject.points], sizes, history.known(subject.meaning), first)
        best = self.strategy.search(problem, measure, has_time)
        history.add(
            subject.meaning,
            (Measurement(sizes, subject.points[place].point.knobs, ratio) for place, ratio in measured.items()),
        )
        chosen, seconds, default_seconds = subject.default.params, subject.seconds, subject.seconds
        if best is not None:
            # On inputs and by rounds that have not chosen it.
            outcome = run(best, _FINAL_ROUNDS, seed=1)
            if not outcome.failure and is_faster(ratios(outcome)):
                chosen = subject.points[best].params
                seconds = statistics.median(outcome.seconds)
                default_seconds = statistics.median(outcome.default_seconds)
        without_trial = subject.size - len(subject.points)
        return Entry(
            subject.meaning,
            subject.task.summary,
            chosen,
            subject.default.params,
            default_seconds,
            seconds,
            len(tried) + without_trial,
            subject.size,
        )

    def _judged(
        self, report: TuneReport, found: list[Entry], example_inputs: Sequence[Any] | Mapping[str, Any] | None
    ) -> TuneReport:
        """The report with the whole model's time. Where it is slower, the store has the default parameters instead."""
        before = self._compiled(self.untuned)
        runs = {
            name: _run_of(compiled, example_inputs)
            for name, compiled in {"before": before, "after": report.compiled}.items()
        }
        for run in runs.values():
            run()
        (once,) = time_calls(runs["before"], 0.0, least_calls=1, warm_calls=0)
        left = max(self.end - time.monotonic(), 0.0)
        rounds = min(_MODEL_ROUNDS, max(3, int(left / (2 * once))))
        turn = min(_MODEL_TURN, left / (4 * rounds))
        time_turn = partial(time_calls, least_calls=1, warm_calls=0)
        latencies = measure_alternately(runs, turn, rounds, pause=0.01, time_turn=time_turn)
        report = replace(report, default_seconds=latencies["before"].median, tuned_seconds=latencies["after"].median)
        if latencies["after"].median <= latencies["before"].median:
            return report
        self.store.put(replace(entry, params=entry.default_params, seconds=entry.default_seconds) for entry in found)
        return replace(report, compiled=self._compiled(self.imported.ctx), is_dropped=True)


def ratios(outcome: Outcome) -> list[float]:
    """The candidate's time over the default's, round by round."""
    return [mine / other for mine, other in zip(outcome.seconds, outcome.default_seconds, strict=True)]


def is_faster(found: Sequence[float]) -> bool:
    """Whether ratios of rounds show a gain of `LEAST_GAIN` at least, and one above their noise."""
    middle = statistics.median(found)
    # The standard error of a median, from the median deviation, which single disturbed rounds do not move.
    deviation = 1.4826 * statistics.median(abs(ratio - middle) for ratio in found)
    error = 1.2533 * deviation / len(found) ** 0.5
    return middle <= 1 - LEAST_GAIN and middle + 3 * error < 1


def _report(subject: _Subject, entry: Entry | None = None, note: str = "") -> TaskReport:
    refused = tuple(f"{params}: {why}" for params, why in subject.refused.items())
    report = TaskReport(subject.task.summary, subject.uses, subject.rule, refused=refused, note=note)
    if entry is None:
        return report
    return replace(
        report,
        default_params=entry.default_params,
        params=entry.params,
        default_seconds=entry.default_seconds,
        seconds=entry.seconds,
        tried=entry.tried,
        points=entry.points,
    )


def _run_of(compiled: CompiledGraph, example_inputs: Sequence[Any] | Mapping[str, Any] | None) -> Callable[[], object]:
    """A call of a model on its example inputs, or on random ones."""
    if isinstance(example_inputs, Mapping):
        return partial(compiled, **example_inputs)
    if example_inputs is not None:
        return partial(compiled, *example_inputs)
    generator = np.random.default_rng(0)
    arrays = []
    for slot in compiled.bundle.program.inputs:
        extents = () if slot.tensor is None else slot.tensor.shape
        shape = [extent for extent in extents if isinstance(extent, int)]
        if slot.tensor is None or len(shape) < len(extents):
            raise OptionError(f"input {slot.name} has no fixed shape", hint="give hidet.tune example_inputs, or shapes")
        arrays.append(random_array(generator, shape, slot.tensor.dtype.numpy()))
    return partial(compiled.call_on_inputs, arrays)
