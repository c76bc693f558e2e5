"""Names of a foreign model as names of a graph: its values, and the symbols that open sizes become."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hidet.dims import Dim, symbol


def identifier(name: str | bytes) -> str:
    """A foreign name as an identifier of printed graphs, "" for an empty one. Bytes need not be valid UTF-8."""
    text = re.sub(r"\W", "_", name if isinstance(name, str) else name.decode(errors="replace"))
    return f"_{text}" if text[:1].isdigit() else text


@dataclass(slots=True)
class SizeNames:
    """The symbols of one import: equal names are one size, and an unnamed extent is a size of its own.

    A size is at least 1: models with empty inputs exist, and are given as fixed extents.
    """

    known: dict[str, Dim] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def named(self, name: str) -> Dim:
        """The size that the model calls `name`."""
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = self.fresh(name)
        return found

    def fresh(self, hint: str) -> Dim:
        """A size that is no other, of a name like `hint`."""
        base = identifier(hint) or "size"
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return symbol(name, lower=1)
