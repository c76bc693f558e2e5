"""hidet's ONNX front-end.

from_onnx(model)     a graph, for `hidet.compile`
OnnxRunner(model)    the model on numpy arrays by name, compiled again for other elements where shapes depend on them
check(model)         the operators that cannot be imported
"""

from hidet.onnx.check import Unsupported, check
from hidet.onnx.convert import from_onnx
from hidet.onnx.runner import OnnxRunner

__all__ = ["OnnxRunner", "Unsupported", "check", "from_onnx"]
