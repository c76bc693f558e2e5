"""Tuning: parameters of schedules are measured under a budget, and choices are kept for later compilations.

tune(model)          measure, keep what is faster, and compile the model with it
TuneReport           what that has found
LiveTable            shows how far it is
Strategy             how a space is searched
Executor             where programs are measured
Store                the choices on disk

These are imported when they are first used: the plug-in module of this package is imported wherever hidet is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.tuning.executor import Executor
    from hidet.tuning.report import TaskReport, TuneReport
    from hidet.tuning.report_live import LiveTable, Progress
    from hidet.tuning.store import Entry, Store
    from hidet.tuning.strategy import Measurement, Point, Problem, Strategy
    from hidet.tuning.strategy_orders import SuccessiveHalving
    from hidet.tuning.trial import Outcome, Settings, Trial
    from hidet.tuning.tuner import tune

__all__ = [
    "Entry",
    "Executor",
    "LiveTable",
    "Measurement",
    "Outcome",
    "Point",
    "Problem",
    "Progress",
    "Settings",
    "Store",
    "Strategy",
    "SuccessiveHalving",
    "TaskReport",
    "Trial",
    "TuneReport",
    "tune",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "Entry": "store",
        "Settings": "trial",
        "Store": "store",
        "Executor": "executor",
        "LiveTable": "report_live",
        "Measurement": "strategy",
        "Outcome": "trial",
        "Point": "strategy",
        "Problem": "strategy",
        "Progress": "report_live",
        "Strategy": "strategy",
        "SuccessiveHalving": "strategy_orders",
        "TaskReport": "report",
        "Trial": "trial",
        "TuneReport": "report",
        "tune": "tuner",
    },
)
