"""See the table in `hidet.onnx.mapping`."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.onnx.mapping import Handler, Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {}
