"""Matrix products.

f16 and bf16 products are accumulated in f32 and rounded once; integers accumulate in their own type, or in that of the
result where `matmul` is given one, as products of 8-bit numbers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.compute.definition import SUM, Definition, Operand, compute, number, reduce, single
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import DTypeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.precision import FP32_PRECISION, require_precision
from hidet.operators.rules import (
    arithmetic_dtype,
    broadcast_shapes,
    present,
    read_broadcast,
    require_broadcasts_to,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
    widen,
)

if TYPE_CHECKING:
    from hidet.graph.builder import GraphBuilder
    from hidet.graph.graph import Value


def _matmul(
    a: Operand,
    b: Operand,
    *,
    trans_a: bool,
    trans_b: bool,
    fp32_precision: str,
    dtype: DType | None,
    fast_accum: bool,
) -> Definition:
    require_precision("matmul", fp32_precision)
    for operand in (a, b):
        require_rank("matmul", operand, at_least=2)
        if dtype is None:
            require_dtype("matmul", operand, "number")
    result = _result_dtype(a, b, dtype)
    total = sum_dtype(a.dtype, dtype)
    m, k = reversed(a.shape[-2:]) if trans_a else a.shape[-2:]
    inner, n = reversed(b.shape[-2:]) if trans_b else b.shape[-2:]
    k = same_extent(k, inner, "operator matmul: columns of a against rows of b")
    batch = broadcast_shapes("matmul", (a.shape[:-2], b.shape[:-2]))

    def value(*axes: Expr) -> Expr:
        *outer, i, j = axes

        def product(r: Expr) -> Expr:
            left = _read_matrix(a, outer, batch, (r, i) if trans_a else (i, r))
            right = _read_matrix(b, outer, batch, (j, r) if trans_b else (r, j))
            return build.cast(left, total) * build.cast(right, total)

        return build.cast(reduce(SUM, (k,), product), result)

    return single((a, b), compute("matmul", (*batch, m, n), value))


def sum_dtype(factor: DType, result: DType | None) -> DType:
    """The type in which products of elements of `factor` are added up, for results of `result`; None for the same."""
    if result is None:
        return arithmetic_dtype(factor)
    return dtypes.f32 if result.is_float and result.bits < 32 else result


def _result_dtype(a: Operand, b: Operand, dtype: DType | None) -> DType:
    """The type of a result. DTypeError for one that does not hold products of the operands' kind."""
    if dtype is None:
        return require_same_dtype("matmul", (a, b))
    types = (a.dtype, b.dtype, dtype)
    if not all(each.is_float for each in types) and not all(each.is_int for each in types):
        raise DTypeError(f"operator matmul: results of {dtype} for products of {a.dtype} and {b.dtype}")
    if any(operand.dtype.bits > dtype.bits for operand in (a, b)):
        raise DTypeError(f"operator matmul: results of {dtype} are narrower than factors of {a.dtype} and {b.dtype}")
    return dtype


def _read_matrix(operand: Operand, outer: Sequence[Expr], batch: Sequence[Dim], inner: tuple[Expr, Expr]) -> Expr:
    """Element `inner` of the matrix of `operand` that batch index `outer` selects."""
    matrix = operand.shape[-2:]
    return read_broadcast(operand, (*outer, *inner), (*batch, *matrix))


def _linear(x: Operand, weight: Operand, bias: Operand | None = None, *, fp32_precision: str) -> Definition:
    return _by_weights("linear", x, {"weight": weight}, bias, "weight", fp32_precision)


def _stacked_linear(
    x: Operand, weight: Operand, bias: Operand | None = None, *others: Operand, fp32_precision: str
) -> Definition:
    weights = {f"weight {number_}": each for number_, each in enumerate((weight, *others))}
    return _by_weights("stacked_linear", x, weights, bias, "all weights", fp32_precision)


