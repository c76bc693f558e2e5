"""Rows of tables of intrinsics as functions of scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hidet.errors import DTypeError, suggestion
from hidet.gpu.intrinsics import INTRINSICS
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.lang.intrinsics import IntrinsicFunction

OTHER_NAMES = {
    "threadIdx": "thread_idx",
    "blockIdx": "block_idx",
    "blockDim": "block_dim",
    "gridDim": "grid_dim",
    "shfl_sync": "shuffle",
    "shfl_up_sync": "shuffle_up",
    "shfl_down_sync": "shuffle_down",
    "shfl_xor_sync": "shuffle_xor",
    "all_sync": "vote_all",
    "any_sync": "vote_any",
    "ballot_sync": "vote_ballot",
    "activemask": "active_mask",
    "atomic_exch": "atomic_exchange",
    "fence": "threadfence",
    "atomic_cas": "atomic_compare_exchange",
}
"""Names as CUDA C++ and earlier versions spell them, and the rows they mean."""

_PARAMETER_NAMES = {"src_lane": ("lane",), "var": ("value",), "addr": ("place", "target", "source")}
"""Names of arguments as earlier versions have them, and what rows call them."""

_DEFAULTS: dict[str, dict[str, int]] = {
    "gpu.syncwarp": {"mask": 0xFFFFFFFF},
    **{f"gpu.shuffle{way}": {"width": 32} for way in ("", "_up", "_down", "_xor")},
}


@dataclass(frozen=True, slots=True, eq=False)
class ScriptRows:
    """The rows that one module of names for scripts has.

    module: its name. rows: by name, of families of which no two share a name besides the family's. other_names: further
    names, without a family, and the rows they mean.
    """

    module: str
    rows: Mapping[str, Intrinsic]
    other_names: Mapping[str, str]

    def find(self, name: str) -> Any:
        """The row called `name`, or the rows that begin with it. AttributeError where there is none."""
        row = self.rows.get(name)
        if row is not None:
            is_register = row.group == "index" and name.count(".") == 2
            return call_intrinsic(row) if is_register else _function(row)
        if any(known.startswith(f"{name}.") for known in self.rows):
            return IntrinsicGroup(name, self)
        plain = name.partition(".")[2]
        raise AttributeError(f"{self.module} has no {plain!r}; {suggestion(plain, self.names())}")

    def find_plain(self, name: str) -> Any:
        """As `find`, by the name without that of the family, or by another name."""
        plain = self.other_names.get(name, name)
        first = plain.partition(".")[0]
        families = (row.split(".")[0] for row in self.rows if row.split(".")[1] == first)
        return self.find(f"{next(families, 'gpu')}.{plain}")

    def names(self) -> set[str]:
        """All names without that of the family."""
        return {*(name.split(".")[1] for name in self.rows), *self.other_names}


@dataclass(frozen=True, slots=True, eq=False)
class IntrinsicGroup:
    """Rows whose names share a beginning: attributes lead to them."""

    name: str
    table: ScriptRows

    @property
    def doc(self) -> str:
        """What each row takes and does, a line a row."""
        rows = [row for name, row in self.table.rows.items() if name.startswith(f"{self.name}.")]
        return "\n".join(_function(row).doc for row in rows)

    def __getattr__(self, name: str) -> Any:
        return self.table.find(f"{self.name}.{name}")

    def __call__(self, *arguments: Any) -> Any:
        """The call of the row for as many coordinates as are given, `tensor_load.2d` for two. DTypeError where rows are
        not told apart by that."""
        known = self.table.rows
        ranks = [row for rank in range(1, 6) if (row := known.get(f"{self.name}.{rank}d")) is not None]
        if not ranks:
            raise DTypeError(f"{self.name} is several operations", hint=suggestion("", dir(self)))
        found = [row for row in ranks if len(row.parameters) == len(arguments)]
        if not found:
            names = ", ".join(parameter.name for parameter in ranks[0].parameters)
            least, most = (len(row.parameters) for row in (ranks[0], ranks[-1]))
            raise DTypeError(f"{self.name} got {len(arguments)} arguments, expected {least} ({names}) to {most}")
        return _function(found[0])(*arguments)

    def __dir__(self) -> list[str]:
        rows = [row[len(self.name) + 1 :] for row in self.table.rows if row.startswith(f"{self.name}.")]
        return sorted({row.split(".")[0] for row in rows})


def _function(row: Intrinsic) -> IntrinsicFunction:
    return IntrinsicFunction(row, _DEFAULTS.get(row.name, {}), _PARAMETER_NAMES)


ROWS = ScriptRows("hidet.gpu.lang", INTRINSICS, OTHER_NAMES)
find_row = ROWS.find
