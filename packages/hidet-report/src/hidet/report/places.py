"""Where tasks stand in the user's model, as text."""

from __future__ import annotations

import re

from hidet.loc import Loc

_PARAMETERS = re.compile(r"[/\\]site-packages[/\\]")


def model_line(loc: Loc | None) -> str:
    """The place as `file.py:41`, or the name of a node in a file without lines; "" where nothing is known."""
    if loc is None:
        return ""
    if loc.file is None:
        return loc.name or ""
    return f"{short_path(loc.file)}:{loc.line}" if loc.line is not None else short_path(loc.file)


def calling_line(loc: Loc | None) -> str:
    """The line of the user's model that called the layer at a place; "" where the place is that line itself."""
    return "" if loc is None or loc.parent is None else model_line(loc.parent)


def node_name(loc: Loc | None) -> str:
    """What the user calls the thing there, such as `encoder.layer.0.fc1`; "" where it has no name."""
    return "" if loc is None else loc.name or ""


def short_path(file: str) -> str:
    """A path without what is the same for all installed packages."""
    return _PARAMETERS.split(file)[-1]
