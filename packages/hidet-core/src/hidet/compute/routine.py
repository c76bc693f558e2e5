"""Routines: algorithms that are no index formula (sorting, determinants, common divisors), as data.

A `Routine` stage of a definition holds its `RoutineSpec` as a node of a graph holds its operator, so that nothing is
looked up by name. Wheels offer theirs from the hook `hidet_routines`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from hidet.errors import PluginError
from hidet.loading import load_object

Reference = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]
"""Arrays of the operands, and all attributes -> arrays of the results, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineSpec:
    """One algorithm on whole tensors.

    name: as printed in definitions and counted in their identity, so no two have the same.
    operands, results: what it reads and defines, in order; a name with "*", the last one, stands for any number.
    attributes: names of the attributes a stage may give, with the values that missing ones take.
    reference: "package.module:attribute" of its meaning on numpy arrays, a `Reference`. "" where an operator that uses
        it says otherwise what it means.
    program: the same of a `hidet.schedule.routines.site.RoutineProgram`, thread IR that serves every target. "" where
        only schedules of targets, or decompositions of operators, know what to do. A target with a better way offers a
        schedule for the operators that use the routine.
    """

    identity: ClassVar[Literal["name"]] = "name"
    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    reference: str = ""
    program: str = ""
    doc: str = ""

    def load_reference(self) -> Reference | None:
        """Its meaning on arrays; None where it has none. PluginError where it cannot be loaded."""
        found: Reference | None = self._load(self.reference)
        return found

    def load_program(self) -> Any:
        """Its `RoutineProgram`; None where it has none. PluginError where it cannot be loaded."""
        return self._load(self.program)

    def _load(self, place: str) -> Any:
        try:
            return load_object(place) if place else None
        except Exception as error:
            raise PluginError(
                f"routine {self.name!r}: cannot load {place!r}: {type(error).__name__}: {error}",
                hint="`hidet plugins -v` names the plug-in that provides it",
            ) from error


def takes(names: Sequence[str], count: int) -> bool:
    """Whether `count` operands or results are as many as a spec names."""
    is_open = bool(names) and names[-1].endswith("*")
    return count >= len(names) - 1 if is_open else count == len(names)
