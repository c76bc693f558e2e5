"""What convolutions and pooling share: strides, dilations and padding of spatial axes as ONNX gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter
from hidet.graph import Value

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """Kernel, stride and dilation, one number a spatial axis, and padding before and after each."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Pairs


def windows(
    e: Emitter,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Windows:
    """The windows of an operator on x[n, c, *space]; attributes None are 1, 1 and 0. ImportFailed for odd ones."""
    axes = x.tensor.rank - 2
    if axes < 1:
        raise ImportFailed(f"{e.operator} takes x[n, c, *space], got {x.type}")
    stride = _per_axis(e, "strides", strides, axes)
    dilation = _per_axis(e, "dilations", dilations, axes)
    taps = _per_axis(e, "kernel_shape", kernel, axes)
    return Windows(taps, stride, dilation, _padding(e, x.tensor.shape[2:], taps, stride, dilation, pads, auto_pad))


def _per_axis(e: Emitter, name: str, numbers: Sequence[int] | None, axes: int) -> tuple[int, ...]:
    found = (1,) * axes if numbers is None else tuple(numbers)
    if len(found) != axes or any(number < 1 for number in found):
        raise ImportFailed(f"{e.operator}: {name} is {list(found)}, expected {axes} numbers from 1 up")
    return found


def _padding(
    e: Emitter,
    space: Sequence[Dim],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Pairs:
    axes = len(kernel)
    if auto_pad == "VALID":
        return ((0, 0),) * axes
    if auto_pad == "NOTSET":
        return explicit_pads(e, pads, axes)
    totals = []
    for extent, taps, step, spread in zip(space, kernel, stride, dilation, strict=True):
        total = dims.maximum(0, (dims.ceildiv(extent, step) - 1) * step + (taps - 1) * spread + 1 - extent)
        if not isinstance(total, int):
            raise UnsupportedOp(
                f"{e.operator}: auto_pad {auto_pad} with stride {step} over an axis of symbolic extent {extent}"
            )
        totals.append(total)
    return tuple(halves(e, total, auto_pad) for total in totals)


def explicit_pads(e: Emitter, pads: Sequence[int] | None, axes: int) -> Pairs:
    """`pads` has all amounts before, then all after; None is none."""
    numbers = (0,) * (2 * axes) if pads is None else tuple(pads)
    if len(numbers) != 2 * axes or any(number < 0 for number in numbers):
        raise ImportFailed(f"{e.operator}: pads is {list(numbers)}, expected {2 * axes} numbers from 0 up")
    return tuple(zip(numbers[:axes], numbers[axes:], strict=True))


def halves(e: Emitter, total: int, auto_pad: str) -> tuple[int, int]:
    """A padding in two parts: the larger one after for SAME_UPPER, before for SAME_LOWER."""
    small, large = total // 2, total - total // 2
    if auto_pad == "SAME_UPPER":
        return small, large
    if auto_pad == "SAME_LOWER":
        return large, small
    raise ImportFailed(f"{e.operator}: auto_pad is {auto_pad!r}, expected NOTSET, SAME_UPPER, SAME_LOWER or VALID")
