"""What the meaning of an intrinsic is given, and rows of the tables of meanings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.gpu.simulator.lanes import Lanes

if TYPE_CHECKING:
    from hidet.gpu.simulator.activation import Activation
    from hidet.gpu.simulator.team import Team
    from hidet.gpu.simulator.wave import Wave
    from hidet.ir.expr import Call

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """A call of an intrinsic by some threads."""

    activation: Activation
    lanes: Lanes
    node: Call

    @property
    def wave(self) -> Wave:
        """The blocks that run at the same time."""
        return self.activation.launch

    @property
    def team(self) -> Team:
        """The threads that the caller's are numbered in."""
        return self.activation.team

    @property
    def count(self) -> int:
        """How many threads call."""
        return self.lanes.count

    @property
    def agents(self) -> Array:
        """The callers' identities."""
        return np.asarray(self.team.agent[self.lanes.index])

    def tick(self) -> int:
        """A time at which the caller does something."""
        return self.wave.timeline.tick(self.activation.stmt)


@dataclass(frozen=True, slots=True)
class Meaning:
    """function(site, *arguments): arguments are arrays with a row a thread, or one, and `Pointers`; gives an array or
    None. `waits`: it is a generator of waits that returns the value. `lets_go`: threads that run together let some of
    them go on, and others wait for these."""

    function: Callable[..., Any]
    waits: bool = False
    lets_go: bool = False


def immediate(value: Array) -> int:
    """The constant that an argument is."""
    return int(value[0])


def simple(function: Callable[..., Any]) -> Meaning:
    """The meaning of an operation that looks at its arguments alone."""
    return Meaning(lambda site, *arguments: function(*arguments))
