"""What names mean inside of a script: its own variables, then what Python would find where it is defined."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from hidet.errors import ScriptError, suggestion


def captured_names(function: Callable[..., Any], frame: FrameType | None) -> dict[str, Any]:
    """Names outside of `function` and their present values, except builtins.

    frame: where it is defined. Its variables count even where Python makes no closure of them: names in annotations
    that are kept as text.
    """
    closure = dict(_filled_cells(function))
    local = {} if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)
    return {**function.__globals__, **local, **closure}


def _filled_cells(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Variables of functions around it; those that have no value yet, as the function's own name, are left out."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            yield name, cell.cell_contents


@dataclass(slots=True)
class Scope:
    """Names of one block. is_branch: the block runs zero or several times, as only the running program knows.
    is_function: the block is the body of a function inside of the script, whose assignments are its own."""

    is_branch: bool
    is_function: bool = False
    names: dict[str, Any] = field(default_factory=dict)


_NOTHING = object()


class Environment:
    """Scopes of the script `function`, innermost last, around the names outside of it."""

    def __init__(self, outside: Mapping[str, Any], function: str) -> None:
        self.outside = outside
        self.function = function
        self.scopes: list[Scope] = [Scope(is_branch=False)]
        self.ended: set[str] = set()

    @contextmanager
    def block(self, is_branch: bool, is_function: bool = False) -> Iterator[None]:
        """Names bound inside are gone after; see `Scope`."""
        self.scopes.append(Scope(is_branch, is_function))
        try:
            yield
        finally:
            self.ended.update(self.scopes.pop().names)

    def own(self, name: str, to_assign: bool = False) -> tuple[Scope, bool] | None:
        """The scope that binds a name, and whether a branch lies between it and here; None for names from outside.

        to_assign: what an assignment would change, which is nothing outside of the function it stands in.
        """
        crosses = False
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope, crosses
            if to_assign and scope.is_function:
                return None
            crosses = crosses or scope.is_branch
        return None

    def is_branch_since(self, depth: int) -> bool:
        """Whether a block that was entered when `depth` were open runs zero or several times."""
        return any(scope.is_branch for scope in self.scopes[depth:])

    def bind(self, name: str, value: Any) -> None:
        """Give a name a value in the innermost block."""
        self.scopes[-1].names[name] = value

    def lookup(self, name: str) -> Any:
        """What a name means. ScriptError for one that means nothing."""
        found = self.own(name)
        if found is not None:
            return found[0].names[name]
        if name in self.ended:
            raise ScriptError(
                f"{name} has a value inside of a block that has ended",
                hint=f"give it a value, or declare it by `{name}: f32`, before the block",
            )
        known = self.outside.get(name, getattr(builtins, name, _NOTHING))
        if name == self.function and (known is _NOTHING or hasattr(known, "call_from_script")):
            # A script that has its name already is what an earlier run of a notebook's cell made of it.
            raise ScriptError(f"{name} calls itself", hint="scripts have no recursion: write a loop")
        if known is not _NOTHING:
            return known
        own = [known for scope in self.scopes for known in scope.names]
        hint = suggestion(name, [*own, *(known for known in self.outside if not known.startswith("_"))])
        if _is_of_lang(name):
            hint = f"from hidet.lang import {name}"
        raise ScriptError(f"name {name!r} is not defined", hint=hint)


def _is_of_lang(name: str) -> bool:
    import hidet.lang

    return hasattr(hidet.lang, name)
