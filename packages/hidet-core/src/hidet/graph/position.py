"""Positions that lie outside of their axis: how one number tells of the worst in a tensor, and the error for it.

The worst position is found by a maximum, so that one reduction checks a tensor:

    negative positions count from the end     max(p if p >= 0 else -1 - p) < extent
    they do not                               max over p as an unsigned number < extent; stored as p ^ -2**63, signed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.errors import PositionError

if TYPE_CHECKING:
    from hidet.loc import Loc

LOWEST = -(1 << 63)


def is_outside(worst: int, extent: int, wraps: bool) -> bool:
    """Whether the maximum `worst`, an i64, tells of a position outside of an axis of `extent`."""
    return worst >= extent if wraps else worst - LOWEST >= extent


def position_error(worst: int, extent: int, wraps: bool, what: str, loc: Loc | None) -> PositionError:
    """The error for a maximum that `is_outside`; `what` names operator and input."""
    if wraps:
        found, expected = f"{worst} or {-1 - worst}", f"{-extent} to {extent - 1}"
    else:
        unsigned = worst - LOWEST
        found, expected = str(unsigned if unsigned < -LOWEST else unsigned + 2 * LOWEST), f"0 to {extent - 1}"
    if extent == 0:
        return PositionError(f"{what} has position {found} on an axis without elements", loc=loc)
    return PositionError(f"{what} has position {found}, expected {expected}", loc=loc)
