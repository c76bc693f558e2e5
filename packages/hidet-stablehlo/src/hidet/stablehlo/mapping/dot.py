"""Products: `dot_general`, with any axes in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet.dims import Dim, product
from hidet.errors import ImportFailed
from hidet.frontend import Handler
from hidet.frontend.contraction import einsum
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "dot": _dot,
        "dot_general": _dot_general,
        "einsum": lambda e, *xs, einsum_config, **_: einsum(e, str(einsum_config), [_typed(e, x) for x in xs]),
        "unary_einsum": lambda e, x, einsum_config, **_: einsum(e, str(einsum_config), [x]),
    }


def _typed(e: Emitter, x: Value) -> Value:
    """Products are summed in the type of the result, which may be wider than that of the operands."""
    return e.cast(x, e.result.dtype)


def _dot(e: Emitter, a: Value, b: Value, **_: Any) -> Value:
    return _contracted(e, a, b, (), (), (a.tensor.rank - 1,), (0,))


def _dot_general(
    e: Emitter,
    a: Value,
    b: Value,
    lhs_batching_dimensions: Any = None,
    rhs_batching_dimensions: Any = None,
    lhs_contracting_dimensions: Any = None,
    rhs_contracting_dimensions: Any = None,
    **_: Any,
) -> Value:
    ranks = a.tensor.rank, b.tensor.rank
    batch_a = e.axes(lhs_batching_dimensions, ranks[0], "the batch dimensions")
    batch_b = e.axes(rhs_batching_dimensions, ranks[1], "the batch dimensions")
    folded_a = e.axes(lhs_contracting_dimensions, ranks[0], "the contracted dimensions")
    folded_b = e.axes(rhs_contracting_dimensions, ranks[1], "the contracted dimensions")
    if len(batch_a) != len(batch_b) or len(folded_a) != len(folded_b):
        raise ImportFailed(
            f"{e.operator} pairs {len(batch_a)} batch dimensions with {len(batch_b)}, and "
            f"{len(folded_a)} contracted ones with {len(folded_b)}"
        )
    if {*batch_a} & {*folded_a} or {*batch_b} & {*folded_b}:
        raise ImportFailed(f"{e.operator} has a dimension that is of the batch and contracted")
    return _contracted(e, a, b, batch_a, batch_b, folded_a, folded_b)


def _contracted(
    e: Emitter,
    a: Value,
    b: Value,
    batch_a: Sequence[int],
    batch_b: Sequence[int],
    folded_a: Sequence[int],
    folded_b: Sequence[int],
) -> Value:
    """[*batch, *free axes of a, *free axes of b], by one product of matrices."""
    free_a = [axis for axis in range(a.tensor.rank) if axis not in batch_a and axis not in folded_a]
    free_b = [axis for axis in range(b.tensor.rank) if axis not in batch_b and axis not in folded_b]
    shape = [
        *(a.tensor.shape[axis] for axis in (*batch_a, *free_a)),
        *(b.tensor.shape[axis] for axis in free_b),
    ]
    batch = [a.tensor.shape[axis] for axis in batch_a]
    if not folded_a:
        return _outer(e, _typed(e, a), _typed(e, b), batch_a, batch_b, free_a, free_b)
    inner = [product([x.tensor.shape[axis] for axis in axes]) for x, axes in ((a, folded_a), (b, folded_b))]
    columns = product([b.tensor.shape[axis] for axis in free_b])
    right = e.reshape(e.transpose(b, (*batch_b, *folded_b, *free_b)), (*batch, inner[1], columns))
    left = e.transpose(a, (*batch_a, *free_a, *folded_a))
    if batch or not free_a:
        # Rows are one axis: products of batches pair their batches.
        rows: list[Dim] = [product([a.tensor.shape[axis] for axis in free_a])]
    else:
        rows = [a.tensor.shape[axis] for axis in free_a]
    left = e.reshape(left, (*batch, *rows, inner[0]))
    return e.reshape(e.emit("matmul", _typed(e, left), _typed(e, right)), shape)


def _outer(
    e: Emitter,
    a: Value,
    b: Value,
    batch_a: Sequence[int],
    batch_b: Sequence[int],
    free_a: Sequence[int],
    free_b: Sequence[int],
) -> Value:
    """Nothing is summed."""
    left = e.transpose(a, (*batch_a, *free_a))
    left = e.unsqueeze(left, range(left.tensor.rank, left.tensor.rank + len(free_b)))
    right = e.transpose(b, (*batch_b, *free_b))
    right = e.unsqueeze(right, range(len(batch_b), len(batch_b) + len(free_a)))
    return e.emit("mul", left, right)
