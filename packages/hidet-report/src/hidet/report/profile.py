"""How long each kernel of a compiled model takes, and what it was written for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hidet.errors import HidetError
from hidet.report.memory import MemoryUse
from hidet.report.profile_text import profile_text
from hidet.report.roofline import Roofline
from hidet.report.trace import chrome_trace

SHORTEST = 2e-8
"""Seconds below which a time is the clock's noise: no rate follows from it."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A task of a model: one fusion group, run by one program.

    kernel: the name that its machine code begins with. operator: its anchor with the types that it reads, and node: its
    name in the model. operators: all that it computes, in order. place: the line of the user's model, and call: the
    line there that called the layer, where the former is a framework's. kind: "compiled", or "eager" or "host" for an
    operator that runs outside of compiled code. rule, params, reason: the schedule, its parameters, and why.
    seconds: of one call of the model, in all runs together; runs: how often it is run there (a loop's body runs often).
    launches: kernels that a run launches. flops, nbytes: of a call of the model, 0 where they are not known. workspace:
    bytes of temporary memory. roof: the share of what the device can do at most, None where nobody knows.
    """

    kernel: str
    operator: str
    node: str
    place: str
    seconds: float
    kind: str = "compiled"
    call: str = ""
    operators: tuple[str, ...] = ()
    rule: str = ""
    params: str = ""
    reason: str = ""
    runs: int = 1
    launches: int = 1
    flops: int = 0
    nbytes: int = 0
    dtype: str = ""
    workspace: int = 0
    roof: float | None = None

    @property
    def title(self) -> str:
        """What it computes, in a few words: "conv2d + 2"."""
        anchor, others = self.operator.partition("(")[0], len(self.operators) - 1
        if anchor == "elementwise" and self.operators:
            anchor = self.operators[-1]
        return f"{anchor} + {others}" if others > 0 else anchor

    @property
    def line(self) -> str:
        """The line of the user's own code, or what is nearest to it."""
        return self.call or self.place

    @property
    def bandwidth(self) -> float:
        """Bytes a second; 0 where the time is too short to be known."""
        return self.nbytes / self.seconds if self.seconds > SHORTEST else 0.0

    @property
    def rate(self) -> float:
        """Arithmetic operations a second; 0 where the time is too short to be known."""
        return self.flops / self.seconds if self.seconds > SHORTEST else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of a compiled model on some inputs.

    rows: its tasks in the order in which they run. seconds: of a call of the model as it always runs, measured beside.
    host_seconds: what of it is spent before, between and after kernels: on arguments, results and calls. device: what
    measured, threads: of a CPU. calls: how many calls each of both was measured for. model: what was measured.
    timeline: when each row began and ended in one call, in seconds, (row, begin, end). memory: what it keeps, and when.
    """

    model: str
    rows: tuple[ProfileRow, ...]
    seconds: float
    host_seconds: float
    device: str
    threads: int | None = None
    calls: int = 0
    timeline: tuple[tuple[int, float, float], ...] = ()
    memory: MemoryUse | None = None
    roofline: Roofline | None = field(default=None, repr=False)

    @property
    def total(self) -> float:
        """Seconds of all rows, and of the host beside them."""
        return sum(row.seconds for row in self.rows) + self.host_seconds

    @property
    def coverage(self) -> float:
        """`total` as a share of the time of a call."""
        return self.total / self.seconds

    def row(self, name: str) -> ProfileRow:
        """The first row whose kernel, node or operator begins with `name`. HidetError where there is none."""
        for row in self.rows:
            if row.kernel.startswith(name) or row.node.startswith(name) or row.operator.startswith(name):
                return row
        raise HidetError(f"no kernel, node or operator of the profile begins with {name!r}")

    def as_json(self) -> dict[str, Any]:
        """Numbers and texts alone."""
        rows = [asdict(row) | {"bandwidth": row.bandwidth, "rate": row.rate} for row in self.rows]
        return {**asdict(self), "rows": rows, "total": self.total, "coverage": self.coverage}

    def trace(self) -> dict[str, Any]:
        """One call in the format of chrome://tracing, Perfetto and TensorBoard."""
        return chrome_trace(self)

    def __str__(self) -> str:
        return profile_text(self)
