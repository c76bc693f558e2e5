"""Numbers rounded as if they were codes of few bits (quantisation-aware training)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet import dtypes
from hidet.frontend import Emitter, Handler
from hidet.graph import Value


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "FakeQuantWithMinMaxArgs": _by_attributes,
        "FakeQuantWithMinMaxVars": _rounded,
        "FakeQuantWithMinMaxVarsPerChannel": _rounded,
    }


def _by_attributes(e: Emitter, x: Value, min: float = -6.0, max: float = 6.0, **options: Any) -> Value:
    return _rounded(e, x, e.constant(min, dtypes.f32), e.constant(max, dtypes.f32), **options)


def _rounded(e: Emitter, x: Value, low: Value, high: Value, num_bits: int = 8, narrow_range: bool = False) -> Value:
    """x limited to the range and rounded to its steps, of which one is 0: the range moves a little for that.

    low, high: numbers, or one a channel, which is the last axis.
    """
    first, last = int(narrow_range), (1 << num_bits) - 1
    step = e.emit("div", e.emit("sub", high, low), e.constant(float(last - first), dtypes.f32))
    zero = e.emit("sub", e.constant(float(first), dtypes.f32), e.emit("div", low, step))
    code = _nearest(e, e.emit("clamp", zero, min=float(first), max=float(last)))
    least, greatest = (
        e.emit("mul", e.emit("sub", e.constant(float(end), dtypes.f32), code), step) for end in (first, last)
    )
    limited = e.emit("minimum", e.emit("maximum", x, least), greatest)
    steps = _nearest(e, e.emit("div", e.emit("sub", limited, least), step))
    return e.emit("add", e.emit("mul", steps, step), least)


def _nearest(e: Emitter, x: Value) -> Value:
    """Halves go up."""
    return e.emit("floor", e.emit("add", x, e.constant(0.5, dtypes.f32)))
