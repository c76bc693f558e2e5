"""hidet's ONNX front-end.

from_onnx(model)     a graph, for `hidet.compile`
OnnxRunner(model)    the model on numpy arrays by name, compiled again for other elements where shapes depend on them
check(model)         the operators that cannot be imported

These are imported when they are first used: the plug-in module of this package is imported wherever hidet is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.onnx.convert import from_onnx
    from hidet.onnx.runner import OnnxRunner
    from hidet.onnx.supported import Unsupported, check

__all__ = ["OnnxRunner", "Unsupported", "check", "from_onnx"]

_MODULES = {"OnnxRunner": "runner", "Unsupported": "supported", "check": "supported", "from_onnx": "convert"}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
