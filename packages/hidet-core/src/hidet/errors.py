"""Every exception and warning of hidet.

A message names the thing, the place, what was expected and what to do next. Place and advice travel beside the message
(`loc=`, `hint=`), so that all errors render them alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.loc import Loc


class _Explained(Exception):
    """A message with an optional place in the user's model and an optional piece of advice."""

    def __init__(self, message: str, *, loc: Loc | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.loc is not None:
            parts.append(self.loc.render())
        if self.hint is not None:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class HidetError(_Explained, RuntimeError):
    """Base of every error that hidet raises. It is a RuntimeError, as errors of torch and of ONNX Runtime are, so that
    code which expects these from a call goes on to work when the call is compiled.

    message: what happened, to which thing, and what was expected.
    loc: where in the user's model, kernel or file; None when there is no such place.
    hint: what to do next; None when the message says it already.
    """


class ImportFailed(HidetError):
    """A model could not be turned into a graph."""


class ValueNeeded(ImportFailed):
    """Elements of tensors have to be known before the model runs.

    inputs: names of the model's inputs that they are computed from. shapes: names of inputs whose sizes, where the
    model leaves them open, they are computed from. Both empty where they depend on something else. deciding: names of
    inputs that decide whether the place is reached at all, by branches around it.
    """

    def __init__(
        self, message: str, inputs: tuple[str, ...], shapes: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.inputs = inputs
        self.shapes = shapes
        self.deciding: tuple[str, ...] = ()


class ShapeNeeded(ImportFailed):
    """The model does not say how many axes an input has. input: its name."""

    def __init__(self, message: str, input_: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.input = input_


class UnsupportedOp(HidetError):
    """An operator is not known, or not with these dtypes or attributes."""


class ShapeError(HidetError):
    """Shapes or dims do not fit together."""


class SizeDivisionError(ShapeError, ZeroDivisionError):
    """A size is divided by 0 for the sizes of a call; Python's own error for that, too."""


class DTypeError(HidetError):
    """An element type is unknown, or does not fit where it is used."""


class ScriptError(HidetError):
    """A function under @hidet.script cannot be translated; the place is the line and column in its file."""


class VerifyError(HidetError):
    """A graph or program breaks a rule of its IR; the message names the pass that broke it."""


class MemorySpaceError(VerifyError):
    """An operation gets an address in a memory that it does not work on."""


class ScheduleError(HidetError):
    """A schedule matched a task but cannot build it."""


class CodegenError(HidetError):
    """A program cannot be printed for, or linked into, its target."""


class CompileError(HidetError):
    """A target's compiler refused or crashed on generated code."""


class LaunchError(HidetError):
    """A compiled graph was called with arguments it cannot take, or a kernel failed to run."""


class PositionError(HidetError, IndexError):
    """A tensor of positions holds one that lies outside of the axis it is used on."""


class DataRace(LaunchError):
    """Two threads of a kernel access the same memory, one of them writes, and nothing orders them."""


class Deadlock(LaunchError):
    """Threads of a kernel wait for what no thread will do."""


class OutOfMemory(LaunchError, MemoryError):
    """The host has too little memory for a result, or for what a call computes on the way; tells how much."""


class DeviceOutOfMemory(OutOfMemory):
    """A device has too little free memory; the message tells how much was asked for and how much there is."""


class DeviceLost(HidetError):
    """The device is unusable after an earlier failure; the message names the kernel that failed."""


class PluginError(HidetError):
    """A plug-in is broken, or a name that a plug-in would provide is missing."""


class OptionError(HidetError):
    """An option is unknown or has a value of the wrong type."""


class ArtifactError(HidetError):
    """A saved graph is damaged, of another format, or made for another machine."""


class CacheError(HidetError):
    """The kernel cache was asked for something impossible, e.g. to explain an unknown key."""


class HidetWarning(_Explained, UserWarning):
    """Base of every warning that hidet issues."""


class CacheWarning(HidetWarning):
    """The kernel cache is unusable or damaged; compilation goes on without it."""


class PluginWarning(HidetWarning):
    """A plug-in was disabled, or was refused one of the names it offers."""


class FallbackWarning(HidetWarning):
    """Something runs slower than it should: in eager mode, on the host, or on the fallback loop nest."""


def nearest_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` entries of `known` that `name` is probably a misspelling of, best first."""
    import difflib

    return difflib.get_close_matches(name, sorted(set(known)), n=limit, cutoff=0.6)


def suggestion(name: str, known: Iterable[str], limit: int = 12) -> str:
    """Advice for an unknown name: the nearest known ones, else the first `limit` known ones."""
    names = sorted(set(known))
    nearest = nearest_names(name, names)
    if nearest:
        return "did you mean " + " or ".join(repr(candidate) for candidate in nearest) + "?"
    if not names:
        return "none is known"
    more = f", ... ({len(names)} in all)" if len(names) > limit else ""
    return "known: " + ", ".join(names[:limit]) + more
