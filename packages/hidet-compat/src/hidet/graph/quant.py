"""Rules that keep constant weights as integers of 8 bits, with a scale a channel: `PassContext.add_quantize_rules`.

with hidet.graph.PassContext() as ctx:
    ctx.add_quantize_rules(hidet.graph.quant.default_patterns())
    optimized = hidet.graph.optimize(graph)
"""

from __future__ import annotations

from typing import Any

from hidet import ops
from hidet.api.flow import Operation
from hidet.api.tensors.tensor import Tensor
from hidet.compat.operator_classes import operator_class
from hidet.graph.transforms.graph_patterns import MatchDict, SubgraphRewriteRule, TensorPattern, op_pattern
from hidet.plugins.host import load_registry


class _WeightRule(SubgraphRewriteRule):
    """An operator of a class, input number `place` of which is a constant matrix of floats."""

    module, operator, place = "", "", 0

    def __init__(self) -> None:
        super().__init__(type(self).__name__)
        self.weight = TensorPattern(is_const=True)
        self.others = [TensorPattern()]
        inputs = list(self.others)
        inputs.insert(self.place, self.weight)
        self.result = op_pattern(operator_class(self.module, self.operator), inputs)

    def source(self) -> list[TensorPattern]:
        """The operator's result."""
        return [self.result]

    def target(self, matched: MatchDict) -> list[Tensor] | None:
        """The same operator of a weight that is made of integers at each call."""
        weight, operation = matched[self.weight], matched[self.result].op
        if not weight.dtype.is_float or len(weight.shape) != 2:
            return None
        channels = self.channels(operation)
        codes, scale = ops.symmetric_quantize(weight, "int8", dims=1 - channels)
        inputs = list(operation.inputs)
        inputs[self.place] = _dequantized(codes, scale, channels)
        return list(Operation(operation.op, inputs, operation.attrs).outputs)

    def channels(self, operation: Operation) -> int:
        """The axis of the weight along which each place has a scale of its own."""
        return 0


class SymmetricLinearQuantizePatternR(_WeightRule):
    """x @ weight: a scale a column."""

    module, operator, place = "matmul", "MatmulOp", 1

    def channels(self, operation: Operation) -> int:
        return 0 if operation.attrs["trans_b"] else 1


class SymmetricLinearQuantizePatternL(_WeightRule):
    """weight @ x: a scale a row."""

    module, operator, place = "matmul", "MatmulOp", 0

    def channels(self, operation: Operation) -> int:
        return 1 if operation.attrs["trans_a"] else 0


class SymmetricEmbeddingQuantizePattern(_WeightRule):
    """Rows of a table: a scale a row."""

    module, operator, place = "transform", "TakeOp", 0


def default_patterns() -> list[SubgraphRewriteRule]:
    """Rules for products and tables."""
    return [SymmetricLinearQuantizePatternR(), SymmetricLinearQuantizePatternL(), SymmetricEmbeddingQuantizePattern()]


def _dequantized(codes: Tensor, scale: Tensor, axis: int) -> Any:
    """What codes stand for. Symbolic, though they are known: else it would be computed once, and kept."""
    spec = load_registry().operators["dequantize"]
    return Operation(spec, [codes, scale, None], spec.attrs({"axis": axis})).outputs[0]


__all__ = [
    "SymmetricEmbeddingQuantizePattern",
    "SymmetricLinearQuantizePatternL",
    "SymmetricLinearQuantizePatternR",
    "default_patterns",
]
