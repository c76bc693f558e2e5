"""Where tasks stand in the user's model, as text."""

from __future__ import annotations

import re

from hidet.loc import Loc

_PARAMETERS = re.compile(r"[/\\]site-packages[/\\]")


def model_line(loc: Loc | None) -> str:
    """The place as `file.py:41`; the file alone where it has no lines and no names, and "" where nothing is known.

    A node of a file without lines is named: the file is the same for all of a model.
    """
    if loc is None or loc.file is None or (loc.line is None and loc.name):
        return ""
    return f"{short_path(loc.file)}:{loc.line}" if loc.line is not None else short_path(loc.file)


def calling_line(loc: Loc | None) -> str:
    """The line of the user's model that called the layer at a place; "" where the place is that line itself."""
    return "" if loc is None or loc.parent is None else model_line(loc.parent)


def node_name(loc: Loc | None) -> str:
    """What the user calls the thing there, such as `encoder.layer.0.fc1`; "" where it has no name. Of a node of a file
    without lines, the module that it was exported from as well: `encoder.fc1: MatMul 'node_7'`."""
    if loc is None:
        return ""
    module = None if loc.line is not None or loc.parent is None else loc.parent.name
    return f"{module}: {loc.name}" if module and loc.name else loc.name or ""


def short_path(file: str) -> str:
    """A path without what is the same for all installed packages."""
    return _PARAMETERS.split(file)[-1]
