"""Words of MLIR's text: numbers, names, strings and signs, with the places where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hidet.errors import ImportFailed
from hidet.loc import Loc

MAX_WORDS = 1 << 22
"""Words of a text that is read."""

_WORD = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%[A-Za-z0-9_$.\-]+(?:\#\d+)?)
    |(?P<symbol>@(?:[A-Za-z0-9_$.\-]+|"(?:[^"\\\n]|\\.)*"))
    |(?P<block>\^[A-Za-z0-9_$.\-]+)
    |(?P<alias>\#[A-Za-z_][A-Za-z0-9_$.\-]*)
    |(?P<type>![A-Za-z_][A-Za-z0-9_$.]*)
    |(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
    |(?P<name>[A-Za-z_][A-Za-z0-9_$.]*)
    |(?P<sign>->|::|[-+*/=<>(){}\[\]:,?|;])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word. kind: of `_WORD`'s groups, or "end". at: its place in the text."""

    kind: str
    text: str
    at: int


class Words:
    """The words of a text one after the other."""

    def __init__(self, text: str, source: str | None) -> None:
        self.text = text
        self.source = source
        self.at = 0
        self.count = 0
        self.next = self._read()

    def _read(self) -> Word:
        while True:
            if self.at >= len(self.text):
                return Word("end", "", len(self.text))
            found = _WORD.match(self.text, self.at)
            if found is None:
                raise self.error(f"{self.text[self.at]!r} begins no word", self.at)
            start, self.at = self.at, found.end()
            kind = found.lastgroup
            if kind is not None and kind != "space":
                self.count += 1
                if self.count > MAX_WORDS:
                    raise ImportFailed(f"the text has more than {MAX_WORDS} words", hint="write it as bytecode")
                return Word(kind, found.group(), start)

    def take(self) -> Word:
        """The next word, which is read."""
        word = self.next
        if word.kind == "end":
            raise self.error("the text ends too early")
        self.next = self._read()
        return word

    def comes(self, text: str) -> bool:
        """Whether this word is next."""
        return self.next.text == text and self.next.kind != "string"

    def skip(self, text: str) -> bool:
        """Read this word if it is next."""
        if self.comes(text):
            self.next = self._read()
            return True
        return False

    def expect(self, text: str) -> None:
        """Read this word. ImportFailed for another."""
        if not self.skip(text):
            raise self.unexpected(f"{text!r}")

    def take_kind(self, kind: str, what: str) -> str:
        """A word of this kind."""
        if self.next.kind != kind:
            raise self.unexpected(what)
        return self.take().text

    def unexpected(self, wanted: str) -> ImportFailed:
        """The error for the next word, which should have been something else."""
        found = repr(self.next.text) if self.next.kind != "end" else "the end"
        return self.error(f"{found} where {wanted} is expected")

    def loc(self, at: int) -> Loc:
        """The place of a word in the text."""
        before = self.text[:at]
        return Loc(self.source or "<StableHLO>", before.count("\n") + 1, at - before.rfind("\n"))

    def error(self, message: str, at: int | None = None) -> ImportFailed:
        """What is wrong with the text at a place; None is the next word's."""
        failed = ImportFailed(f"the text is no StableHLO: {message}")
        failed.loc = self.loc(self.next.at if at is None else at)
        return failed

    def skip_group(self) -> str:
        """Read a group in brackets whose contents do not matter, and return it."""
        pairs = {"(": ")", "[": "]", "{": "}", "<": ">"}
        start = self.next.at
        waiting: list[str] = []
        while True:
            word = self.take()
            if word.kind == "sign" and word.text in pairs:
                waiting.append(pairs[word.text])
            elif word.kind == "sign" and word.text in pairs.values() and (not waiting or waiting.pop() != word.text):
                raise self.error(f"{word.text!r} closes nothing", word.at)
            if not waiting:
                return self.text[start : word.at + len(word.text)]

    def raw_angle(self) -> str:
        """What stands between "<" and the ">" that belongs to it, as it is written: types have words of their own."""
        if not self.comes("<"):
            raise self.unexpected("'<'")
        start = at = self.next.at
        depth = 0
        while at < len(self.text):
            sign = self.text[at]
            if sign == "<":
                depth += 1
            elif sign == ">" and self.text[at - 1] != "-":
                depth -= 1
                if depth == 0:
                    self.at = at + 1
                    self.next = self._read()
                    return self.text[start + 1 : at]
            elif sign == '"':
                at = self.text.find('"', at + 1)
                if at < 0:
                    break
            at += 1
        raise self.error("'<' is not closed", start)
