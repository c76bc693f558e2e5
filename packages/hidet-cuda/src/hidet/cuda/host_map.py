"""Tensor maps in host code: calls of the driver's encoders (CUDA driver API, "Tensor Map Object Management")."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.cuda.launch_context import ENCODE, ENCODE_COLUMNS
from hidet.cuda.tensor_map import MAP_WORDS, MapRequest
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Call, Const, Expr, Var
from hidet.ir.types import BufferType

_ALIGN = 64
# CUtensorMapDataType of unsigned integers by their bytes: boxes are copied bit by bit, whatever they mean.
_TYPES = {1: 0, 2: 1, 4: 2, 8: 4}
# CUtensorMapDataType of what is added to, which has to be known.
_ADDED_TYPES = {
    dtypes.u32: 2,
    dtypes.i32: 3,
    dtypes.u64: 4,
    dtypes.i64: 5,
    dtypes.f16: 6,
    dtypes.f32: 7,
    dtypes.f64: 8,
    dtypes.bf16: 9,
}
# CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: f32 in memory, of which TMA rounds what it brings.
_TF32 = 11
_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
_NO_INTERLEAVE, _ZERO_OUTSIDE = 0, 0
# CUtensorMapL2promotion: what TMA reads is brought into the second-level cache in pieces of 256 or of 128 bytes.
_BY_256_BYTES, _BY_128_BYTES = 3, 2
_LINE_BYTES = 128


def encoded_map(request: MapRequest, status: Var, is_added_to: bool) -> tuple[list[s.Stmt], Expr]:
    """Statements that make a map and assign the driver's result to `status`, an i32, and the map's address, an i64.

    is_added_to: whether a kernel may add to what the map describes. CodegenError for elements that no map has.
    """
    element_type = _element_type(request.pointer.dtype, is_added_to)
    rank = len(request.sizes)
    # A local array is aligned to its elements, a map to 64 bytes.
    space = _array("map_space", dtypes.i64, MAP_WORDS + _ALIGN // 8)
    place = build.size_var("map_place")
    raised = Bitcast(build.address(space, 0), dtypes.i64) + (_ALIGN - 1)
    stmts: list[s.Stmt] = [s.Declare(space), s.Declare(place, build.binary("and", raised, ~(_ALIGN - 1)))]

    def listed(name: str, dtype: dtypes.DType, values: Sequence[Expr | int]) -> Expr:
        """The address of an array of `values`; the driver wants one where there are none as well."""
        array = _array(name, dtype, max(len(values), 1))
        stmts.append(s.Declare(array))
        for number, value in enumerate(values):
            stmts.append(s.Store(array, (build.index(number),), _as(dtype, value)))
        return Bitcast(build.address(array, 0), dtypes.i64)

    sizes, strides = listed("map_sizes", dtypes.i64, request.sizes), listed("map_strides", dtypes.i64, request.strides)
    columns = request.columns
    if columns is None:
        encoder, steps = ENCODE, list[Expr | int]([1] * rank)
        copied = [listed("map_box", dtypes.u32, request.box)]
    else:
        encoder, steps = ENCODE_COLUMNS, [1, *columns.steps, 1]
        copied = [listed("map_lower", dtypes.i32, columns.lower), listed("map_upper", dtypes.i32, columns.upper)]
        copied += [_as(dtypes.i32, request.box[0]), _number(columns.pixels)]
    copied.append(listed("map_steps", dtypes.u32, steps))
    layout, outside = map(_number, (_NO_INTERLEAVE, _ZERO_OUTSIDE))
    options = (layout, _number(_SWIZZLES[request.swizzle]), _promotion(request.strides), outside)
    described = (_number(element_type), _number(rank), Bitcast(request.pointer, dtypes.i64), sizes, strides)
    stmts.append(s.Assign(status, Call(encoder, (place, *described, *copied, *options), dtypes.i32)))
    return stmts, place


def _promotion(strides: Sequence[Expr]) -> Expr:
    """How much of memory comes at once. A row of a box that begins within a line of the cache is in two of them: by 256
    bytes four would come (4096 x 4104 times 4104 x 4096 of f16 on an H200: 288 us by 256 bytes, 247 by 128). Where rows
    begin with a line, 256 bytes are right (8 x 8192 times 8192 x 28672: 130 us, and 141)."""
    are_lines = build.logical_and(*(build.equal(stride % _LINE_BYTES, 0) for stride in strides)) if strides else None
    by_256, by_128 = map(_number, (_BY_256_BYTES, _BY_128_BYTES))
    return by_256 if are_lines is None else build.select(are_lines, by_256, by_128)


def _element_type(dtype: dtypes.DType, is_added_to: bool) -> int:
    if dtype is dtypes.tf32:
        return _TF32
    if is_added_to and dtype in _ADDED_TYPES:
        return _ADDED_TYPES[dtype]
    if dtype.nbytes not in _TYPES:
        raise CodegenError(f"a tensor map has elements of {dtype}; their size is not 1, 2, 4 or 8 bytes")
    return _TYPES[dtype.nbytes]


def _array(name: str, dtype: dtypes.DType, count: int) -> Var:
    return Var(name, BufferType(dtype, (build.index(count),), space="local"))


def _as(dtype: dtypes.DType, value: Expr | int) -> Expr:
    return Const(value, dtype) if isinstance(value, int) else build.cast(value, dtype)


def _number(value: int) -> Const:
    return Const(value, dtypes.i32)
