"""What operator families share: which element types fit, in which type arithmetic is done, broadcasting, axes.

Every place where two sizes have to agree goes through `same_extent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute, single
from hidet.dims import Dim, last_place, prove_equal, prove_le, prove_lt
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError
from hidet.ir import build
from hidet.ir.expr import Expr

Accepts = Literal["float", "int", "bits", "number", "any", "data"]

_ACCEPTED: dict[Accepts, tuple[Callable[[DType], bool], str]] = {
    "float": (lambda d: d.is_float and d.is_compute, "a floating-point type"),
    "int": (lambda d: d.is_int and d.is_compute, "an integer type"),
    "bits": (lambda d: (d.is_int or d.is_bool) and d.is_compute, "an integer type or bool"),
    "number": (lambda d: (d.is_int or d.is_float) and d.is_compute, "an integer or floating-point type"),
    "any": (lambda d: d.is_compute, "a type that kernels compute in"),
    "data": (lambda d: not d.is_host_only, "a type that kernels can move"),
}


def accepted_types(accepts: Accepts) -> str:
    """The element types of a kind in words: "a floating-point type"."""
    return _ACCEPTED[accepts][1]


def require_dtype(operator: str, operand: Operand, accepts: Accepts) -> None:
    """DTypeError unless the element type of `operand` is of the accepted kind."""
    fits, expected = _ACCEPTED[accepts]
    if not fits(operand.dtype):
        raise DTypeError(
            f"operator {operator} takes {expected} for {operand.name}, got {operand.dtype}",
            hint="convert the input with the cast operator first",
        )


def require_same_dtype(operator: str, operands: Sequence[Operand]) -> DType:
    """The common element type of `operands`; DTypeError when they differ."""
    first = operands[0]
    for other in operands[1:]:
        if other.dtype != first.dtype:
            raise DTypeError(
                f"operator {operator} takes inputs of one element type, "
                f"got {first.dtype} for {first.name} and {other.dtype} for {other.name}",
                hint="convert one of them with the cast operator first",
            )
    return first.dtype


def require_rank(operator: str, operand: Operand, *, at_least: int, at_most: int | None = None) -> None:
    """ShapeError unless the rank of `operand` lies in the range; `at_most` None is no limit."""
    if operand.rank < at_least or (at_most is not None and operand.rank > at_most):
        if at_most is None:
            expected = f"at least {at_least}"
        else:
            expected = str(at_least) if at_least == at_most else f"{at_least} to {at_most}"
        raise ShapeError(
            f"operator {operator} takes {expected} axes for {operand.name}, "
            f"got {operand.rank} of shape {shape_text(operand.shape)}"
        )


def arithmetic_dtype(dtype: DType) -> DType:
    """The type in which values of `dtype` are computed and accumulated: f32 for f16 and bf16, else the type itself."""
    return dtypes.f32 if dtype in dtypes.FLOATS_OF_16_BITS else dtype


def widen(value: Expr) -> Expr:
    """`value` in its arithmetic type."""
    return build.cast(value, arithmetic_dtype(value.dtype))


def truth(value: Expr) -> Expr:
    """Whether `value` is not zero; NaN is not zero."""
    return value if value.dtype.is_bool else build.binary("ne", value, 0)


def shape_text(shape: Sequence[Dim]) -> str:
    """A shape for messages: [2, s0]."""
    return f"[{', '.join(map(str, shape))}]"


def same_extent(a: Dim, b: Dim, what: str) -> Dim:
    """The extent that `a` and `b` have in common; `what` names the place for messages.

    ShapeError when they provably differ. When that is unknown they are taken to be equal, and a fixed number is
    preferred to a symbolic one.
    """
    verdict = prove_equal(a, b)
    if verdict is False:
        raise ShapeError(f"{what}: extents {a} and {b} differ")
    return b if isinstance(b, int) and not isinstance(a, int) else a


def require_within(part: Sequence[Dim], whole: Sequence[Dim], what: str, besides: int | None = None) -> None:
    """ShapeError when an extent of `part` is provably greater than that of `whole`, the axis `besides` left out."""
    for axis, (have, room) in enumerate(zip(part, whole, strict=False)):
        if axis != besides and prove_le(have, room) is False:
            raise ShapeError(f"{what}: extent {have} of axis {axis} is greater than {room}")


def require_places(name: str, count: Dim, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim) -> None:
    """ShapeError unless places that lie `strides` apart, from `offset` on, may all be among `count` elements."""
    if 0 in shape:
        return
    last = offset + last_place(shape, strides)
    if prove_le(0, offset) is False or prove_lt(last, count) is False:
        raise ShapeError(f"operator {name} takes elements {offset} to {last} of a tensor that has {count}")


def broadcast_shapes(operator: str, shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """The common shape under numpy's rule: shapes are aligned right, axes of extent 1 repeat.

    A symbolic extent is taken not to be 1. ShapeError when two extents provably differ.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = extent
            elif extent not in (1, result[axis]):
                texts = " and ".join(map(shape_text, shapes))
                what = f"operator {operator} cannot broadcast shapes {texts} on axis {axis}"
                result[axis] = same_extent(result[axis], extent, what)
    return tuple(result)


