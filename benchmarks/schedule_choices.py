"""Compare what rules choose by themselves with the best point of their spaces, over sizes that nobody tuned to.

    python benchmarks/schedule_choices.py                                  100 cases on this CPU, one thread
    python benchmarks/schedule_choices.py --op product --count 30 --seed 7
    python benchmarks/schedule_choices.py --target cuda --count 200 --most 8 --seconds-per-point 0.02 --workers 16

Cases are drawn by the seed. Programs are compiled by other processes, into the kernel cache, while one measures. All
points of a case are timed in turns, the shortest call counts, and the fastest few are timed once more beside the
default, so that the best of many is not the luckiest, and again where the default does not come close. On a GPU calls
are replays of a CUDA graph with inputs that take turns, so that those of a call lie in no cache.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
from rich.console import Console
from rich.table import Table

from benchmarks.choice_cases import LIMITS, OPS, STREAMING, Case, draw_cases
from benchmarks.choice_points import compile_points, memory_of, points_of, reference_of, timers_of
from benchmarks.environment import describe_environment
from benchmarks.options import names_from, report_console
from benchmarks.results import geometric_mean
from hidet.context import CompileContext, make_context
from hidet.errors import HidetError
from hidet.schedule.device_constants import known_constants, measure_constants

CLOSE = 1.05
"""Times the best one's that a default may take to count as good."""
_ROUNDS = 5
_FINALISTS = 3
_REPEATS = 3
_WORST = 10
_RATIOS = ("ratio", "ranked_ratio", "published_ratio")
_SAVED_ROWS = 10
"""After so many more, what is known is written: a run over hours may be cut."""


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """What was measured for a case. Seconds of a call; predictions by the cost model are None where a rule has none.

    default, best, ranked: of the default, of the fastest point, and of the one that the model ranks first.
    ranked_by_published: of the one that it ranks first by the constants that are published, measured or not. tried:
    each point with its seconds, None for a wrong result, and what was predicted. wrong, failed: points with wrong
    results, and those that could not be built, with the reasons.
    """

    case: str
    op: str
    rule: str
    points: int
    default_params: str
    best_params: str
    default: float
    best: float
    ranked: float | None
    predicted_default: float | None
    predicted_best: float | None
    ranked_by_published: float | None = None
    tried: tuple[tuple[str, float | None, float | None], ...] = ()
    wrong: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """How much longer the default takes than the best point."""
        return self.default / self.best

    @property
    def ranked_ratio(self) -> float | None:
        """How much longer the point takes that the model ranks first."""
        return None if self.ranked is None else self.ranked / self.best

    @property
    def published_ratio(self) -> float | None:
        """How much longer the point takes that the model ranks first by published constants."""
        return None if self.ranked_by_published is None else self.ranked_by_published / self.best

    @property
    def predicted_ratio(self) -> float | None:
        """What the model expects of the default, over what it expects of the best point."""
        if self.predicted_default is None or not self.predicted_best:
            return None
        return self.predicted_default / self.predicted_best


@dataclass(frozen=True, slots=True)
class Summary:
    """Of some rows. mean: geometric mean of ratios to the best point. close: the share of them within `CLOSE`."""

    rows: int
    mean: float
    close: float


def summary(ratios: Sequence[float]) -> Summary:
    """Of ratios to the best point; of none, NaN."""
    if not ratios:
        return Summary(0, float("nan"), float("nan"))
    return Summary(len(ratios), geometric_mean(list(ratios)), sum(ratio <= CLOSE for ratio in ratios) / len(ratios))


def summaries(rows: Sequence[ChoiceRow]) -> list[Summary]:
    """Of each of `_RATIOS`."""
    columns = ([getattr(row, name) for row in rows] for name in _RATIOS)
    return [summary([ratio for ratio in column if ratio is not None]) for column in columns]


def worst(rows: Sequence[ChoiceRow], count: int = _WORST) -> list[ChoiceRow]:
    """Those whose default is the worst."""
    return sorted(rows, key=lambda row: row.ratio, reverse=True)[:count]


def differing(default: str, best: str) -> tuple[str, str]:
    """The knobs of two points that have other values, in words."""
    pairs = [(a, b) for a, b in zip(default.split("; "), best.split("; "), strict=False) if a != b]
    return "; ".join(a for a, _ in pairs), "; ".join(b for _, b in pairs)


