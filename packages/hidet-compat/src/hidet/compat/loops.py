"""How loops of scripts are made, as an object; the text that it stands for is what `grid` and `repeat` take."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hidet.errors import ShapeError

_TOKEN = re.compile(r"(?P<style>[pu.])(?P<count>\d*)(?P<mark>\+?)")


@dataclass(frozen=True, slots=True)
class ForStmtAttr:
    """One loop: `grid(4, 8, attrs=str(ForStmtAttr(unroll=True)))`.

    unroll: written out. unroll_factor, unroll_explicit: hints that change nothing. parallel: its turns may run at the
    same time. parallel_threads: threads at most, a hint.
    """

    unroll: bool = False
    unroll_factor: int | None = None
    unroll_explicit: bool = False
    parallel: bool = False
    parallel_threads: int | None = None

    def __str__(self) -> str:
        if self.parallel:
            return f"p{self.parallel_threads or ''}"
        return f"u{self.unroll_factor or ''}{'+' if self.unroll_explicit else ''}" if self.unroll else "."

    @staticmethod
    def parse(attr_string: str, num_loops: int | None = None) -> list[ForStmtAttr]:
        """The loops that a text stands for, "p4u." three. num_loops: as many of the one that it names. ShapeError for
        other texts and another number."""
        tokens = list(_TOKEN.finditer(attr_string))
        if "".join(token[0] for token in tokens) != attr_string:
            raise ShapeError(f"{attr_string!r} says nothing of loops", hint="a letter a loop: u, p or .")
        made = [_parsed(token) for token in tokens]
        if num_loops is not None and len(made) == 1:
            made *= num_loops
        if num_loops not in (None, len(made)):
            raise ShapeError(f"{attr_string!r} stands for {len(made)} loops, not for {num_loops}")
        return made


def _parsed(token: re.Match[str]) -> ForStmtAttr:
    count = int(token["count"]) if token["count"] else None
    if token["style"] == "p":
        return ForStmtAttr(parallel=True, parallel_threads=count)
    is_unrolled = token["style"] == "u"
    return ForStmtAttr(unroll=is_unrolled, unroll_factor=count, unroll_explicit=is_unrolled and bool(token["mark"]))
