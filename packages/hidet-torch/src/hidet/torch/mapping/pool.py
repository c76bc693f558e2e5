"""Pooling. An empty stride is the size of the window; images without a batch axis are pooled as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dtypes
from hidet.dims import Dim
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch.emitter import TorchEmitter

Numbers = Sequence[int] | int


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {}
    for axes in (1, 2, 3):
        found[f"aten.avg_pool{axes}d.default"] = _avg_pool(axes)
        found[f"aten.max_pool{axes}d_with_indices.default"] = _max_pool_with_indices(axes)
        found[f"aten.max_pool{axes}d.default"] = _max_pool(axes)
        average = "aten.adaptive_avg_pool1d.default" if axes == 1 else f"aten._adaptive_avg_pool{axes}d.default"
        found[average] = _adaptive_avg_pool
        found[f"aten.adaptive_max_pool{axes}d.default"] = _adaptive_max_pool
    return found


def window(axes: int, kernel_size: Numbers, stride: Numbers, padding: Numbers) -> dict[str, Any]:
    """Attributes of core's pooling operators."""
    kernel = _per_axis(kernel_size, axes)
    given = () if isinstance(stride, Sequence) and not stride else _per_axis(stride, axes)
    return {"kernel": kernel, "stride": given or kernel, "padding": _per_axis(padding, axes)}


def _per_axis(numbers: Numbers, axes: int) -> tuple[int, ...]:
    given = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return given * axes if len(given) == 1 else given


def _with_batch(e: TorchEmitter, x: Value, axes: int) -> Value:
    """`x` as [n, c, *space]."""
    return e.unsqueeze(x, tuple(range(axes + 2 - x.tensor.rank)))


def _avg_pool(axes: int) -> Handler:
    def handle(
        e: TorchEmitter,
        x: Value,
        kernel_size: Numbers,
        stride: Numbers = (),
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        def pool(images: Value, divisor: int | None) -> Value:
            return e.emit(
                "avg_pool",
                images,
                ceil_mode=ceil_mode,
                count_include_pad=count_include_pad,
                divisor_override=divisor,
                **window(axes, kernel_size, stride, padding),
            )

        images, dtype = _with_batch(e, x, axes), x.tensor.dtype
        if dtype.is_float:
            return e.reshape(pool(images, divisor_override), e.result.shape)
        # Whole numbers are summed, and their sum is divided towards zero.
        images = e.cast(images, dtypes.f64)
        sums = pool(images, 1)
        if divisor_override is None:
            ones = e.emit("full", shape=images.tensor.shape, value=1.0, dtype=dtypes.f64)
            count = e.emit("round", e.emit("div", pool(ones, 1), pool(ones, None)))
        else:
            count = e.constant(float(divisor_override), dtypes.f64)
        return e.reshape(e.cast(e.emit("trunc", e.emit("div", sums, count)), dtype), e.result.shape)

    return handle


def _max_pool_with_indices(axes: int) -> Handler:
    def handle(
        e: TorchEmitter,
        x: Value,
        kernel_size: Numbers,
        stride: Numbers = (),
        padding: Numbers = 0,
        dilation: Numbers = 1,
        ceil_mode: bool = False,
    ) -> tuple[Value | None, ...]:
        attrs = window(axes, kernel_size, stride, padding)
        attrs |= {"dilation": _per_axis(dilation, axes), "ceil_mode": ceil_mode}
        core = "max_pool_with_indices" if e.is_read(1) else "max_pool"
        values = e.emit_all(core, (_with_batch(e, x, axes),), attrs)
        results = [e.reshape(value, e.result.shape) for value in values]
        return results[0], results[1] if len(results) == 2 else None

    return handle


def _max_pool(axes: int) -> Handler:
    with_indices = _max_pool_with_indices(axes)

    def handle(e: TorchEmitter, *args: Any, **kwargs: Any) -> Value:
        value: Value = with_indices(e, *args, **kwargs)[0]
        return value

    return handle


def _adaptive_avg_pool(e: TorchEmitter, x: Value, output_size: Sequence[Dim]) -> Value:
    return e.emit("adaptive_avg_pool", x, size=tuple(output_size))


def _adaptive_max_pool(e: TorchEmitter, x: Value, output_size: Sequence[Dim]) -> tuple[Value, ...]:
    if not x.tensor.dtype.is_float:
        raise UnsupportedOp(f"adaptive_max_pool of {x.tensor.dtype}, which torch refuses")
    return e.emit_all("adaptive_max_pool", (x,), {"size": tuple(output_size)})
