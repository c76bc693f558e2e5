"""Python's operators on tensors of several element types: computed in the type that torch computes them in."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.api.flow.operation import apply
from hidet.api.tensors import create
from hidet.api.tensors.tensor import Tensor, is_array
from hidet.dtypes import DType
from hidet.errors import DTypeError

Number = bool | int | float


def compute(operator: str, a: object, b: object) -> Tensor:
    """The result of an operator of the graph IR that stands for one of Python's, on tensors, arrays of other
    libraries, and numbers.

    Both sides are converted to one type; `div` computes with whole numbers in f32. DTypeError for types that do not
    promote to a common one, as those of 8-bit floats.
    """
    sides = [create.asarray(side) if is_array(side) else side for side in (a, b)]
    given: list[Tensor | Number] = []
    for side in sides:
        if not isinstance(side, Tensor | bool | int | float):
            raise DTypeError(
                f"an operator got a {type(side).__name__}: {operator}", hint="hidet.asarray makes a tensor"
            )
        given.append(side)
    dtype = common_type(given)
    if operator == "div" and (dtype.is_int or dtype.is_bool):
        dtype = dtypes.f32
    device = next((side.device for side in given if isinstance(side, Tensor)), "cpu")
    return apply(operator, [_converted(side, dtype, device) for side in given])[0]


def common_type(given: Sequence[Tensor | Number]) -> DType:
    """The type of an element-wise result, as `torch.result_type` has it.

    Tensors with dims count most, tensors without dims next, numbers least: what counts less matters only where its kind
    (bool, integers, floats, complex) is higher. A float beside integers is f32, an integer beside bool i64.
    """
    ranks: list[DType | None] = [None, None, None]
    for each in given:
        rank, dtype = (int(not each.shape), each.dtype) if isinstance(each, Tensor) else (2, _type_of(each))
        known = ranks[rank]
        ranks[rank] = dtype if known is None else dtypes.promote(known, dtype)
    types = [dtype for dtype in ranks if dtype is not None]
    return max(types, key=_kind)  # the first of equals


def _type_of(number: Number) -> DType:
    if isinstance(number, bool):
        return dtypes.boolean
    return dtypes.i64 if isinstance(number, int) else dtypes.f32


def _kind(dtype: DType) -> int:
    return 0 if dtype.is_bool else 1 if dtype.is_int else 2 if dtype.is_float else 3


def _converted(given: Tensor | Number, dtype: DType, device: str) -> Tensor:
    if not isinstance(given, Tensor):
        return create.full((), given, dtype, device)
    return given if given.dtype == dtype else apply("cast", [given], {"dtype": dtype})[0]
