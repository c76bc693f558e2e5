"""Operators that TensorFlow has, too, and small ones beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.mapping import table as tensorflow_table
from hidet.tensorflow.mapping.gather import gather
from hidet.tensorflow.mapping.shape import normal_axis
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.mapping.codes import on_codes, on_numbers, quantisation_of
from hidet.tensorflow.tflite.schema import MIRRORS

# TFLite operator -> TensorFlow's, whose operands and attributes are the same.
_NUMBERS = {
    **{name: name.title() for name in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "LOG", "NEG", "RELU", "ROUND")},
    **{name: name.title() for name in ("RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH", "EQUAL", "GREATER", "LESS")},
    **{name: name.title() for name in ("MAXIMUM", "MINIMUM", "POW", "MUL", "SUB", "MEAN", "SUM", "RANK", "WHERE")},
    "ADD": "AddV2",
    "ADD_N": "AddN",
    "ARG_MAX": "ArgMax",
    "ARG_MIN": "ArgMin",
    "ATAN2": "Atan2",
    "BITWISE_XOR": "BitwiseXor",
    "BROADCAST_ARGS": "BroadcastArgs",
    "BUCKETIZE": "Bucketize",
    "CUMSUM": "Cumsum",
    "DIV": "Div",
    "FAKE_QUANT": "FakeQuantWithMinMaxArgs",
    "FLOOR_DIV": "FloorDiv",
    "FLOOR_MOD": "FloorMod",
    "GREATER_EQUAL": "GreaterEqual",
    "LEAKY_RELU": "LeakyRelu",
    "LESS_EQUAL": "LessEqual",
    "LOGICAL_AND": "LogicalAnd",
    "LOGICAL_NOT": "LogicalNot",
    "LOGICAL_OR": "LogicalOr",
    "LOGISTIC": "Sigmoid",
    "LOG_SOFTMAX": "LogSoftmax",
    "NOT_EQUAL": "NotEqual",
    "ONE_HOT": "OneHot",
    "RANGE": "Range",
    "REDUCE_ALL": "All",
    "REDUCE_ANY": "Any",
    "REDUCE_MAX": "Max",
    "REDUCE_MIN": "Min",
    "REDUCE_PROD": "Prod",
    "RELU6": "Relu6",
    "RESIZE_BILINEAR": "ResizeBilinear",
    "RIGHT_SHIFT": "RightShift",
    "SCATTER_ND": "ScatterNd",
    "SEGMENT_SUM": "SegmentSum",
    "SELECT": "Select",
    "SELECT_V2": "SelectV2",
    "SHAPE": "Shape",
    "SPACE_TO_BATCH_ND": "SpaceToBatchND",
    "SQUARED_DIFFERENCE": "SquaredDifference",
    "TOPK_V2": "TopKV2",
    "UNSORTED_SEGMENT_MAX": "UnsortedSegmentMax",
    "UNSORTED_SEGMENT_MIN": "UnsortedSegmentMin",
    "UNSORTED_SEGMENT_PROD": "UnsortedSegmentProd",
    "UNSORTED_SEGMENT_SUM": "UnsortedSegmentSum",
    "ZEROS_LIKE": "ZerosLike",
}

# Those that move elements.
_MOVES = {
    "BATCH_TO_SPACE_ND": "BatchToSpaceND",
    "BROADCAST_TO": "BroadcastTo",
    "DEPTH_TO_SPACE": "DepthToSpace",
    "EXPAND_DIMS": "ExpandDims",
    "FILL": "Fill",
    "GATHER_ND": "GatherNd",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighbor",
    "REVERSE_SEQUENCE": "ReverseSequence",
    "REVERSE_V2": "ReverseV2",
    "SLICE": "Slice",
    "SPACE_TO_DEPTH": "SpaceToDepth",
    "SQUEEZE": "Squeeze",
    "TILE": "Tile",
    "TRANSPOSE": "Transpose",
    "UNPACK": "Unpack",
}


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    known = tensorflow_table()
    return {
        **{name: on_numbers(known[other]) for name, other in _NUMBERS.items()},
        **{name: on_codes(known[other]) for name, other in _MOVES.items()},
        "BITCAST": lambda e, x: e.emit("bitcast", x, dtype=_result(e)),
        "CAST": on_numbers(lambda e, x: e.cast(x, _result(e))),
        "CONCATENATION": on_codes(_concat),
        "DYNAMIC_UPDATE_SLICE": on_codes(_overwrite),
        "EMBEDDING_LOOKUP": on_numbers(lambda e, index, x: e.emit("index_select", x, index, axis=0, wraps=False)),
        "GATHER": on_codes(
            lambda e, x, index, axis=0, batch_dims=0: gather(
                e, x, index, normal_axis(e, axis, x.tensor.rank), batch_dims
            )
        ),
        "GELU": on_numbers(lambda e, x, approximate=False: e.emit("gelu", x, approximate=approximate)),
        "HARD_SWISH": on_numbers(_hard_swish),
        "L2_NORMALIZATION": on_numbers(_normalised),
        "LOCAL_RESPONSE_NORMALIZATION": on_numbers(
            lambda e, x, radius, bias, alpha, beta: known["LRN"](
                e, x, depth_radius=radius, bias=bias, alpha=alpha, beta=beta
            )
        ),
        "MATRIX_DIAG": on_codes(lambda e, x: e.emit("diag_embed", x, offset=0)),
        "MATRIX_SET_DIAG": on_codes(_with_diagonal),
        "MIRROR_PAD": on_codes(lambda e, x, pads, mode=0: known["MirrorPad"](e, x, pads, mode=MIRRORS[mode])),
        "PACK": on_codes(lambda e, *tensors, values_count=0, axis=0: e.emit("stack", *tensors, axis=axis)),
        "PAD": _pad,
        "PADV2": on_codes(known["PadV2"]),
        "PRELU": on_numbers(_leaky),
        "RELU_0_TO_1": on_numbers(lambda e, x: e.emit("clamp", x, min=0.0, max=1.0)),
        "RELU_N1_TO_1": on_numbers(lambda e, x: e.emit("clamp", x, min=-1.0, max=1.0)),
        "RESHAPE": on_codes(_reshape),
        "SOFTMAX": on_numbers(_softmax),
        "SPLIT": on_codes(lambda e, axis, x, num_splits: known["Split"](e, axis, x, num_split=num_splits)),
        "SPLIT_V": on_codes(lambda e, x, sizes, axis, num_splits: known["SplitV"](e, x, sizes, axis, num_splits)),
        "STRIDED_SLICE": on_codes(_strided_slice),
        "UNIQUE": lambda e, x, idx_out_type: known["Unique"](e, x, out_idx=idx_out_type),
    }


def _result(e: LiteEmitter) -> DType:
    dtype = e.results[0].dtype
    if dtype is None:
        raise UnsupportedOp(f"{e.operator} to element type {e.results[0].type_number}, which is not known")
    return dtype


def _concat(e: LiteEmitter, *tensors: Value, axis: int) -> Value:
    return e.emit("concat", *tensors, axis=normal_axis(e, axis, tensors[0].tensor.rank))


def _reshape(e: LiteEmitter, x: Value, shape: Value | None = None, new_shape: tuple[int, ...] = ()) -> Value:
    """The shape is an operand, or an option of old files."""
    wanted = e.array(list(new_shape)) if shape is None else shape
    made = tensorflow_table()["Reshape"](e, x, e.cast(wanted, dtypes.i32))
    assert isinstance(made, Value)
    return made


def _pad(e: LiteEmitter, x: Value, pads: Value) -> Any:
    """With zeros, which a code stands for."""
    quantisation = quantisation_of(e.operands[0])
    if quantisation is None or not quantisation.equals(quantisation_of(e.results[0])):
        return on_numbers(tensorflow_table()["Pad"])(e, x, pads)
    zero = e.constant(int(quantisation.zero.reshape(-1)[0]), x.tensor.dtype)
    return tensorflow_table()["PadV2"](e, x, pads, zero)


def _overwrite(e: LiteEmitter, x: Value, update: Value, start: Value) -> Value:
    """x with `update` at a start that is moved so far that it lies inside."""
    i64 = dtypes.i64
    rank = x.tensor.rank
    index: list[Value] = []
    for axis, (extent, count) in enumerate(zip(x.tensor.shape, update.tensor.shape, strict=True)):
        first = e.cast(e.emit("select", start, axis=0, index=axis), i64)
        first = e.emit("maximum", e.emit("minimum", first, e.size(extent - count)), e.constant(0, i64))
        steps = e.emit("add", e.emit("arange", start=0, stop=count, dtype=i64), first)
        index.append(e.unsqueeze(steps, tuple(range(1, rank - axis))))
    return e.emit("index_put", x, update, *index)


def _strided_slice(e: LiteEmitter, x: Value, begin: Value, end: Value, strides: Value, **masks: Any) -> Any:
    if masks.pop("offset"):
        # The end counts from the begin.
        end = e.emit("add", begin, end)
    return tensorflow_table()["StridedSlice"](e, x, begin, end, strides, **masks)


def _softmax(e: LiteEmitter, x: Value, beta: float) -> Value:
    if beta != 1.0:
        if not math.isfinite(beta):
            raise ImportFailed(f"{e.operator}: beta is {beta}")
        x = e.emit("mul", x, e.constant(beta, x.tensor.dtype))
    return e.emit("softmax", x, axis=-1)


def _hard_swish(e: LiteEmitter, x: Value) -> Value:
    """x * relu6(x + 3) / 6."""
    return e.emit("hardswish", x)


def _leaky(e: LiteEmitter, x: Value, slope: Value) -> Value:
    zero = e.constant(0, x.tensor.dtype)
    return e.emit("where", e.emit("greater_equal", x, zero), x, e.emit("mul", x, slope))


_TINY = 1e-6
"""The least length that a vector is divided by."""


def _normalised(e: LiteEmitter, x: Value) -> Value:
    total = e.emit("sum", e.emit("square", x), axes=(-1,), keepdim=True)
    return e.emit("div", x, e.emit("maximum", e.emit("sqrt", total), e.constant(_TINY, x.tensor.dtype)))


def _with_diagonal(e: LiteEmitter, x: Value, diagonal: Value) -> Value:
    return e.emit("diagonal_scatter", x, diagonal, offset=0, axis1=x.tensor.rank - 2, axis2=x.tensor.rank - 1)
