"""Pooling over windows, and over all of space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dims, dtypes
from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.windows import Windows, windows


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("MaxPool", 1): _max_pool,
        ("AveragePool", 1): _average_pool,
        ("LpPool", 2): _lp_pool,
        ("GlobalMaxPool", 1): lambda e, x: e.emit("amax", x, axes=_space(x), keepdim=True),
        ("GlobalAveragePool", 1): lambda e, x: e.emit("mean", x, axes=_space(x), keepdim=True),
        ("GlobalLpPool", 2): lambda e, x, p: e.emit("norm", x, p=p, axes=_space(x), keepdim=True),
    }


def _space(x: Value) -> tuple[int, ...]:
    return tuple(range(2, x.tensor.rank))


def _windows(
    e: Emitter,
    x: Value,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
) -> Windows:
    return windows(e, x, kernel_shape, strides, dilations, pads, auto_pad)


def _max_pool(e: Emitter, x: Value, ceil_mode: int = 0, storage_order: int = 0, **window: Any) -> tuple[Value, ...]:
    """The second result is the position of each maximum in the whole tensor; with storage_order 1, in one whose last
    two axes are in the other order."""
    found = _windows(e, x, **window)
    attrs = {
        "kernel": found.kernel,
        "stride": found.stride,
        "padding": found.padding,
        "dilation": found.dilation,
        "ceil_mode": bool(ceil_mode),
    }
    if not e.is_read(1):
        return (e.emit("max_pool", x, **attrs),)
    values, place = e.emit_all("max_pool_with_indices", (x,), attrs)
    space = x.tensor.shape[2:]
    if storage_order:
        if len(space) != 2:
            raise UnsupportedOp(f"MaxPool with storage_order 1 over {len(space)} spatial axes")
        height, width = (e.size(extent) for extent in space)
        row, column = e.emit("trunc_divide", place, width), e.emit("remainder", place, width)
        place = e.emit("add", e.emit("mul", column, height), row)
    images = e.emit("arange", start=0, stop=dims.product(x.tensor.shape[:2]), dtype=dtypes.i64)
    start = e.emit("mul", images, e.size(dims.product(space)))
    start = e.reshape(start, (*x.tensor.shape[:2], *(1 for _ in space)))
    return values, e.emit("add", place, start)


def _average_pool(e: Emitter, x: Value, ceil_mode: int = 0, count_include_pad: int = 0, **window: Any) -> Value:
    found = _windows(e, x, **window)
    more = {"dilation": found.dilation} if any(number != 1 for number in found.dilation) else {}
    return e.emit(
        "avg_pool",
        x,
        kernel=found.kernel,
        stride=found.stride,
        padding=found.padding,
        ceil_mode=bool(ceil_mode),
        count_include_pad=bool(count_include_pad),
        **more,
    )


def _lp_pool(e: Emitter, x: Value, p: int, ceil_mode: int = 0, **window: Any) -> Value:
    found = _windows(e, x, **window)
    more = {"dilation": found.dilation} if any(number != 1 for number in found.dilation) else {}
    return e.emit(
        "lp_pool",
        x,
        p=p,
        kernel=found.kernel,
        stride=found.stride,
        padding=found.padding,
        ceil_mode=bool(ceil_mode),
        **more,
    )
