"""What may be chosen about a program, as data: knobs with their values, and what must hold of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from hidet.errors import PluginError

Params = TypeVar("Params")
"""What a rule builds a program by; chosen from its space."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing that may be chosen.

    name: as tables and JSON show it, a word such as "split_k".
    values: what it may be, in the order in which points are given; numbers, strings, bools, or frozen dataclasses whose
        `str` is short.
    doc: what it decides, in a few words.
    """

    name: str
    values: tuple[Any, ...]
    doc: str = ""

    def __post_init__(self) -> None:
        twice = [value for place, value in enumerate(self.values) if value in self.values[:place]]
        if not self.values or twice:
            found = f"{twice[0]!r} twice" if twice else "no values"
            raise PluginError(f"knob {self.name!r} has {found}, expected one value at least, each once")


@dataclass(frozen=True, eq=False)
class Constraint(Generic[Params]):
    """What parameters must fulfil. doc: in words ("the ring fits into shared memory"); holds: whether they do."""

    doc: str
    holds: Callable[[Params], bool]


@dataclass(frozen=True, eq=False)
class Space(Generic[Params]):
    """The parameters that may be chosen: all combinations of knobs' values of which the constraints hold.

    Iterating gives them in a fixed order, the last knob changing fastest. A space without knobs is empty: nothing may
    be chosen.

    make: parameters from a value of each knob, given by position in the order of the knobs.
    """

    knobs: tuple[Knob, ...]
    make: Callable[..., Params]
    constraints: tuple[Constraint[Params], ...] = ()

    def __post_init__(self) -> None:
        names = [knob.name for knob in self.knobs]
        if len(set(names)) < len(names):
            raise PluginError(f"a space has the knobs {', '.join(names)}, expected a name of its own for each")

    @classmethod
    def empty(cls) -> Self:
        """The space of a rule about whose programs nothing may be chosen."""
        return cls((), _make_nothing)

    @classmethod
    def of_knob(cls, knob: Knob) -> Self:
        """The space of a rule whose parameters are the value of one knob."""
        return cls((knob,), _make_value)

    def points(self) -> Iterator[tuple[Mapping[str, Any], Params]]:
        """Valid parameters, each after the value of every knob by its name."""
        if not self.knobs:
            return
        names = [knob.name for knob in self.knobs]
        for values in itertools.product(*(knob.values for knob in self.knobs)):
            params = self.make(*values)
            if all(constraint.holds(params) for constraint in self.constraints):
                yield dict(zip(names, values, strict=True)), params

    def __iter__(self) -> Iterator[Params]:
        return (params for _, params in self.points())

    def __bool__(self) -> bool:
        """Whether there is anything to choose, as far as the knobs tell."""
        return bool(self.knobs)

    @property
    def size(self) -> int:
        """How many combinations of values there are, whether or not the constraints hold; 0 without knobs."""
        return math.prod(len(knob.values) for knob in self.knobs) if self.knobs else 0

    @property
    def valid(self) -> int:
        """How many combinations the constraints leave. Makes each of them."""
        return sum(1 for _ in self.points())


def _make_nothing() -> Any:
    raise PluginError("an empty space has no parameters")


def _make_value(value: Any) -> Any:
    return value
