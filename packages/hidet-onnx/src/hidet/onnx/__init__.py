"""hidet's ONNX front-end.

from_onnx(model)     a graph, for `hidet.compile`
OnnxRunner(model)    the model on numpy arrays by name, compiled again for other elements where shapes depend on them
check(model)         the operators that cannot be imported

These are imported when they are first used: the plug-in module of this package is imported wherever hidet is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.onnx.convert import from_onnx
    from hidet.onnx.runner import OnnxRunner
    from hidet.onnx.supported import Unsupported, check

__all__ = ["OnnxRunner", "Unsupported", "check", "from_onnx"]

__getattr__, __dir__ = lazy_attributes(
    __name__, {"OnnxRunner": "runner", "Unsupported": "supported", "check": "supported", "from_onnx": "convert"}
)
