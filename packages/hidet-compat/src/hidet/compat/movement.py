"""Functions of `hidet.ops` that move elements, made of several operators, or write into their argument."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy

from hidet.api.flow.movement import Numbers, bounds_of, broadcast, pad, ranges_of, reshape, transpose, unsqueeze
from hidet.api.flow.operation import apply_one, as_tensors
from hidet.api.tensors.tensor import Tensor
from hidet.errors import ShapeError


def einops_rearrange(x: Tensor, pattern: str, **axes_lengths: int) -> Tensor:
    """x with dims in another order, split and joined, as einops.rearrange has it: "b (h d) c -> b h c d", h=4.

    ShapeError for "...", for sides whose names differ, and where the extents of a split do not follow.
    """
    sides = [[part.strip("()").split() for part in re.findall(r"\([^)]*\)|\S+", side)] for side in pattern.split("->")]
    if len(sides) != 2 or "." in pattern or len(sides[0]) != len(x.shape):
        raise ShapeError(f"rearrange({pattern!r}) of a tensor of {len(x.shape)} dims", hint="'b (h d) -> h b d', h=2")
    known: dict[str, Any] = {"1": 1, **axes_lengths}
    for extent, part in zip(x.shape, sides[0], strict=True):
        unknown = [name for name in part if name not in known]
        if len(unknown) > 1:
            raise ShapeError(f"rearrange({pattern!r}): the extents of {' and '.join(unknown)} are not known")
        if unknown:
            known[unknown[0]] = extent // math.prod(known[name] for name in part if name in known)
        if math.prod(known[name] for name in part) != extent:
            raise ShapeError(f"rearrange({pattern!r}): an extent of {extent} is not {' * '.join(part) or 1}")
    before, after = ([name for part in side for name in part if name != "1"] for side in sides)
    if sorted(before) != sorted(after) or len({*before}) < len(before):
        raise ShapeError(f"rearrange({pattern!r}): both sides have the same names, each once")
    turned = transpose(reshape(x, [known[name] for name in before]), [before.index(name) for name in after])
    return reshape(turned, [math.prod(known[name] for name in part) for part in sides[1]])


def meshgrid(*tensors: Any, indexing: str = "ij") -> list[Tensor]:
    """Coordinates of a grid, of those along its axes; indexing "xy" exchanges its first two axes."""
    given = list(tensors[0]) if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else list(tensors)
    extents = [x.size for x in given]
    grids = []
    for axis, x in enumerate(given):
        lying = reshape(x, [extents[axis] if other == axis else 1 for other in range(len(given))])
        grid = broadcast(lying, extents)
        grids.append(transpose(grid, [1, 0, *range(2, len(given))]) if indexing == "xy" else grid)
    return grids


def set_strided_slice(
    data: Tensor,
    setvalue: Any,
    starts: Sequence[int | None],
    ends: Sequence[int | None],
    index_dims: Sequence[int] = (),
    strides: Sequence[int | None] | None = None,
) -> Tensor:
    """`data` with `setvalue`, a number or a tensor, in place of a slice; `data` itself stays.

    index_dims: dims of the slice that the value has not.
    """
    bounds = bounds_of(data, ranges_of(data, starts, ends, None, strides))
    extents = [len(range(*bound)) for bound in zip(*bounds, strict=True)]
    (value, _) = as_tensors([setvalue, data])
    assert value is not None
    if index_dims and len(value.shape) + len(index_dims) == len(extents):
        value = unsqueeze(value, index_dims)
    names = dict(zip(("starts", "stops", "steps"), bounds, strict=True))
    return apply_one("slice_scatter", data, broadcast(value, extents), **names)


def conv_pad(data: Tensor, pads: Numbers, value: float = 0.0) -> Tensor:
    """Images with elements added around them. pads: a number, one an axis, or those before axes and those behind."""
    axes = len(data.shape) - 2
    numbers = [pads] * axes if isinstance(pads, int) else list(pads)
    return pad(data, numbers * 2 if len(numbers) == axes else numbers, value=value)


def scatter_(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str | None = None) -> Tensor:
    """Write, into `input` itself, src[...] at index[...] along a dim; what is symbolic stays and the result has it.

    reduce: None replaces; "sum" ("add"), "prod" ("multiply"), "amax", "amin" or "mean" with what was there.
    """
    how = {"add": "sum", "multiply": "prod", "replace": None}.get(str(reduce), reduce)
    return _overwritten(input, apply_one("scatter", input, index, src, axis=dim, reduce=how))


def scatter_add_(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`scatter_` that adds to what was there."""
    return scatter_(input, dim, index, src, "sum")


def _overwritten(x: Tensor, result: Tensor) -> Tensor:
    """x, with the elements of a result; on the host in the memory that it shares."""
    if x.is_symbolic() or result.is_symbolic():
        return result
    if x.device == "cpu":
        numpy.copyto(x.storage, result.storage)
    else:
        x.storage = result.storage
    return x


def transfer(x: Tensor, dst_device: str) -> Tensor:
    """x on another device."""
    return x.to(device=dst_device)
