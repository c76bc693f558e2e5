"""How exactly products of f32 are computed, as an attribute of the operators that multiply."""

from __future__ import annotations

from hidet.errors import ShapeError
from hidet.graph.operator import Attribute

FP32_PRECISION = Attribute(
    "fp32_precision",
    "ieee",
    "ieee: f32 factors are multiplied as they are; tf32: a target may round them to 10 bits of mantissa first",
)
"""torch's name and values for it (torch.backends.fp32_precision)."""

_VALUES = ("ieee", "tf32")


def require_precision(name: str, value: str) -> None:
    """ShapeError, as for any attribute, unless it is one of the two values."""
    if value not in _VALUES:
        raise ShapeError(f"operator {name}: fp32_precision is {value!r}: expected {' or '.join(map(repr, _VALUES))}")
