"""How something is accepted that says nothing to the compiler."""

from __future__ import annotations

import warnings

from hidet.errors import HidetWarning


def warn_unread(what: str, advice: str) -> None:
    """A warning, at the line that calls the caller, that `what` changes nothing, and what to do instead."""
    warnings.warn(HidetWarning(f"{what} is accepted and changes nothing", hint=advice), stacklevel=3)
