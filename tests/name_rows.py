"""What tables of names are made of: a row is a name of hidet 0.6, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """What became of a name."""

    ACTS = "acts"
    WARNS = "accepted with a warning"
    REFUSED = "refused with the replacement"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Name:
    """path: from `hidet` on. use: statements that call it; empty where the test only asks whether it is there. note:
    what differs, or what there is instead."""

    path: str
    state: State
    use: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Names of one place, `path`. acts: a use each. present: what acts and is called by other tests, as parts of
    kernels are. warns, refused: a use each, which warns or fails. missing: names, or names with what there is instead.
    notes: what differs, by name. doc: a sentence about all."""

    path: str
    acts: dict[str, str] = field(default_factory=dict)
    present: str = ""
    warns: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    missing: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    doc: str = ""

    def names(self) -> Iterator[Name]:
        """The rows, in the order of the states."""
        unused = dict.fromkeys(self.present.split(), ""), dict.fromkeys(self.missing.split(), "")
        uses = {State.ACTS: {**self.acts, **unused[0]}, State.WARNS: self.warns, State.REFUSED: self.refused}
        for state, rows in {**uses, State.MISSING: unused[1]}.items():
            for name, use in rows.items():
                yield Name(f"{self.path}.{name}", state, use, self.notes.get(name, ""))
