"""Classes of hidet's own operators, which patterns and rules of users name: `hidet.graph.ops.matmul.MatmulOp`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

from hidet import ops
from hidet.compat.operator import BuiltinOperator, builtin_operator

MODULES: Mapping[str, Mapping[str, str]] = {
    "matmul": {"MatmulOp": "matmul"},
    "conv1d": {"Conv1dOp": "conv"},
    "conv2d": {"Conv2dOp": "conv"},
    "conv3d": {"Conv3dOp": "conv"},
    "conv2d_transpose": {"Conv2dTransposeOp": "conv_transpose"},
    "attention": {"AttnOp": "attention"},
    "softmax": {"SoftmaxOp": "softmax"},
    "cumulative": {"CumulativeSumOp": "cumsum"},
    "normalize": {
        "LayerNormOp": "layer_norm",
        "InstanceNormOp": "instance_norm",
        "GroupNormOp": "group_norm",
    },
    "pool": {"MaxPool2dOp": "max_pool", "AvgPool2dOp": "avg_pool", "AdaptiveAvgPool2dOp": "adaptive_avg_pool"},
    "reduce": {
        "ReduceMeanOp": "mean",
        "ReduceSumOp": "sum",
        "ReduceMaxOp": "amax",
        "ReduceMinOp": "amin",
        "ReduceProdOp": "prod",
        "ReduceVarOp": "var",
        "ArgMaxOp": "argmax",
        "ArgMinOp": "argmin",
    },
    "activation": {
        "ReluOp": "relu",
        "LeakyReluOp": "leaky_relu",
        "SigmoidOp": "sigmoid",
        "GeluOp": "gelu",
        "SiluOp": "silu",
        "ClipOp": "clamp",
        "HardSwishOp": "hardswish",
        "SoftplusOp": "softplus",
        "PReluOp": "prelu",
    },
    "arithmetic": {
        "AddOp": "add",
        "SubtractOp": "sub",
        "MultiplyOp": "mul",
        "DivideOp": "div",
        "PowOp": "pow",
        "NegativeOp": "neg",
        "SquareOp": "square",
        "SqrtOp": "sqrt",
        "RsqrtOp": "rsqrt",
        "ReciprocalOp": "reciprocal",
        "AbsOp": "abs",
        "ExpOp": "exp",
        "LogOp": "log",
        "ErfOp": "erf",
        "SinOp": "sin",
        "CosOp": "cos",
        "TanhOp": "tanh",
        "MaxOp": "maximum",
        "MinOp": "minimum",
        "WhereOp": "where",
        "FloorOp": "floor",
        "CeilOp": "ceil",
    },
    "compare": {
        "EqualOp": "equal",
        "NotEqualOp": "not_equal",
        "LessOp": "less",
        "LessEqualOp": "less_equal",
        "GreaterOp": "greater",
        "GreaterEqualOp": "greater_equal",
        "LogicalAndOp": "logical_and",
        "LogicalOrOp": "logical_or",
        "LogicalNotOp": "logical_not",
    },
    "transform": {
        "ReshapeOp": "reshape",
        "SqueezeOp": "squeeze",
        "UnsqueezeOp": "unsqueeze",
        "PermuteDimsOp": "transpose",
        "TransposeOp2D": "transpose",
        "ConcatOp": "concat",
        "CastOp": "cast",
        "TakeOp": "index_select",
        "GatherOp": "gather",
        "StridedSliceOp": "slice",
        "BroadcastOp": "expand",
        "PadOp": "pad",
        "TileOp": "tile",
        "FlipOp": "flip",
        "RollOp": "roll",
    },
}
"""Module of `hidet.graph.ops` -> class -> operator."""


class OperatorModule(ModuleType):
    """`hidet.graph.ops.matmul`: classes of operators; every other name is that of `hidet.ops`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"hidet.graph.ops.{name}", f"Operators of hidet 0.6: {', '.join(MODULES[name])}.")
        self._module = name

    def __getattr__(self, name: str) -> Any:
        return operator_class(self._module, name) if name in MODULES[self._module] else getattr(ops, name)


@cache
def operator_class(module: str, name: str) -> type[BuiltinOperator]:
    """A class of `MODULES`."""
    return builtin_operator(name, MODULES[module][name])
