"""What pages of hidet have in common: how they look, and how numbers get into their scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def base_style() -> str:
    """CSS: colours for light and dark, text, tables, bars, what folds, and focus."""
    return files("hidet.report").joinpath("report_page", "base.css").read_text(encoding="utf-8")


def script_data(data: Mapping[str, Any]) -> str:
    """JSON for a script of a page. Nothing in it can end the element that it stands in."""
    return json.dumps(data).replace("<", "\\u003c").replace("&", "\\u0026")
