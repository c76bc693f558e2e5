"""A compilation as one page of HTML that needs nothing else: no network, no other file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from hidet.errors import OptionError
from hidet.report.accuracy import Accuracy
from hidet.report.charts import memory_chart, roofline_data, timeline_chart, tuning_data
from hidet.report.contents import (
    differences,
    environment,
    kernel_entries,
    model_file,
    phases,
    task_entries,
    unscheduled,
)
from hidet.report.drawing import Drawing, draw_graph, draw_tasks
from hidet.report.memory import memory_use
from hidet.report.origin import Origin, origin_of
from hidet.report.page_style import base_style, chart_scripts, chart_style, page_file, script_data
from hidet.report.profile import Profile
from hidet.report.profile_text import duration, size
from hidet.report.tuned import Tuning
from hidet.runtime.compiled import CompileReport


def write_page(
    report: CompileReport,
    path: str | os.PathLike[str],
    profile: Profile | None = None,
    accuracy: Accuracy | None = None,
    tuning: Tuning | None = None,
    *,
    listings: bool = True,
) -> None:
    """Write a page about the compilation that a report is of: `compiled.report().html("page.html")`.

    profile: `compiled.profile(*inputs)`, for times. accuracy: `hidet.report.check_accuracy(compiled, *inputs)`.
    tuning: what `hidet.tune` has returned, for the curves of its tasks.
    listings: whether kernels are shown as what the target's compiler gets, and as assembly, which are made anew; of
    very large models those that take longest.
    HidetError where the graph was not compiled by this process, OptionError for a file that cannot be written.
    """
    text = page_html(report, profile, accuracy, tuning, listings=listings)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"the page cannot be written to {os.fspath(path)}: {error.strerror or error}") from error


def write_numbered(report: CompileReport, folder: str) -> None:
    """Write a page into a folder, as a file of the graph's name and the first free number."""
    stem = re.sub(r"\W", "_", origin_of(report).graph.name)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in count():
        path = Path(folder) / f"{stem}_{number}.html"
        try:
            # Several processes may write there.
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        write_page(report, path)
        return


def page_html(
    report: CompileReport,
    profile: Profile | None = None,
    accuracy: Accuracy | None = None,
    tuning: Tuning | None = None,
    *,
    listings: bool = True,
) -> str:
    """The page, see `write_page`."""
    origin = origin_of(report)
    entries = task_entries(origin)
    drawings = _drawings(origin, {id(entry.step): entry.number for entry in entries})
    compiled = origin.compiled()
    memory = profile.memory if profile is not None else None
    if memory is None and compiled is not None:
        memory = memory_use(compiled.bundle.program, compiled.bundle.constants, {})
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {"duration": duration, "parts": _parts, "size": size}
    template = page.from_string(page_file("page.html"))
    seconds: dict[str, float] = {}
    for row in profile.rows if profile is not None else ():
        seconds[row.kernel] = seconds.get(row.kernel, 0.0) + row.seconds
    kernels = kernel_entries(origin, entries, seconds, **({} if listings else {"listing_bytes": 0}))
    texts = [text for kernel in kernels for _, text in kernel.texts]
    roofline = roofline_data(profile) if profile is not None else {}
    tuned = list(tuning.tasks) if tuning is not None else []
    data = {name: drawing.facts for name, _, drawing in drawings}
    return template.render(
        model=origin.graph.name,
        file=model_file(origin),
        target=origin.ctx.target.name,
        report=report,
        summary=str(report),
        drawings=drawings,
        passes=differences(origin),
        tasks=entries,
        unscheduled=unscheduled(entries),
        kernels=kernels,
        has_listings=listings,
        profile=profile,
        memory=memory,
        timeline=timeline_chart(profile) if profile is not None else "",
        has_roofline=bool(roofline),
        memory_svg=memory_chart(memory) if memory is not None and memory.steps else "",
        accuracy=accuracy,
        tuned=tuned,
        outcome=lambda task: str(task).partition(f"{task.rule}: ")[2],
        phases=phases(report.seconds),
        environment=environment(origin),
        data=script_data({**data, "texts": texts, "tasks": tuning_data(tuned), **roofline}),
        style=chart_style() + base_style() + page_file("page.css"),
        scripts=(*chart_scripts(), page_file("page.js")),
    )


def _drawings(origin: Origin, numbers: Mapping[int, int]) -> list[tuple[str, str, Drawing]]:
    """Graphs with a name and a title each: the tasks, the graph as it was given, tasks of sub-graphs."""
    main, *others = (draw_tasks(part.scheduled, numbers) for part in origin.parts)
    given = draw_graph(origin.graph)
    named = [("after", f"Tasks, as they run ({main.boxes} boxes)", main)]
    named.append(("before", f"As given ({given.operators} operators)", given))
    names = [part.scheduled.task_graph.graph.name for part in origin.parts[1:]]
    pairs = zip(names, others, strict=True)
    return named + [
        (f"inner-{number}", f"Sub-graph {name} ({other.boxes} boxes)", other)
        for number, (name, other) in enumerate(pairs, 1)
    ]


def _parts(text: str) -> list[str]:
    """The parts of a path or of a dotted name, after which lines may end."""
    return re.split(r"(?<=[/.])(?=\w)", text)
