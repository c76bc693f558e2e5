"""Results whose number depends on data: dynamo gives them a size of its own ("u0"), which is read from a count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.dims import Dim, product, symbols
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.operators import selection
from hidet.torch.emitter import TorchEmitter


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "aten.nonzero.default": _nonzero,
        "aten.masked_select.default": _masked_select,
        "aten._unique2.default": _unique,
        "aten.unique_dim.default": _unique_slices,
        "aten.unique_consecutive.default": _runs,
    }


def _count(e: TorchEmitter, axis: int = 0) -> tuple[Dim | None, Dim | None]:
    """The size that torch gives the number of results, as `count` and `defines` of `hidet.operators.selection`: known
    from a node that has counted the same, or to be defined. torch counts a mask once for all its uses.
    """
    count = e.result.shape[axis]
    if str(count) in e.facts.fresh:
        return None, count
    if isinstance(count, int) or any(symbol.name not in e.data_sizes for symbol in symbols(count)):
        raise UnsupportedOp(f"the number of results is {count}, although it depends on data")
    return count, None


def _nonzero(e: TorchEmitter, x: Value) -> Value:
    return e.own(selection.nonzero(e.builder, x, *_count(e)))


def _masked_select(e: TorchEmitter, x: Value, mask: Value) -> Value:
    return e.own(selection.masked_select(e.builder, x, mask, *_count(e)))


def _unique(
    e: TorchEmitter, x: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Value | None, ...]:
    """torch sorts on the CPU, whatever it is asked for. Results that are not asked for are empty, and unread."""
    count, defines = _count(e)
    values, _, inverse, counts = selection.unique(e.builder, x, None, count=count, defines=defines)
    return (
        e.own(values),
        e.emit("reshape", e.own(inverse), shape=x.tensor.shape) if return_inverse else None,
        e.own(counts) if return_counts else None,
    )


def _unique_slices(
    e: TorchEmitter,
    x: Value,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Value, ...]:
    count, defines = _count(e, dim)
    values, _, inverse, counts = selection.unique(e.builder, x, dim, count=count, defines=defines)
    return e.own(values), e.own(inverse), e.own(counts)


def _runs(
    e: TorchEmitter, x: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Value | None, ...]:
    """Of a tensor without axes, too, there is one. Results that are not asked for are empty, and unread."""
    axis = None if x.tensor.rank == 0 else dim
    count, defines = _count(e, axis or 0)
    values, _, inverse, counts = selection.unique(e.builder, x, axis, adjacent=True, count=count, defines=defines)
    shape = x.tensor.shape if dim is None else inverse.tensor.shape
    return (
        e.own(values),
        e.emit("reshape", e.own(inverse), shape=shape) if return_inverse else None,
        e.own(counts) if return_counts else None,
    )


def masked_index(e: TorchEmitter, x: Value, indices: Sequence[Value | None]) -> Value:
    """x[:, mask]: the slices of x where one mask is true. UnsupportedOp for a mask beside other indices."""
    given = [index for index in indices if index is not None]
    if len(given) != 1:
        raise UnsupportedOp("indexing with a mask and further indices")
    (mask,) = given
    start, covered = list(indices).index(mask), mask.tensor.rank
    if covered == 0:
        raise UnsupportedOp("indexing with a mask of rank 0")
    shape = x.tensor.shape
    rest = (*range(start), *range(start + covered, len(shape)))
    front = e.transpose(x, (*range(start, start + covered), *rest))
    rows = e.reshape(front, (product(shape[start : start + covered]), *(shape[axis] for axis in rest)))
    flags = e.reshape(mask, (product(mask.tensor.shape),))
    ends, count = selection.counted(e.builder, flags, *_count(e, start))
    kept = e.own(e.builder.emit("pack", rows, ends, count=count))
    order = (*range(1, start + 1), 0, *range(start + 1, len(rest) + 1))
    return e.transpose(kept, order)
