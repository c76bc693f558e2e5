"""The leaves of symbolic sizes: `Symbol`, and `Atom`, what is known of any factor that is not taken apart."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from hidet.errors import ShapeError


class Atom:
    """An indivisible factor of a monomial, with what is known about its value. Immutable.

    key: text that two atoms share exactly when they are equal; it orders the atoms of a monomial.
    lower, upper: bounds, both included; None is unbounded.
    divisor: a number >= 1 that divides every value.
    depth: levels of nodes inside.
    """

    __slots__ = ("depth", "divisor", "key", "lower", "upper")
    key: str
    lower: int | None
    upper: int | None
    divisor: int
    depth: int

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), tuple(getattr(self, entry.name) for entry in fields(self))  # type: ignore[arg-type]

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, eq=False)
class Symbol(Atom):
    """A size that is known at run time only.

    name: a Python identifier; bindings at run time go by name.
    lower, upper: bounds, both included; None is unbounded. They are tightened to multiples of `divisor`.
    divisor: every value is a multiple of it.
    hint: a typical value, for choosing between variants; no fact, and two symbols that differ in it only are equal.

    Raises ShapeError when the name is no identifier, or no value (or not the hint) fits the facts.
    """

    name: str
    lower: int = 0
    upper: int | None = None
    divisor: int = 1
    hint: int | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ShapeError(f"symbol name {self.name!r} is not an identifier", hint="use letters, digits and _ only")
        if self.divisor < 1:
            raise ShapeError(f"symbol {self.name} has divisor {self.divisor}: expected at least 1")
        lower = -(-self.lower // self.divisor) * self.divisor
        upper = None if self.upper is None else self.upper // self.divisor * self.divisor
        if upper is not None and lower > upper:
            raise ShapeError(
                f"symbol {self.name} has no possible value: "
                f"no multiple of {self.divisor} lies in [{self.lower}, {self.upper}]"
            )
        key = (
            self.name if (lower, upper, self.divisor) == (0, None, 1) else f"{self.name}:{lower}:{upper}:{self.divisor}"
        )
        self._set(key=key, lower=lower, upper=upper, depth=0)
        if self.hint is not None and not self.admits(self.hint):
            raise ShapeError(f"symbol {self.name} has hint {self.hint}, which is not one of its values: {self.facts()}")

    def admits(self, value: int) -> bool:
        """Whether `value` fits the bounds and the divisor."""
        return self.lower <= value and (self.upper is None or value <= self.upper) and value % self.divisor == 0

    def facts(self) -> str:
        """The constraints in words, for messages."""
        multiple = f", a multiple of {self.divisor}" if self.divisor > 1 else ""
        return f"{self.lower} <= {self.name}" + (f" <= {self.upper}" if self.upper is not None else "") + multiple