def require_broadcasts_to(operator: str, operand: Operand, shape: Sequence[Dim]) -> None:
    """ShapeError when `operand` broadcast against `shape` provably gives another shape than that."""
    merged = broadcast_shapes(operator, (shape, operand.shape))
    if len(merged) != len(shape) or any(prove_equal(a, b) is False for a, b in zip(merged, shape, strict=True)):
        raise ShapeError(
            f"operator {operator}: {operand.name} of shape {shape_text(operand.shape)} "
            f"does not broadcast to {shape_text(shape)}"
        )


def read_broadcast(operand: Operand, axes: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """The element of `operand` at `axes` of the broadcast result of `shape`; repeated axes are read at 0."""
    skipped = len(axes) - operand.rank
    indices = [
        build.index(0) if extent == 1 and target != 1 else axis
        for axis, extent, target in zip(axes[skipped:], operand.shape, shape[skipped:], strict=True)
    ]
    return operand[tuple(indices)]


def map_elements(operator: str, operands: Sequence[Operand], value: Callable[..., Expr]) -> Definition:
    """An element-wise definition: `value` of one element of each operand, broadcast against each other."""
    shape = broadcast_shapes(operator, [operand.shape for operand in operands])
    stage = compute(operator, shape, lambda *axes: value(*[read_broadcast(o, axes, shape) for o in operands]))
    return single(operands, stage)


def normalize_axis(operator: str, axis: int, rank: int) -> int:
    """`axis` counted from the front; negative ones count from the end. ShapeError when it does not exist.

    A tensor without axes is treated as having one, as torch does.
    """
    limit = max(rank, 1)
    if not -limit <= axis < limit:
        raise ShapeError(f"operator {operator}: axis {axis} does not exist in a tensor with {rank} axes")
    return axis % limit


def normalize_axes(operator: str, axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Distinct axes counted from the front, in rising order; None or none given means all of them."""
    if isinstance(axes, int):
        axes = (axes,)
    if not axes:
        return tuple(range(rank))
    found = sorted(normalize_axis(operator, axis, rank) for axis in axes)
    for one, following in pairwise(found):
        if one == following:
            raise ShapeError(f"operator {operator}: axis {one} is given twice in {tuple(axes)}")
    return tuple(axis for axis in found if axis < rank)


def wrap_index(index: Expr, extent: Dim, wraps: bool = True) -> Expr:
    """A position as i64; negative ones count from the end of an axis of `extent` where `wraps` is true."""
    position = build.cast(index, build.INDEX)
    if not wraps or not index.dtype.is_signed:
        return position
    return build.select(position < 0, position + build.index(extent), position)


def clamped_position(bound: Expr, extent: Expr) -> Expr:
    """A position from 0 to `extent`: nothing outside of the axis is read, whatever the data say."""
    return build.maximum(build.minimum(build.cast(bound, build.INDEX), extent), 0)


def present(*operands: Operand | None) -> tuple[Operand, ...]:
    """The operands that are given, in order."""
    return tuple(operand for operand in operands if operand is not None)


def without_offset(squares: Expr, offset: Expr) -> Expr:
    """A sum or average of squared distances from a rounded mean without what its rounding adds, at least 0; itself
    where it is infinite or NaN."""
    corrected = build.maximum(squares - offset, 0)
    return build.select(squares < math.inf, corrected, squares)
