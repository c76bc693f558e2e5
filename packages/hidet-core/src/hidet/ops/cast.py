"""Changing the element type: by value, or by reading the same bits."""

from __future__ import annotations

from hidet.compute.definition import Definition, Operand
from hidet.dtypes import DType
from hidet.errors import DTypeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr
from hidet.ops.rules import map_elements, require_dtype


def _cast(x: Operand, *, dtype: DType) -> Definition:
    require_dtype("cast", x, "data")
    if dtype.is_host_only or (dtype != x.dtype and (dtype.is_complex or x.dtype.is_complex)):
        raise DTypeError(f"operator cast cannot convert {x.dtype} to {dtype}")
    return map_elements("cast", (x,), lambda element: build.cast(element, dtype))


def _bitcast(x: Operand, *, dtype: DType) -> Definition:
    require_dtype("bitcast", x, "data")
    if dtype.bits != x.dtype.bits or dtype.is_bool:
        raise DTypeError(
            f"operator bitcast needs a type of {x.dtype.bits} bits other than bool, got {dtype} of {dtype.bits} bits"
        )

    def value(element: Expr) -> Expr:
        return element if element.dtype == dtype else Bitcast(element, dtype)

    return map_elements("bitcast", (x,), value)


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="cast",
        inputs=("x",),
        attributes=(Attribute("dtype", doc="the new DType"),),
        define=_cast,
        doc="x converted to another element type: floats are rounded to nearest even, floats to integers truncated "
        "towards 0, anything to bool by comparing with 0. Element-wise; torch.Tensor.to.",
    ),
    OperatorSpec(
        name="bitcast",
        inputs=("x",),
        attributes=(Attribute("dtype", doc="a DType of the same number of bits"),),
        define=_bitcast,
        doc="The bits of x read as another type of the same size; torch.Tensor.view(dtype). Element-wise.",
    ),
)
