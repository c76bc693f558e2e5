"""Docstrings as Markdown: paragraphs, a list of what arguments mean, examples, and blocks of text as they are."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Collection

_NO_TEXT = re.compile(r"<[^<>]+>")
"""What Python shows of a default that has no text."""
_ARGUMENT = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)")
_BEHIND_SENTENCE = re.compile(r"(?<=[.;]) (?=(\*{0,2}\w+(?:, \*{0,2}\w+)*): )")
_CODE = re.compile(r"(`[^`\n]*`)")
_RAISES = re.compile(r"Raises |[A-Z]\w+Error\b")
_LONGEST_DEFAULT, _LONGEST_VALUE = 60, 100
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SPECIAL = re.compile(r"([\\*_<>|\[\]#$~])")


def markdown_of(text: str, arguments: Collection[str] = ()) -> str:
    """A docstring, cleaned of its indentation, as Markdown.

    arguments: names that a line or a sentence may begin with, before a colon: such sentences are items of a list, and
    what follows an item goes on with it, up to the next one, a blank line or a line about errors.
    """
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        kind = _kind(line, blocks[-1][0] if blocks else "")
        if not blocks or kind != blocks[-1][0]:
            blocks.append((kind, []))
        blocks[-1][1].append(line)
    return "\n\n".join(_shown(kind, lines, arguments) for kind, lines in blocks if kind)


def _kind(line: str, before: str) -> str:
    """The kind of block that a line is in, by the kind of the line before: "" between blocks."""
    if line.startswith(">>>"):
        return "pycon"
    if before == "pycon" and line.strip():
        return before
    if line.startswith("    ") and before != "paragraph":
        return "text"
    if not line.strip():
        return "text" if before == "text" else ""
    return "paragraph"


def _shown(kind: str, lines: list[str], arguments: Collection[str]) -> str:
    if kind == "paragraph":
        return "\n".join(_paragraph(lines, arguments))
    text = textwrap.dedent("\n".join(lines)).rstrip()
    return f"```{kind}\n{text}\n```"


def _paragraph(lines: list[str], arguments: Collection[str]) -> list[str]:
    """Lines of a paragraph, with arguments as items of a list."""

    def are_arguments(names: str) -> bool:
        return all(name.lstrip("*") in arguments for name in names.split(", "))

    def cut(found: re.Match[str]) -> str:
        return "\n" if are_arguments(found[1]) else " "

    made: list[str] = []
    is_item = False
    for line in "\n".join(_BEHIND_SENTENCE.sub(cut, line) for line in lines).splitlines():
        found = _ARGUMENT.match(line)
        if found is not None and are_arguments(found[1]):
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


def describe_value(value: object) -> str:
    """What a value is, as Markdown: its own text where that is short, else its type."""
    shown = repr(value)
    is_shown = _is_text(shown, _LONGEST_VALUE) and "`" not in shown
    return f"`{shown}`" if is_shown else f"Of type `{type(value).__name__}`."


def _is_text(shown: str, longest: int) -> bool:
    """Whether what Python shows of a value is of use to readers: no address in memory, nor pages of text."""
    return len(shown) <= longest and not _ADDRESS.search(shown)


def signature_of(value: object) -> str:
    """How a function or class is called, on one line; "" where Python does not know."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    given = signature.parameters.values()
    parameters = [p if _is_text(repr(p.default), _LONGEST_DEFAULT) else p.replace(default=...) for p in given]
    signature = signature.replace(parameters=parameters)
    # Annotations are text: `from __future__ import annotations`.
    shown = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature)).replace("Ellipsis", "...").replace("\n", " ")
    return _NO_TEXT.sub("...", shown)
