"""Tuning: parameters of schedules are measured under a budget, and choices are kept for later compilations.

tune(model)          measure, keep what is faster, and compile the model with it
TuneReport           what that has found
Strategy             how a space is searched
Store                the choices on disk

These are imported when they are first used: the plug-in module of this package is imported wherever hidet is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.tuning.report import TaskReport, TuneReport
    from hidet.tuning.store import Entry, Store
    from hidet.tuning.strategy import Measurement, Point, Problem, Strategy
    from hidet.tuning.strategy_orders import SuccessiveHalving
    from hidet.tuning.tuner import tune

__all__ = [
    "Entry",
    "Measurement",
    "Point",
    "Problem",
    "Store",
    "Strategy",
    "SuccessiveHalving",
    "TaskReport",
    "TuneReport",
    "tune",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "Entry": "store",
        "Store": "store",
        "Measurement": "strategy",
        "Point": "strategy",
        "Problem": "strategy",
        "Strategy": "strategy",
        "SuccessiveHalving": "strategy_orders",
        "TaskReport": "report",
        "TuneReport": "report",
        "tune": "tuner",
    },
)
