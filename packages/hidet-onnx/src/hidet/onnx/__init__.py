"""hidet's ONNX front-end: `from_onnx(model)` gives a graph, `check(model)` lists what cannot be imported."""

from hidet.onnx.check import Unsupported, check
from hidet.onnx.convert import from_onnx

__all__ = ["Unsupported", "check", "from_onnx"]
