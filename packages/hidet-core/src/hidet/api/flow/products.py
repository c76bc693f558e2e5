"""`hidet.ops`: products of matrices, convolutions, sums of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hidet.api.flow.movement import reshape, transpose
from hidet.api.flow.operation import apply_one
from hidet.api.tensors.tensor import Tensor
from hidet.errors import ShapeError


def matmul(a: Tensor, b: Tensor, require_prologue: bool = False) -> Tensor:
    """The product of matrices; axes before the last two broadcast. require_prologue: a matter of the compiler now."""
    return apply_one("matmul", a, b)


def matmul_nt(a: Tensor, b: Tensor, require_prologue: bool = False) -> Tensor:
    """`matmul` with a matrix that is stored transposed: b is [..., n, k]."""
    return apply_one("matmul", a, b, trans_b=True)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """softmax(q k + mask) v, where k [..., width, keys] is transposed, and q or k scaled already."""
    turned = transpose(k, [*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2])
    return apply_one("attention", q, turned, v, mask, scale=1.0, is_causal=is_causal)


def conv(
    data: Tensor, weight: Tensor, stride: Any = 1, dilations: Any = 1, groups: int = 1, padding: Any = 0
) -> Tensor:
    """A convolution of images [n, c, ...] with filters [o, c / groups, ...].

    stride, dilations: a number, or one an axis. padding: a number, one an axis, or those before all axes and then those
    behind them.
    """
    pads = pads_of(padding, len(data.shape) - 2)
    return apply_one("conv", data, weight, stride=stride, padding=pads, dilation=dilations, groups=groups)


def conv_transpose(
    data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, groups: int = 1, output_padding: Any = 0
) -> Tensor:
    """A transposed convolution of images [n, c, ...] with filters [c, o / groups, ...]."""
    pads = pads_of(padding, len(data.shape) - 2)
    return apply_one(
        "conv_transpose", data, weight, stride=stride, padding=pads, output_padding=output_padding, groups=groups
    )


def pads_of(padding: Any, axes: int) -> Any:
    """Padding as operators take it: where it is a list of those before each axis and those behind, pairs an axis."""
    if isinstance(padding, Sequence) and len(padding) == 2 * axes and all(isinstance(pad, int) for pad in padding):
        return list(zip(padding[:axes], padding[axes:], strict=True)) if axes > 1 else [tuple(padding)]
    return padding


def einsum(equation: str, operands: Sequence[Tensor]) -> Tensor:
    """Sums of products by Einstein's notation, "bij,bjk->bik"; two operands at a time, as products of matrices.

    Without "->", labels that occur once are kept, in alphabetical order. ShapeError for "..." and for a label that one
    operand has twice.
    """
    left, arrow, kept = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        kept = "".join(sorted(label for label in {*left} - {","} if left.count(label) == 1))
    if len(terms) != len(operands) or "." in equation or any(len({*term}) < len(term) for term in terms):
        raise ShapeError(
            f"einsum({equation!r}) of {len(operands)} operands",
            hint="a term for each operand, of letters that differ; no ellipsis",
        )
    labels, result = terms[0], operands[0]
    for number, (term, operand) in enumerate(zip(terms[1:], operands[1:], strict=True), 2):
        needed = {*kept, *"".join(terms[number:])}
        labels, result = _contracted(labels, result, term, operand, needed)
    labels, result = _without(labels, result, {*kept})
    return transpose(result, [labels.index(label) for label in kept]) if labels != kept else result


def _without(labels: str, x: Tensor, needed: set[str]) -> tuple[str, Tensor]:
    """x summed over what nobody needs."""
    dropped = [axis for axis, label in enumerate(labels) if label not in needed]
    if not dropped:
        return labels, x
    return "".join(label for label in labels if label in needed), apply_one("sum", x, axes=dropped)


def _contracted(a_labels: str, a: Tensor, b_labels: str, b: Tensor, needed: set[str]) -> tuple[str, Tensor]:
    """Two operands as one product of matrices."""
    a_labels, a = _without(a_labels, a, needed | {*b_labels})
    b_labels, b = _without(b_labels, b, needed | {*a_labels})
    shared = [label for label in a_labels if label in b_labels]
    batch = [label for label in shared if label in needed]
    summed = [label for label in shared if label not in needed]
    rows = [label for label in a_labels if label not in shared]
    columns = [label for label in b_labels if label not in shared]
    extents = {**dict(zip(b_labels, b.shape, strict=True)), **dict(zip(a_labels, a.shape, strict=True))}

    def matrices(x: Tensor, labels: str, first: list[str], second: list[str]) -> Tensor:
        order = [*batch, *first, *second]
        turned = transpose(x, [labels.index(label) for label in order])
        folded = [math.prod(extents[label] for label in part) for part in (first, second)]
        return reshape(turned, [*(extents[label] for label in batch), *folded])

    product = matmul(matrices(a, a_labels, rows, summed), matrices(b, b_labels, summed, columns))
    left = [*batch, *rows, *columns]
    return "".join(left), reshape(product, [extents[label] for label in left])
