"""The border between hidet and code of plug-ins: whatever a plug-in raises becomes a value that names it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Owner:
    """A plug-in, as reports and warnings name it.

    plugin: name of its entry point, or its module when it was named by module.
    dist, version: the distribution that ships it; None when it belongs to none (named by module, PYTHONPATH).
    """

    plugin: str
    dist: str | None = None
    version: str | None = None

    def __str__(self) -> str:
        if self.dist is None:
            return f'plugin "{self.plugin}"'
        return f'{self.dist} {self.version} (plugin "{self.plugin}")'


@dataclass(frozen=True, slots=True)
class Failure:
    """What a plug-in raised."""

    error: BaseException

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"

    def traceback(self) -> str:
        """The full traceback, as `hidet plugins -v` prints it."""
        return "".join(traceback.format_exception(self.error))


def attempt(call: Callable[[], Result]) -> Result | Failure:
    """The result of `call()`, or what it raised. SystemExit counts: a plug-in must not be able to end the program.

    KeyboardInterrupt does not: it is the user's, who presses Ctrl-C while a plug-in happens to run, and wants the whole
    to stop. A plug-in that raised it on its own could not be told from that.
    """
    try:
        return call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - this is the border
        return Failure(error)