def _by_weights(
    name: str, x: Operand, named: Mapping[str, Operand], bias: Operand | None, together: str, fp32_precision: str
) -> Definition:
    """A linear by weights whose rows stand below each other. named: what errors call them; `together`: all of them."""
    require_precision(name, fp32_precision)
    weights = tuple(named.values())
    operands = present(x, weights[0], bias, *weights[1:])
    for operand in operands:
        require_dtype(name, operand, "number")
    require_rank(name, x, at_least=1)
    for weight in weights:
        require_rank(name, weight, at_least=2, at_most=2)
    dtype, k = require_same_dtype(name, operands), x.shape[-1]
    for called, weight in named.items():
        k = same_extent(k, weight.shape[1], f"operator {name}: last axis of x against columns of {called}")
    ends = list(accumulate(weight.shape[0] for weight in weights))
    if bias is not None:
        require_rank(name, bias, at_least=1, at_most=1)
        same_extent(bias.shape[0], ends[-1], f"operator {name}: bias against rows of {together}")

    def value(*axes: Expr) -> Expr:
        *rows, j = axes

        def factor(r: Expr) -> Expr:
            starts = (0, *ends)
            return build.select_part(j, ends, lambda n: weights[n][j - build.index(starts[n]), r])

        return build.cast(weighted_sum(x, rows, k, factor, None if bias is None else bias[j]), dtype)

    return single(operands, compute(name, (*x.shape[:-1], ends[-1]), value))


def weighted_sum(x: Operand, rows: Sequence[Expr], k: Dim, factor: Callable[[Expr], Expr], bias: Expr | None) -> Expr:
    """The sum over r below `k` of x[*rows, r] * factor(r), plus the bias, in the arithmetic type."""
    total: Expr = reduce(SUM, (k,), lambda r: widen(x[(*rows, r)]) * widen(factor(r)))
    return total if bias is None else total + widen(bias)


