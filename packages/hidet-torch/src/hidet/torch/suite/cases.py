"""The cases of the suite: what they are called, which of them are run, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hidet.testing import suite
from hidet.torch.suite.programs import Group, groups

DATABASES = ("op", "hop", "module", "optim")
DTYPES = ("f32", "f16", "bf16", "i64", "bool")
DIRECTIONS = ("forward", "backward")
RIGHT = ("right", "statistics", "shape", "noise")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case.

    name: table:operator:dtype:direction:number of the sample. result: "right"; "statistics", right as far as random
    numbers can be compared; "shape", right in dtype, shape and strides where eager mode returns memory as it got it;
    "noise", right but for results of which eager mode has no digit right either; "wrong"; "error"; "torch", an error or
    a difference that torch's own tracing has with `backend="aot_eager"`, too; "refused", eager mode does not run it.
    reason: the first lines of an error, or a difference. left: operators that ran in torch instead of compiled code.
    seconds: of wall time.
    """

    name: str
    result: str
    reason: str = ""
    left: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def operator(self) -> str:
        """The operator, module or optimiser, with its table."""
        return ":".join(self.name.split(":")[:2])

    @property
    def is_whole(self) -> bool:
        """Whether all of it ran in compiled code."""
        return self.result in (*RIGHT, "wrong") and not self.left


@dataclass(frozen=True, slots=True)
class Selection(suite.Selection):
    """Cases by table, operators (none for all), dtypes and directions; of one operator, dtype and direction at most
    `most`, chosen by hash, 0 for all. Parts are by hash of the name less the number. seed: of the samples' values."""

    databases: tuple[str, ...] = DATABASES
    operators: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = DTYPES
    directions: tuple[str, ...] = DIRECTIONS
    most: int = 0
    seed: int = 0

    def groups(self) -> Iterator[Group]:
        """What it has cases of."""
        for database in self.databases:
            for group in groups(database, self.dtypes):
                chosen = not self.operators or group.operator in self.operators
                if chosen and group.direction in self.directions and self.has(group.name):
                    yield group

    def numbers(self, group: Group, count: int) -> list[int]:
        """Which of the samples of a group it has."""
        order = sorted(range(count), key=lambda number: suite.hash_of(f"{group.name}:{number}"))
        return sorted(order[: self.most] if self.most else order)
