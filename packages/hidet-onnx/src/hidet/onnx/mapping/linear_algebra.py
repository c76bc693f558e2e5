"""Matrices as a whole, and sums of products by index letters."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.frontend import Handler, einsum
from hidet.onnx.mapping import Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Det", 11): lambda e, x: e.emit("determinant", x),
        ("Einsum", 12): lambda e, *inputs, equation: einsum(e, equation, inputs),
    }