def row_of(
    case: Case,
    rule: str,
    params: Sequence[str],
    predictions: Sequence[float | None],
    seconds: Sequence[float | None],
    wrong: Sequence[str] = (),
    failed: Sequence[str] = (),
    by_published: Sequence[float | None] = (),
) -> ChoiceRow:
    """What measured points say, the default first. seconds: None for those that are not right. by_published:
    predictions by published constants."""
    default = seconds[0]
    if default is None:
        raise click.ClickException(f"{case}: the default of {rule} computes something else: {wrong[0]}")
    known = [place for place, each in enumerate(seconds) if each is not None]
    best = min(known, key=lambda place: seconds[place] or 0.0)
    ranked, published = (_least(each, known) for each in (predictions, by_published))
    return ChoiceRow(
        case=str(case),
        op=case.op,
        rule=rule,
        points=len(known),
        default_params=params[0],
        best_params=params[best],
        default=default,
        best=seconds[best] or default,
        ranked=None if ranked is None else seconds[ranked],
        ranked_by_published=None if published is None else seconds[published],
        predicted_default=predictions[0],
        predicted_best=predictions[best],
        tried=tuple(zip(params, seconds, predictions, strict=True)),
        wrong=tuple(wrong),
        failed=tuple(failed),
    )


def _least(predictions: Sequence[float | None], places: Sequence[int]) -> int | None:
    """Which of some points is the fastest by a model; None without one."""
    modelled = [place for place in places if predictions and predictions[place] is not None]
    return min(modelled, key=lambda place: predictions[place] or 0.0) if modelled else None


def measure_case(case: Case, ctx: CompileContext, most: int | None, seconds: float) -> ChoiceRow:
    """Check and time the points of a case. seconds: for each point."""
    made = compile_points(points_of(case, ctx, most), ctx)
    memory, reference = memory_of(made, case, ctx), reference_of(case, ctx.target.device)
    timers = timers_of(made, memory, ctx)
    wrong: list[str] = []
    right: list[int] = []
    for place, timer in enumerate(timers):
        verdict = reference.check(timer.result())
        if verdict.correct:
            right.append(place)
        else:
            wrong.append(f"{made.points[place].knobs}: {verdict}")
    best: list[float | None] = [None] * len(timers)
    predictions = [point.predicted for point in made.points]
    by_published = [point.by_published for point in made.points]
    params = [point.knobs for point in made.points]
    if 0 not in right:
        # Nothing can be held against a wrong default, as this says.
        return row_of(case, made.rule, params, predictions, best, wrong)

    def time_in_turns(places: Sequence[int], each: float) -> dict[int, float]:
        """Seconds by place. What is the same program is timed once."""
        found = {timers[place]: float("inf") for place in places}
        for number in range(_ROUNDS):
            for timer in found if number % 2 == 0 else reversed(found):
                found[timer] = min(found[timer], timer.seconds(each / _ROUNDS))
        return {place: found[timers[place]] for place in places}

    first = time_in_turns(right, seconds)
    finalists = sorted(right, key=lambda place: first[place])[:_FINALISTS]
    ranked = (_least(each, right) for each in (predictions, by_published))
    again = {*finalists, *right[:1], *(place for place in ranked if place is not None)}
    final = time_in_turns(sorted(again), 3 * seconds)
    for _ in range(_REPEATS):
        if 0 not in final or final[0] <= CLOSE * min(final.values()):
            break
        # Whatever else the machine does makes rows worse, never better: a bad one is looked at again.
        more = time_in_turns(sorted(again), 3 * seconds)
        final = {place: min(final[place], more[place]) for place in final}
    fastest = min(final.values())
    for place in right:
        # The rest were slower than the finalists, which the second look has shown to take this at least.
        best[place] = final.get(place, max(first[place], fastest))
    return row_of(case, made.rule, params, predictions, best, wrong, made.failed, by_published)


def compile_case(case: Case, target: str, options: dict[str, Any], most: int | None) -> int:
    """Fill the kernel cache with a case's programs, in a process of its own; how many there are."""
    ctx = make_context(target, options)
    return len(compile_points(points_of(case, ctx, most), ctx).points)


def compiled_cases(
    cases: Sequence[Case], target: str, options: dict[str, Any], most: int | None, workers: int
) -> Iterator[Case]:
    """The cases in order, each once its programs are in the kernel cache."""
    if workers == 0:
        yield from cases
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting: list[Future[int]] = [pool.submit(compile_case, case, target, options, most) for case in cases]
        for case, future in zip(cases, waiting, strict=True):
            wait([future])  # what it raised is raised again where the case is measured
            yield case


