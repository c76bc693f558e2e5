"""What the compiler does, through Python's `logging`: loggers `hidet.fusion`, `hidet.schedule`, … at the level INFO.

HIDET_LOG=fusion,schedule writes these to standard error; programs may set levels and handlers of the loggers.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hidet.errors import PluginWarning, suggestion
from hidet.report.cuts import Cut, cuts_of
from hidet.report.places import calling_line, model_line, node_name
from hidet.schedule.select import ScheduledTask

if TYPE_CHECKING:
    from hidet.report.origin import Origin
    from hidet.schedule.task import Task, TaskKey

VARIABLE = "HIDET_LOG"

TOPICS: Mapping[str, str] = {
    "cache": "modules that were compiled, or found in the kernel cache",
    "fusion": "what each task computes, and why it reads from memory what it does",
    "passes": "what graph passes have changed, and how long they took",
    "recompile": "why a model is compiled again",
    "schedule": "the schedule of each kind of task, its parameters, and why",
}
"""What may be logged; each topic has a logger of its name."""

_FUSION, _SCHEDULE, _CACHE, _PASSES = (
    logging.getLogger(f"hidet.{topic}") for topic in ("fusion", "schedule", "cache", "passes")
)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # of standard error
    """Writes to standard error. setting: the value of the variable that it was made for."""

    def __init__(self, setting: str) -> None:
        super().__init__()
        self.setting = setting
        self.topics: tuple[str, ...] = ()
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is of a topic that was asked for."""
        return record.name.removeprefix("hidet.") in self.topics


def configure() -> None:
    """Log what HIDET_LOG asks for: topics with commas between them, or "all". PluginWarning for one that is unknown."""
    setting = os.environ.get(VARIABLE, "")
    logger = logging.getLogger("hidet")
    for handler in logger.handlers:
        if isinstance(handler, _Handler):
            if handler.setting == setting:
                return
            logger.removeHandler(handler)
            for topic in handler.topics:
                logging.getLogger(f"hidet.{topic}").setLevel(logging.NOTSET)
    if not setting:
        return
    made = _Handler(setting)
    asked = [text.strip() for text in setting.split(",") if text.strip()]
    for text in asked:
        if text not in TOPICS and text != "all":
            advice = suggestion(text, [*TOPICS, "all"])
            warnings.warn(
                PluginWarning(f"{VARIABLE} has the topic {text!r}, which is unknown", hint=advice), stacklevel=2
            )
    made.topics = tuple(TOPICS if "all" in asked else (text for text in asked if text in TOPICS))
    for topic in made.topics:
        logging.getLogger(f"hidet.{topic}").setLevel(logging.INFO)
    logger.addHandler(made)


def log_module(name: str, target: str, cached: bool) -> None:
    """A module of code is there."""
    _CACHE.info("%s: %s for %s", name, "from the cache" if cached else "compiled", target)


def logs_graphs() -> bool:
    """Whether anybody reads what `log_graph` says."""
    return any(log.isEnabledFor(logging.INFO) for log in (_PASSES, _FUSION, _SCHEDULE))


def log_graph(origin: Origin) -> None:
    """A graph was compiled."""
    if _PASSES.isEnabledFor(logging.INFO):
        for run in origin.passes:
            if run.before is not run.after:
                counts = len(run.before.nodes), len(run.after.nodes)
                _PASSES.info("%s: %d -> %d operators, %.2f ms", run.name, *counts, run.seconds * 1e3)
    if _FUSION.isEnabledFor(logging.INFO) or _SCHEDULE.isEnabledFor(logging.INFO):
        for part in origin.parts:
            told: set[TaskKey] = set()
            cuts = cuts_of(part.scheduled)
            for number, step in enumerate(part.scheduled.steps):
                if isinstance(step, ScheduledTask):
                    _log_fusion(step.task, cuts.get(number, ()))
                    if step.task.key not in told:
                        told.add(step.task.key)
                        _log_schedule(step)


def _log_fusion(task: Task, cuts: Sequence[Cut]) -> None:
    _FUSION.info("%s%s", " + ".join(node.op.name for node in task.nodes), _place(task))
    for cut in cuts:
        _FUSION.info("  reads %%%s from memory: %s", cut.value.name, cut.reason)


def _log_schedule(step: ScheduledTask) -> None:
    decision = step.decision
    params = "" if decision.params is None else f" {decision.params!r}"
    _SCHEDULE.info("%s%s: %s%s, %s", step.task.summary, _place(step.task), step.rule_name, params, decision.reason)
    for answer in decision.answers:
        if answer.reason:
            _SCHEDULE.info("  %s: %s", answer.rule, answer)


def _place(task: Task) -> str:
    line = calling_line(task.loc) or model_line(task.loc)
    name = node_name(task.loc)
    return f" at {line}" + (f" ({name})" if name and name != line else "") if line else ""
