"""Products of small floats whose blocks have scales, as models with 8-bit weights and activations have them.

Scales of whole matrices, rows and columns are factors of the result, for which `matmul` and `mul` are enough; those of
blocks along the sum are not. (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.compute.definition import SUM, Definition, Operand, compute, reduce, single
from hidet.dims import ceildiv
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import require_rank, same_extent

if TYPE_CHECKING:
    from hidet.graph.builder import GraphBuilder
    from hidet.graph.graph import Value

_NAME = "block_scaled_matmul"


def _block_scaled_matmul(
    a: Operand,
    b: Operand,
    scale_a: Operand,
    scale_b: Operand,
    *,
    trans_b: bool,
    dtype: DType,
    rows: int,
    columns: int,
    size: int,
) -> Definition:
    operands = (a, b, scale_a, scale_b)
    for operand in operands:
        require_rank(_NAME, operand, at_least=2, at_most=2)
        if not operand.dtype.is_float:
            raise DTypeError(f"operator {_NAME} takes floating-point types, got {operand.dtype} for {operand.name}")
    if not dtype.is_float or dtype.bits < 16:
        raise DTypeError(f"operator {_NAME}: results of {dtype}, expected floats of at least 16 bits")
    if min(rows, columns, size) < 1:
        raise ShapeError(f"operator {_NAME}: blocks of {rows} x {columns} x {size}, expected positive numbers")
    m, n = a.shape[0], b.shape[0 if trans_b else 1]
    k = same_extent(a.shape[1], b.shape[1 if trans_b else 0], f"operator {_NAME}: columns of a against rows of b")
    blocks = ceildiv(k, size)
    expected = ((scale_a, (ceildiv(m, rows), blocks)), (scale_b, (blocks, ceildiv(n, columns))))
    for scale, shape in expected:
        for got, wanted in zip(scale.shape, shape, strict=True):
            same_extent(got, wanted, f"operator {_NAME}: {scale.name} against the blocks that it scales")

    def value(i: Expr, j: Expr) -> Expr:
        def product(r: Expr) -> Expr:
            block = r // size
            left = build.cast(a[i, r], dtypes.f32) * build.cast(scale_a[i // rows, block], dtypes.f32)
            right = b[j, r] if trans_b else b[r, j]
            return left * (build.cast(right, dtypes.f32) * build.cast(scale_b[block, j // columns], dtypes.f32))

        return build.cast(reduce(SUM, (k,), product), dtype)

    return single(operands, compute(_NAME, (m, n), value))


def _decompose(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    """A product of f32, of matrices that are multiplied with their scales before."""
    a, b, scale_a, scale_b = inputs
    assert a is not None and b is not None and scale_a is not None and scale_b is not None
    if attrs["trans_b"]:
        b = builder.emit("transpose", b, perm=(1, 0))
    left = _scaled(builder, a, scale_a, (attrs["rows"], attrs["size"]))
    right = _scaled(builder, b, scale_b, (attrs["size"], attrs["columns"]))
    return (builder.emit("cast", builder.emit("matmul", left, right), dtype=attrs["dtype"]),)


def _scaled(builder: GraphBuilder, x: Value, scale: Value, blocks: tuple[int, int]) -> Value:
    """A matrix times the scales of its blocks, in f32."""
    for axis, size in enumerate(blocks):
        if size != 1:
            scale = builder.emit("repeat_interleave", scale, repeats=size, axis=axis)
    scale = builder.emit("slice", scale, starts=(0, 0), stops=x.tensor.shape)
    return builder.emit("mul", *(builder.emit("cast", value, dtype=dtypes.f32) for value in (x, scale)))


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name=_NAME,
        inputs=("a", "b", "scale_a", "scale_b"),
        attributes=(
            Attribute("trans_b", False),
            Attribute("dtype", dtypes.bf16, "type of the result; sums are f32"),
            Attribute("rows", 1, "neighbours along m of a that share a scale"),
            Attribute("columns", 128, "neighbours along n of b that share a scale"),
            Attribute("size", 128, "neighbours along k of either that share a scale"),
        ),
        kind="anchor",
        define=_block_scaled_matmul,
        decompose=_decompose,
        family="matmul",
        doc="a[m, k] @ b[k, n] -> [m, n] of floats, whose blocks are multiplied with scales first: "
        "scale_a[ceil(m / rows), ceil(k / size)] and scale_b[ceil(k / size), ceil(n / columns)]. "
        "trans_b: b is [n, k]. torch.nn.functional.scaled_mm, ScalingType.BlockWise.",
    ),
)
"""Products with scales of blocks."""
