"""Checks of data that end a call with an error; they have no result that anyone reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, Routine, single
from hidet.compute.routines import ASSERT_POSITIONS
from hidet.dims import Dim
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.position import is_outside, position_error
from hidet.graph.types import TensorType


def _require_positions(arrays: Sequence[Any], attrs: Attrs) -> Sequence[Any]:
    import numpy

    worst, extent = int(arrays[0]), attrs["extent"]
    if attrs["count"] > 0 and is_outside(worst, extent, attrs["wraps"]):
        raise position_error(worst, extent, attrs["wraps"], attrs["what"], None)
    return [numpy.True_]


def _assert_positions(arrays: Sequence[Any], attrs: Attrs) -> Sequence[Any]:
    from hidet.compute.routine_references import assert_positions

    return assert_positions(arrays, attrs)


def _define_assertion(positions: Operand, *, extent: Dim, wraps: bool, what: str) -> Definition:
    attributes = (("extent", extent), ("wraps", wraps), ("what", what))
    token = Operand("token", dtypes.boolean, ())
    return single((positions,), Routine(ASSERT_POSITIONS, (positions,), (token,), attributes))


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="require_positions",
        inputs=("worst",),
        attributes=(
            Attribute("extent", doc="of the axis that the positions are on"),
            Attribute("count", doc="how many positions there are; none are never wrong"),
            Attribute("wraps", doc="whether negative positions count from the end"),
            Attribute("what", doc="operator and input, for the message"),
        ),
        kind="check",
        infer=lambda types, attrs: (TensorType(dtypes.boolean, ()),),
        evaluate=_require_positions,
        has_effect=True,
        doc="PositionError unless the worst position, an i64 folded as `hidet.graph.position` says, is on its axis. "
        "What is computed later in graph order does not run then.",
    ),
    OperatorSpec(
        name="assert_positions",
        inputs=("positions",),
        attributes=(
            Attribute("extent", doc="of the axis that the positions are on"),
            Attribute("wraps", doc="whether negative positions count from the end"),
            Attribute("what", doc="operator, input and place, for the message"),
        ),
        kind="routine",
        define=_define_assertion,
        evaluate=_assert_positions,
        has_effect=True,
        doc="An assertion of a kernel that every position is on its axis. Where it fails, the device stops before it "
        "comes to what is computed later in graph order.",
    ),
)