def _decompose_stacked_linear(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    x, weight, bias, *others = inputs
    assert x is not None and weight is not None
    stack = builder.emit("concat", weight, *[each for each in others if each is not None], axis=0)
    return (builder.emit("linear", x, stack, bias, **attrs),)


def _dot(a: Operand, b: Operand) -> Definition:
    for operand in (a, b):
        require_rank("dot", operand, at_least=1, at_most=1)
        require_dtype("dot", operand, "number")
    dtype = require_same_dtype("dot", (a, b))
    k = same_extent(a.shape[0], b.shape[0], "operator dot: a against b")
    return single(
        (a, b),
        compute("dot", (), lambda: build.cast(reduce(SUM, (k,), lambda r: widen(a[r]) * widen(b[r])), dtype)),
    )


def _mv(matrix: Operand, vector: Operand) -> Definition:
    for operand in (matrix, vector):
        require_dtype("mv", operand, "number")
    require_rank("mv", matrix, at_least=2)
    require_rank("mv", vector, at_least=1, at_most=1)
    dtype = require_same_dtype("mv", (matrix, vector))
    k = same_extent(matrix.shape[-1], vector.shape[0], "operator mv: columns of the matrix against the vector")

    def value(*axes: Expr) -> Expr:
        return build.cast(reduce(SUM, (k,), lambda r: widen(matrix[(*axes, r)]) * widen(vector[r])), dtype)

    return single((matrix, vector), compute("mv", matrix.shape[:-1], value))


def _addmm(c: Operand, a: Operand, b: Operand, *, alpha: float, beta: float) -> Definition:
    dtype = require_same_dtype("addmm", (c, a, b))
    for operand in (a, b):
        require_rank("addmm", operand, at_least=2)
        require_dtype("addmm", operand, "number")
    k = same_extent(a.shape[-1], b.shape[-2], "operator addmm: columns of a against rows of b")
    batch = broadcast_shapes("addmm", (a.shape[:-2], b.shape[:-2]))
    shape = (*batch, a.shape[-2], b.shape[-1])
    require_broadcasts_to("addmm", c, shape)

    def value(*axes: Expr) -> Expr:
        *outer, i, j = axes

        def product(r: Expr) -> Expr:
            left, right = _read_matrix(a, outer, batch, (i, r)), _read_matrix(b, outer, batch, (r, j))
            return widen(left) * widen(right)

        total: Expr = reduce(SUM, (k,), product)
        if alpha != 1:
            total = total * number(alpha, total.dtype)
        if beta != 0:
            addend = widen(read_broadcast(c, axes, shape))
            total = total + (addend if beta == 1 else addend * number(beta, addend.dtype))
        return build.cast(total, dtype)

    return single((c, a, b), compute("addmm", shape, value))


def _decompose_dot(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    a, b = inputs
    row = builder.emit("unsqueeze", a, axes=(0,))
    column = builder.emit("unsqueeze", b, axes=(1,))
    return (builder.emit("reshape", builder.emit("matmul", row, column), shape=()),)


def _decompose_mv(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    matrix, vector = inputs
    product = builder.emit("matmul", matrix, builder.emit("unsqueeze", vector, axes=(1,)))
    return (builder.emit("squeeze", product, axes=(-1,)),)


def _decompose_addmm(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    c, a, b = inputs
    assert c is not None
    product = builder.emit("matmul", a, b)
    if attrs["alpha"] != 1:
        product = builder.emit("mul", product, builder.constant(attrs["alpha"], c.tensor.dtype))
    if attrs["beta"] == 0:
        return (product,)
    return (builder.emit("add", product, c, alpha=attrs["beta"]),)


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="matmul",
        inputs=("a", "b"),
        attributes=(
            Attribute("trans_a", False),
            Attribute("trans_b", False),
            FP32_PRECISION,
            Attribute("dtype", None, "type of results, summed in it, or f32 for narrow floats; None: the operands'"),
            Attribute("fast_accum", False, "8-bit floats: whether a target may keep fewer digits of sums than f32 has"),
        ),
        kind="anchor",
        define=_matmul,
        family="matmul",
        doc="Matrix product a[..., m, k] @ b[..., k, n] -> [..., m, n]; leading axes broadcast as numpy.matmul's do. "
        "trans_a: a is [..., k, m]; trans_b: b is [..., n, k]. One element type, or with `dtype` two of one kind.",
    ),
    OperatorSpec(
        name="linear",
        inputs=("x", "weight", "bias?"),
        attributes=(FP32_PRECISION,),
        kind="anchor",
        define=_linear,
        family="matmul",
        doc="x[..., k] @ weight[n, k] transposed + bias[n] -> [..., n]; torch.nn.functional.linear. One element type.",
    ),
    OperatorSpec(
        name="stacked_linear",
        inputs=("x", "weight", "bias?", "others*"),
        attributes=(FP32_PRECISION,),
        kind="anchor",
        define=_stacked_linear,
        decompose=_decompose_stacked_linear,
        family="matmul",
        doc="`linear` with the rows of `weight`[n0, k] and of `others`[n1, k], ... below each other: x[..., k] -> "
        "[..., n0 + n1 + ...], plus bias[n0 + n1 + ...]. Weights are read where they lie. One element type.",
    ),
    OperatorSpec(
        name="dot",
        inputs=("a", "b"),
        kind="anchor",
        define=_dot,
        decompose=_decompose_dot,
        family="matmul",
        doc="Inner product of a[k] and b[k] -> [], as torch.dot. One element type.",
    ),
    OperatorSpec(
        name="mv",
        inputs=("matrix", "vector"),
        kind="anchor",
        define=_mv,
        decompose=_decompose_mv,
        family="matmul",
        doc="matrix[..., m, k] @ vector[k] -> [..., m], as torch.mv. One element type.",
    ),
    OperatorSpec(
        name="addmm",
        inputs=("c", "a", "b"),
        attributes=(Attribute("alpha", 1), Attribute("beta", 1)),
        kind="anchor",
        define=_addmm,
        decompose=_decompose_addmm,
        family="matmul",
        doc="beta * c + alpha * (a[..., m, k] @ b[..., k, n]), c broadcast; as torch.addmm and torch.baddbmm. "
        "With beta 0 the values of c do not matter, not even NaN. One element type.",
    ),
)