def print_rows(console: Console, rows: Sequence[ChoiceRow]) -> None:
    """The worst rows, and a summary for each operator and for all."""
    table = Table("case", "default", "best", "us", "best us", "ratio", "predicted", title="worst defaults")
    for row in worst(rows):
        predicted = "-" if row.predicted_ratio is None else f"{row.predicted_ratio:.2f}"
        micro = [f"{seconds * 1e6:.1f}" for seconds in (row.default, row.best)]
        table.add_row(row.case, *differing(row.default_params, row.best_params), *micro, f"{row.ratio:.2f}", predicted)
    console.print(table)
    ratios = ("default / best", "ranked first / best", "by published constants / best")
    shares = Table("operator", "cases", "points", *(name for ratio in ratios for name in (ratio, "within 5 %")))
    for op in (*dict.fromkeys(row.op for row in rows), "all"):
        some = [row for row in rows if op in (row.op, "all")]
        cells = [(f"{each.mean:.3f}", f"{each.close:.0%}") if each.rows else ("-", "-") for each in summaries(some)]
        shares.add_row(
            op, str(len(some)), str(sum(row.points for row in some)), *(text for pair in cells for text in pair)
        )
    console.print(shares)
    for row in rows:
        for reason in row.wrong:
            console.print(f"{row.case}: WRONG {reason}", style="bold red", markup=False)


@click.command()
@click.option("--target", type=click.Choice(sorted(LIMITS)), default="cpu", show_default=True)
@click.option("--op", "ops", callback=names_from((*OPS, *STREAMING)), default=",".join(OPS), help="Of them.")
@click.option("--count", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True)
@click.option("--skip", default=0, type=click.IntRange(min=0), help="Cases passed over, where a run goes on.")
@click.option("--most", type=click.IntRange(min=1), help="Points besides the default, best predicted first; else all.")
@click.option("--seconds-per-point", default=0.05, show_default=True, help="That a point is timed for.")
@click.option("--threads", default=1, show_default=True, help="Of a CPU.")
@click.option("--workers", default=1, show_default=True, help="Processes that compile; 0 compiles where it measures.")
@click.option("--measure", is_flag=True, help="Measure the device's constants first, instead of using what is known.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(
    target: str,
    ops: tuple[str, ...],
    count: int,
    seed: int,
    skip: int,
    most: int | None,
    seconds_per_point: float,
    threads: int,
    workers: int,
    measure: bool,
    json_path: Path | None,
) -> None:
    """Compare what rules choose by themselves with the best point of their spaces."""
    console, environment = report_console(), describe_environment()
    options = {"threads": threads}
    ctx = make_context(target, options)
    constants = measure_constants(ctx) if measure else known_constants(ctx)
    kind = "no" if constants is None else "measured" if constants.is_measured else "published"
    device = environment["device"]["gpu" if target == "cuda" else "cpu"]
    console.print(f"{device}, {environment['date']}, {kind} constants")
    cases, rows, start = draw_cases(seed, count, ops, target)[skip:], [], time.monotonic()
    broken: list[str] = []
    drawn = {"target": target, "ops": ops, "count": count, "seed": seed, "skip": skip}
    arguments = {**drawn, "most": most, "threads": threads}

    def save() -> None:
        if json_path is None:
            return
        found = {
            **environment,
            "arguments": arguments,
            "constants": None if constants is None else asdict(constants),
            "broken": broken,
            "rows": [{**asdict(row), **{name: getattr(row, name) for name in _RATIOS}} for row in rows],
            **{
                name: asdict(each)
                for name, each in zip(("default", "ranked", "published"), summaries(rows), strict=True)
            },
        }
        json_path.write_text(json.dumps(found, indent=2), encoding="utf-8")

    for case in compiled_cases(cases, target, options, most, workers):
        try:
            row = measure_case(case, ctx, most, seconds_per_point)
        except (HidetError, click.ClickException) as error:
            # The rest is still worth knowing.
            broken.append(f"{case}: {error.message}")
            console.print(broken[-1], style="bold red", markup=False)
            continue
        rows.append(row)
        elapsed = time.monotonic() - start
        shown = f"{len(rows):4}/{len(cases)} {elapsed:6.1f} s  {row.ratio:5.2f}  {row.points:4} points  {row.case}"
        console.print(shown, markup=False, highlight=False)
        if len(rows) % _SAVED_ROWS == 0:
            save()
    print_rows(console, rows)
    save()
    if broken or any(row.wrong for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    # What other processes compile is found in a cache, of which nothing else is thrown out.
    os.environ.setdefault("HIDET_CACHE_DIR", str(Path.home() / ".cache" / "hidet-benchmarks"))
    main()
