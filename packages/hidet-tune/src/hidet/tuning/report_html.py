"""What tuning has found as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from hidet.report.charts import apart, tuning_data
from hidet.report.page_style import base_style, chart_scripts, chart_style, script_data
from hidet.report.profile_text import duration
from hidet.report.roofline import Roofline
from hidet.tuning.report import TaskReport, TrialReport, TuneReport

_SERIES = (("by default", "before", "--bad"), ("as chosen", "after", "--after"))


def report_html(report: TuneReport, model: str) -> str:
    """The page. model: what was tuned, for its title."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    page = files("hidet.tuning").joinpath("report_page", "page.html").read_text(encoding="utf-8")
    template = environment.from_string(page)
    places, changes = _places(report), _changes(report.tasks)
    return template.render(
        model=model,
        verdict=_verdict(report),
        facts=_facts(report),
        changes=changes,
        longest=changes[0]["number"] if changes else None,
        has_roofline=bool(places),
        has_roof=report.roofline is not None,
        device=report.device,
        places=[_place_row(place, report.roofline) for place in places],
        tasks=[_task(number, task) for number, task in enumerate(report.tasks, 1)],
        footer="Made by hidet-tune.",
        data=_script_data(report, places),
        style=chart_style() + base_style(),
        scripts=chart_scripts(),
    )


def _script_data(report: TuneReport, places: Sequence[Mapping[str, Any]]) -> str:
    """Numbers for the charts."""
    roofline = None if report.roofline is None else asdict(report.roofline)
    return script_data({"tasks": tuning_data(report.tasks), "places": places, "roofline": roofline, "series": _SERIES})


def _verdict(report: TuneReport) -> str:
    before, after = report.default_seconds, report.tuned_seconds
    if report.is_interrupted:
        return "Interrupted: what was found is kept, and the model as a whole was not measured."
    if before is None or after is None:
        return "No task has other parameters than by default: the model is as fast as before."
    times = f"{duration(before)} → {duration(after)}"
    if report.is_dropped:
        return f"{times}: no gain of the model above the noise, so all of these choices were dropped."
    return f"{times}: the model is {before / after:.2f} times as fast."


def _facts(report: TuneReport) -> list[tuple[str, str]]:
    stored = sum(task.is_stored for task in report.tasks)
    changed = sum(task.is_changed for task in report.tasks)
    budget = f" of {duration(report.budget)}" if report.budget else ""
    facts = [
        ("Time spent", f"{duration(report.seconds)}{budget}"),
        ("Tasks", f"{len(report.tasks)}: {changed} changed, {stored} from the store"),
        ("Store", report.store),
    ]
    return [("Measured on", report.device), *facts] if report.device else facts


def _name(task: TaskReport) -> str:
    return f"{task.uses} × {task.summary}"


def _changes(tasks: Sequence[TaskReport]) -> list[dict[str, Any]]:
    """Tasks whose times are known, those first that take the most time."""
    known = [
        (number, task, task.uses * task.default_seconds, task.uses * (task.seconds or task.default_seconds))
        for number, task in enumerate(tasks, 1)
        if task.default_seconds
    ]
    longest = max((before for _, _, before, _ in known), default=1.0)
    return [
        {
            "number": number,
            "name": _name(task),
            "before": duration(before),
            "after": duration(after),
            "before_width": round(60 * before / longest, 1),
            "after_width": round(60 * min(after / longest, 1.0), 1),
            "saved": f"{1 - after / before:.0%}" if task.is_changed else "–",
        }
        for number, task, before, after in sorted(known, key=lambda each: -each[2])
    ]


def _places(report: TuneReport) -> list[dict[str, Any]]:
    """Where tasks lie: arithmetic a byte, and a second by default and as chosen. No two at the same place."""
    places: list[dict[str, Any]] = []
    for number, task in enumerate(report.tasks, 1):
        if not task.flops or not task.nbytes or not task.default_seconds:
            continue
        after = task.seconds or task.default_seconds
        before = task.flops / task.default_seconds
        places.append(
            {
                "number": number,
                "name": _name(task),
                "intensity": task.flops / task.nbytes,
                "before": before,
                "after": task.flops / after,
            }
        )
    return apart(places)


def _place_row(place: Mapping[str, Any], roofline: Roofline | None) -> dict[str, Any]:
    roof = "" if roofline is None else f"{place['after'] / _roof(place['intensity'], roofline):.0%}"
    return {
        "number": place["number"],
        "name": place["name"],
        "intensity": f"{place['intensity']:.3g}",
        "before": rate(place["before"]),
        "after": rate(place["after"]),
        "roof": roof,
    }


def _roof(intensity: float, roofline: Roofline) -> float:
    """Operations a second that the fastest units and the last memory allow: caches may answer faster than that."""
    memory = list(roofline.bandwidths.values())[-1]
    return min(max(roofline.flops.values()), intensity * memory)


def _task(number: int, task: TaskReport) -> dict[str, Any]:
    facts = [("Schedule", task.rule)]
    if task.params:
        facts += [("Default", task.default_params), ("Chosen", task.params)]
    if task.default_seconds:
        facts.append(("Time by default", duration(task.default_seconds)))
    if task.seconds and task.is_changed:
        facts.append(("Time as chosen", duration(task.seconds)))
    if task.points:
        facts.append(("Points tried", f"{task.tried} of {task.points}"))
    is_faster = task.is_changed and task.gain is not None and task.gain > 1
    outcome = f"{task.gain:.2f} times as fast" if is_faster else task.note or "the default stays"
    return {
        "number": number,
        "name": _name(task),
        "outcome": f"{outcome}, from the store" if task.is_stored else outcome,
        "is_faster": is_faster,
        "facts": facts,
        "trials": _candidates(task),
        "has_curve": bool(task.trials and task.default_seconds),
    }


def _candidates(task: TaskReport) -> list[dict[str, Any]]:
    """A row for each point, the fastest first; those that failed, or were never measured, last."""
    trials: dict[str, list[TrialReport]] = {}
    for trial in task.trials:
        trials.setdefault(trial.params, []).append(trial)
    reasons = {}
    for text in task.refused:
        params, _, reason = text.partition(": ")
        reasons[params] = reason
    rows = []
    for params, each in trials.items():
        # The last measurement has the most rounds.
        ratio, predicted = each[-1].ratio, each[-1].predicted
        rows.append(
            {
                "params": params,
                "ratio": float("inf") if ratio is None else ratio,
                "gain": "" if ratio is None else f"{1 / ratio:.2f} ×",
                "time": "" if ratio is None or not task.default_seconds else duration(ratio * task.default_seconds),
                "predicted": "" if predicted is None else duration(predicted),
                "count": str(len(each)),
                "remark": each[-1].failure or ("chosen" if params == task.params else ""),
                "is_chosen": params == task.params,
            }
        )
    unmeasured = {"ratio": float("inf"), "gain": "", "time": "", "predicted": "", "count": "0", "is_chosen": False}
    rows += [{**unmeasured, "params": p, "remark": why} for p, why in reasons.items() if p not in trials]
    return sorted(rows, key=lambda row: row["ratio"])


def rate(flops: float) -> str:
    """Operations a second as people read them."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}op/s"
    return f"{flops:.3g} op/s"
