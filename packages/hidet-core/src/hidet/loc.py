"""Where something comes from: a place in the user's model, kernel or file. Carried by graph nodes and statements."""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in user code.

    file: path as the front-end saw it; None when only a name is known (an ONNX node).
    line, column: counted from 1; None when unknown.
    name: what the user calls the thing there, e.g. the module path `encoder.layer.0.fc1`.
    parent: the place this one came from: the caller's line, or the place before a fusion or decomposition.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    name: str | None = None
    parent: Loc | None = None

    def __str__(self) -> str:
        """One line, e.g. `model.py:41:9 (fc1)`."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        if self.name is None:
            return place or "unknown place"
        return f"{place} ({self.name})" if place else self.name

    def render(self) -> str:
        """Several lines: this place with its source line and a caret when they can be read, then the parents."""
        lines: list[str] = []
        place: Loc | None = self
        lead = "at"
        while place is not None:
            lines.append(f"  {lead} {place}")
            lines.extend(_snippet(place))
            place = place.parent
            lead = "from"
        return "\n".join(lines)


def _snippet(loc: Loc) -> list[str]:
    """The source line of `loc` and a caret line under it; empty when the source is not readable."""
    if loc.file is None or loc.line is None:
        return []
    text = linecache.getline(loc.file, loc.line).rstrip()
    if not text.strip():
        return []
    number = f"    {loc.line} | "
    shown = [number + text]
    if loc.column is not None and 1 <= loc.column <= len(text) + 1:
        # Tabs are kept in the padding so that the caret stands under its character whatever the tab width.
        padding = "".join("\t" if char == "\t" else " " for char in text[: loc.column - 1])
        shown.append(" " * (len(number) - 2) + "| " + padding + "^")
    return shown
