"""Places in MLIR's text: loc("name"("file":1:2)), callsite(… at …), fused[…], names of places."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hidet.loc import Loc
from hidet.stablehlo.program import MAX_NESTING

_WORD = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<alias>#[\w$.\-]+)|(?P<name>[A-Za-z]+)|(?P<other>\d+|.))', re.DOTALL
)


@dataclass(slots=True)
class Places:
    """The places that a text gives names. aliases: the groups in brackets behind `loc`, by name."""

    aliases: dict[str, str] = field(default_factory=dict)
    _found: dict[str, Loc | None] = field(default_factory=dict)

    def find(self, group: str) -> Loc | None:
        """The place that a group in brackets spells; None for an unknown one, and for what is none."""
        if group not in self._found:
            # A name that stands for itself is no place.
            self._found[group] = None
            self._found[group] = self._read(group)
        return self._found[group]

    def _read(self, group: str) -> Loc | None:
        words = [(found.lastgroup or "", found.group(found.lastgroup or 0)) for found in _WORD.finditer(group[1:-1])]
        return self._place(words[:4096], 0)

    def _place(self, words: list[tuple[str, str]], depth: int) -> Loc | None:
        """Reads a place off the front of the words."""
        if not words or depth > MAX_NESTING:
            return None
        kind, text = words.pop(0)
        if kind == "alias":
            inner = self.aliases.get(text[1:])
            return None if inner is None else self.find(inner)
        if kind == "string":
            return self._named(text[1:-1], words, depth)
        if text == "callsite":
            _skip(words, "(")
            callee = self._place(words, depth + 1)
            _skip(words, "at")
            caller = self._place(words, depth + 1)
            _skip(words, ")")
            if callee is None or caller is None:
                return callee or caller
            return Loc(callee.file, callee.line, callee.column, callee.name, callee.parent or caller)
        if text == "fused":
            while words and words[0][1] != "[":
                words.pop(0)
            _skip(words, "[")
            return self._place(words, depth + 1)
        return None

    def _named(self, name: str, words: list[tuple[str, str]], depth: int) -> Loc | None:
        if words[:1] == [("other", ":")]:
            numbers = [int(text) for _, text in words[1:4:2] if text.isdigit()]
            del words[:4]
            if words[:1] == [("name", "to")]:
                while words and words[0][1] not in (")", "at", ",", "]"):
                    words.pop(0)
            line, column = (*numbers, None, None)[:2]
            return Loc(name, line, column)
        if not _skip(words, "("):
            return Loc(name=name)
        inner = self._place(words, depth + 1)
        _skip(words, ")")
        if inner is None:
            return Loc(name=name)
        return Loc(inner.file, inner.line, inner.column, name, inner.parent)


def _skip(words: list[tuple[str, str]], text: str) -> bool:
    if words and words[0][1] == text:
        words.pop(0)
        return True
    return False
