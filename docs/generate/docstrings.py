"""Docstrings as Markdown: paragraphs, a list of what arguments mean, examples, and blocks of text as they are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection

_ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>|<object object[^>]*>")
_ARGUMENT = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)")
_CODE = re.compile(r"(`[^`\n]*`)")
_RAISES = re.compile(r"Raises |[A-Z]\w+Error\b")
_SPECIAL = re.compile(r"([\\*_<>|\[\]#$~])")


def markdown_of(text: str, arguments: Collection[str] = ()) -> str:
    """A docstring, cleaned of its indentation, as Markdown.

    arguments: names that a line may begin with, before a colon: such lines are items of a list, and what follows an
    item goes on with it, up to the next one, a blank line or a sentence about errors.
    """
    blocks: list[str] = []
    lines: list[str] = []
    raw: list[str] = []

    def end_paragraph() -> None:
        if lines:
            blocks.append("\n".join(_paragraph(lines, arguments)))
            lines.clear()

    def end_raw() -> None:
        while raw and not raw[-1].strip():
            raw.pop()
        if raw:
            kind = "pycon" if raw[0].lstrip().startswith(">>>") else "text"
            blocks.append(_fenced(inspect.cleandoc("\n".join(["", *raw])), kind))
            raw.clear()

    for line in text.splitlines():
        is_raw = line.startswith(">>>") or (line.startswith("    ") and not lines) or (raw and line.startswith("    "))
        if is_raw or (raw and not line.strip()) or (raw and raw[0].startswith(">>>") and line.strip()):
            end_paragraph()
            raw.append(line)
        elif line.strip():
            end_raw()
            lines.append(line)
        else:
            end_paragraph()
    end_paragraph()
    end_raw()
    return "\n\n".join(blocks)


def _paragraph(lines: list[str], arguments: Collection[str]) -> list[str]:
    """Lines of a paragraph, with arguments as items of a list."""
    made: list[str] = []
    is_item = False
    for line in lines:
        found = _ARGUMENT.match(line)
        names = [] if found is None else [name.lstrip("*") for name in found[1].split(", ")]
        if found is not None and all(name in arguments for name in names):
            if made and not is_item:
                made.append("")
            shown = ", ".join(f"`{name}`" for name in found[1].split(", "))
            made.append(f"- {shown}: {escaped(found[2])}")
            is_item = True
        elif is_item and not _RAISES.match(line):
            made.append(f"  {escaped(line.strip())}")
        else:
            if is_item:
                made.append("")
            made.append(escaped(line.strip()))
            is_item = False
    return made


def escaped(text: str) -> str:
    """Text as it is, in Markdown; what stands between backticks stays code."""
    parts = _CODE.split(text)
    return "".join(part if _CODE.fullmatch(part) else _SPECIAL.sub(r"\\\1", part) for part in parts)


def _fenced(text: str, kind: str) -> str:
    return f"```{kind}\n{text}\n```"


def signature_of(value: object) -> str:
    """How a function or class is called, on one line; "" where Python does not know."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    # Annotations are text: `from __future__ import annotations`.
    shown = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature)).replace("\n", " ")
    return _ADDRESS.sub("...", shown)
