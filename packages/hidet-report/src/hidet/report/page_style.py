"""What pages of hidet have in common: how they look, their charts, and how numbers get into their scripts.

Charts are drawn by uPlot (MIT License, Copyright 2022 Leon Sorokin), which is in this wheel, with its licence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def base_style() -> str:
    """CSS: colours for light and dark, text, tables, bars, what folds, and focus."""
    return page_file("base.css")


def chart_style() -> str:
    """CSS of charts."""
    return page_file("uPlot.min.css")


def chart_scripts() -> tuple[str, str]:
    """uPlot, and what draws a chart into each `div` of class "chart" of a page, from its data: `roofline`, `places` and
    `series` for a roofline, `tasks` for curves of tuning (`hidet.report.charts`)."""
    return page_file("uPlot.iife.min.js"), page_file("charts.js")


def page_file(name: str) -> str:
    """A file that pages are made of."""
    return files("hidet.report").joinpath("report_page", name).read_text(encoding="utf-8")


def script_data(data: Mapping[str, Any]) -> str:
    """JSON for a script of a page. Nothing in it can end the element that it stands in."""
    return json.dumps(data).replace("<", "\\u003c").replace("&", "\\u0026")
