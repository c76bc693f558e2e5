"""What the numbers in TFLite files mean: version 3 of the schema, with what TensorFlow 2.18 and LiteRT added to it.

These tables are our own, so that a file needs nothing to be read; a test compares them with PyPI's `tflite` 2.18.0.
Fields keep their numbers for ever, so that files of later versions read alike but for operators that are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType

VERSION = 3
IDENTIFIER = b"TFL3"
"""Bytes 4 to 8 of a file."""

CUSTOM = 32
"""The number of an operator that has a name of its own."""

_NAMES = """ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM
MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS
SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN
EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG
SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU
SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE
MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND
SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D
CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE
VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL
GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT"""

OPERATORS: tuple[str, ...] = tuple(_NAMES.split())
"""Names of operators by number. Those behind are of StableHLO, which converters do not write by themselves."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an operator's options. code: of `struct`; "*i" for a vector, "type" an element type, "s" a text."""

    name: str
    code: str
    default: Any


def _fields(text: str) -> tuple[Field, ...]:
    """Of "name:code=default name:code …", in the order of their numbers; "_" is one that says nothing to us."""
    made = []
    for entry in text.split():
        name, _, rest = entry.partition(":")
        code, _, default = rest.partition("=")
        read = float if code == "f" else int
        made.append(Field(name, code or "b", read(default) if default else 0))
    return tuple(made)


_REDUCER = "keep_dims:?"
_ACTIVATED = "activation:b"

FIELDS: Mapping[str, tuple[Field, ...]] = {
    name: _fields(text)
    for name, text in {
        "ADD": _ACTIVATED,
        "ARG_MAX": "output_type:type",
        "ARG_MIN": "output_type:type",
        "AVERAGE_POOL_2D": "padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b",
        "BATCH_MATMUL": "adj_x:? adj_y:?",
        "BIDIRECTIONAL_SEQUENCE_LSTM": "activation:b cell_clip:f proj_clip:f merge_outputs:? time_major:?=1",
        "BUCKETIZE": "boundaries:*f",
        "CALL_ONCE": "init_subgraph:i",
        "CONCATENATION": "axis:i activation:b",
        "CONV_2D": "padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1",
        "CONV_3D": "padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 dilation_w:i=1 "
        "dilation_h:i=1",
        "CUMSUM": "exclusive:? reverse:?",
        "DEPTHWISE_CONV_2D": "padding:b stride_w:i stride_h:i depth_multiplier:i activation:b dilation_w:i=1 "
        "dilation_h:i=1",
        "DEPTH_TO_SPACE": "block_size:i",
        "DIV": _ACTIVATED,
        "FAKE_QUANT": "min:f max:f num_bits:i narrow_range:?",
        "FULLY_CONNECTED": "activation:b weights_format:b keep_num_dims:?",
        "GATHER": "axis:i batch_dims:i",
        "GELU": "approximate:?",
        "IF": "then_subgraph:i else_subgraph:i",
        "L2_NORMALIZATION": _ACTIVATED,
        "L2_POOL_2D": "padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b",
        "LEAKY_RELU": "alpha:f",
        "LOCAL_RESPONSE_NORMALIZATION": "radius:i bias:f alpha:f beta:f",
        "MAX_POOL_2D": "padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b",
        "MEAN": _REDUCER,
        "MIRROR_PAD": "mode:b",
        "MUL": _ACTIVATED,
        "ONE_HOT": "axis:i",
        "PACK": "values_count:i axis:i",
        "REDUCE_ALL": _REDUCER,
        "REDUCE_ANY": _REDUCER,
        "REDUCE_MAX": _REDUCER,
        "REDUCE_MIN": _REDUCER,
        "REDUCE_PROD": _REDUCER,
        "RESHAPE": "new_shape:*i",
        "RESIZE_BILINEAR": "_:i _:i align_corners:? half_pixel_centers:?",
        "RESIZE_NEAREST_NEIGHBOR": "align_corners:? half_pixel_centers:?",
        "REVERSE_SEQUENCE": "seq_dim:i batch_dim:i",
        "SHAPE": "out_type:type",
        "SOFTMAX": "beta:f",
        "SPACE_TO_DEPTH": "block_size:i",
        "SPLIT": "num_splits:i",
        "SPLIT_V": "num_splits:i",
        "SQUEEZE": "squeeze_dims:*i",
        "STRIDED_SLICE": "begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:?",
        "SUB": _ACTIVATED,
        "SUM": _REDUCER,
        "TRANSPOSE_CONV": "padding:b stride_w:i stride_h:i activation:b",
        "UNIDIRECTIONAL_SEQUENCE_LSTM": "activation:b cell_clip:f proj_clip:f time_major:? _:? diagonal_recurrent:?",
        "UNIDIRECTIONAL_SEQUENCE_RNN": "time_major:? activation:b",
        "BIDIRECTIONAL_SEQUENCE_RNN": "time_major:? activation:b merge_outputs:?",
        "UNIQUE": "idx_out_type:type=2",
        "UNPACK": "num:i axis:i",
        "VAR_HANDLE": "container:s shared_name:s",
        "WHILE": "cond_subgraph:i body_subgraph:i",
    }.items()
}
"""Options of operators that have any. An element type is absent as 0, float32."""

DTYPES: Mapping[int, DType] = {
    0: dtypes.f32,
    1: dtypes.f16,
    2: dtypes.i32,
    3: dtypes.u8,
    4: dtypes.i64,
    6: dtypes.boolean,
    7: dtypes.i16,
    9: dtypes.i8,
    10: dtypes.f64,
    12: dtypes.u64,
    15: dtypes.u32,
    16: dtypes.u16,
    17: dtypes.dtype("int4"),
    18: dtypes.bf16,
}
"""Element types by number; those of strings, complex numbers, variables and lists are not known."""

PADDINGS: Mapping[int, str] = {0: "SAME", 1: "VALID"}
MIRRORS: Mapping[int, str] = {0: "REFLECT", 1: "SYMMETRIC"}
ACTIVATIONS: tuple[str, ...] = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
