"""Pooling over the last one, two or three axes of x[..., *space]; `kernel` tells how many.

Windows are placed as those of conv. Averages are taken in f32 for f16 and bf16 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hidet.compute.definition import ARGMAX, MAX, SUM, Definition, Operand, compute, number, reduce, single
from hidet.dims import ceildiv, minimum, prove_le
from hidet.dtypes import DType
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.rules import arithmetic_dtype, require_dtype, require_rank, widen
from hidet.operators.windows import DILATION, PADDING, Numbers, Padding, Windows, per_axis, windows_of


def pool_windows(
    name: str,
    x: Operand,
    kernel: Sequence[int],
    stride: Numbers | None,
    padding: Padding,
    dilation: Numbers,
    ceil_mode: bool,
) -> Windows:
    """The windows of a pooling operator; `stride` None is the kernel. ShapeError when they do not fit."""
    require_rank(name, x, at_least=len(kernel))
    kernels = per_axis(name, "kernel", kernel, len(kernel), 1)
    steps = kernels if stride is None or stride == () else stride
    windows = windows_of(name, x.shape, kernels, steps, padding, dilation)
    if not ceil_mode:
        windows.require_fit(name)
    else:
        # A window that starts past the input and its leading padding is dropped.
        rows = zip(windows.rooms, windows.space, windows.strides, windows.pads, strict=True)
        counts = [minimum(ceildiv(room, n) + 1, ceildiv(extent + pad[0], n)) for room, extent, n, pad in rows]
        windows = replace(windows, counts=tuple(counts))
    overhang = []
    for axis, (before, after) in enumerate(windows.pads):
        end = (windows.counts[axis] - 1) * windows.strides[axis] + windows.reaches[axis] - before
        overhang.append((before > 0, (after > 0 or ceil_mode) and not prove_le(end, windows.space[axis])))
    return replace(windows, overhang=tuple(overhang))


def _max_pool(
    x: Operand,
    *,
    kernel: Sequence[int],
    stride: Numbers | None,
    padding: Padding,
    dilation: Numbers,
    ceil_mode: bool,
) -> Definition:
    require_dtype("max_pool", x, "number")
    windows = pool_windows("max_pool", x, kernel, stride, padding, dilation, ceil_mode)
    stage = compute("max_pool", windows.shape, lambda *axes: _extreme(x, windows, axes))
    return single((x,), stage)


def _extreme(x: Operand, windows: Windows, axes: Sequence[Expr]) -> Expr:
    lead, out = axes[: len(windows.lead)], axes[len(windows.lead) :]
    wide = arithmetic_dtype(x.dtype)

    def element(*taps: Expr) -> Expr:
        places = windows.places(out, taps)
        return build.select(windows.legal(places), widen(x[(*lead, *places)]), MAX.identity((wide,))[0])

    return build.cast(reduce(MAX, windows.kernel, element), x.dtype)


def _max_pool_with_indices(
    x: Operand,
    *,
    kernel: Sequence[int],
    stride: Numbers | None,
    padding: Padding,
    dilation: Numbers,
    ceil_mode: bool,
) -> Definition:
    name = "max_pool_with_indices"
    require_dtype(name, x, "number")
    windows = pool_windows(name, x, kernel, stride, padding, dilation, ceil_mode)
    wide, strides = arithmetic_dtype(x.dtype), contiguous_strides(windows.space)

    def position(*axes: Expr) -> Expr:
        lead, out = axes[: len(windows.lead)], axes[len(windows.lead) :]

        def element(*taps: Expr) -> tuple[Expr, Expr]:
            places = windows.places(out, taps)
            nothing, last = ARGMAX.identity((wide, build.INDEX))
            legal = windows.legal(places)
            value = build.select(legal, widen(x[(*lead, *places)]), nothing)
            return value, build.select(legal, build.flatten(places, strides), last)

        return reduce(ARGMAX, windows.kernel, element, 1)

    value = compute(name, windows.shape, lambda *axes: _extreme(x, windows, axes))
    index = compute("indices", windows.shape, position)
    return Definition((x,), (value, index), (value.result, index.result))


def _avg_pool(
    x: Operand,
    *,
    kernel: Sequence[int],
    stride: Numbers | None,
    padding: Padding,
    dilation: Numbers,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Definition:
    require_dtype("avg_pool", x, "float")
    windows = pool_windows("avg_pool", x, kernel, stride, padding, dilation, ceil_mode)

    def value(*axes: Expr) -> Expr:
        lead, out = axes[: len(windows.lead)], axes[len(windows.lead) :]
        total = _window_sum(x, windows, lead, out, widen)
        return build.cast(
            total / averaged_count(windows, out, count_include_pad, divisor_override, total.dtype), x.dtype
        )

    return single((x,), compute("avg_pool", windows.shape, value))


def averaged_count(
    windows: Windows, out: Sequence[Expr], include_pad: bool, divisor_override: int | None, dtype: DType
) -> Expr:
    """What the sum over the window at `out` is divided by, as `dtype`."""
    if divisor_override is not None:
        return number(divisor_override, dtype)
    count: Expr = build.index(1)
    for axis, i in enumerate(out):
        count = count * _covered(windows, axis, i, include_pad)
    return build.cast(count, dtype)


def _covered(windows: Windows, axis: int, i: Expr, include_pad: bool) -> Expr:
    """How many taps of window `i` of an axis lie on the input, or on its padding."""
    taps, spread = build.index(windows.kernel[axis]), windows.dilations[axis]
    extent, (before, after) = windows.space[axis], windows.pads[axis]
    if windows.overhang[axis] == (False, False):
        return taps
    start = i * windows.strides[axis] - before
    if spread == 1:
        end = build.minimum(start + taps, build.index(extent + after))
        return build.minimum(end, build.index(extent)) - build.maximum(start, 0) if not include_pad else end - start
    # Taps before a place are those whose distance from the window's start is below it.
    limit = build.index(extent + after if include_pad else extent)
    below_end = build.minimum((limit - start + (spread - 1)) // spread, taps)
    if include_pad:
        return below_end
    return build.maximum(below_end - build.maximum((spread - 1 - start) // spread, 0), 0)


def _window_sum(
    x: Operand, windows: Windows, lead: Sequence[Expr], out: Sequence[Expr], element: Callable[[Expr], Expr]
) -> Expr:
    def term(*taps: Expr) -> Expr:
        places = windows.places(out, taps)
        value = element(x[(*lead, *places)])
        return build.select(windows.legal(places), value, build.const(0, value.dtype))

    return reduce(SUM, windows.kernel, term)


def _lp_pool(
    x: Operand,
    *,
    p: float,
    kernel: Sequence[int],
    stride: Numbers | None,
    padding: Padding,
    dilation: Numbers,
    ceil_mode: bool,
) -> Definition:
    require_dtype("lp_pool", x, "float")
    windows = pool_windows("lp_pool", x, kernel, stride, padding, dilation, ceil_mode)

    def power(element: Expr) -> Expr:
        wide = widen(element)
        return wide * wide if p == 2 else build.binary("pow", build.unary("abs", wide), p)

    def value(*axes: Expr) -> Expr:
        total = _window_sum(x, windows, axes[: len(windows.lead)], axes[len(windows.lead) :], power)
        root = build.unary("sqrt", total) if p == 2 else build.binary("pow", total, 1 / p)
        return build.cast(root, x.dtype)

    return single((x,), compute("lp_pool", windows.shape, value))


KERNEL = Attribute("kernel", doc="window extents, one a spatial axis")
POOL_STRIDE = Attribute("stride", None, "one an axis, or one for all; None is the kernel")
CEIL_MODE = Attribute(
    "ceil_mode", False, "also windows that reach past the end, if they start on the input or before it"
)

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="max_pool",
        inputs=("x",),
        attributes=(KERNEL, POOL_STRIDE, PADDING, DILATION, CEIL_MODE),
        kind="anchor",
        define=_max_pool,
        family="pooling",
        layout="follows",
        doc="Largest of each window, padding ignored; NaN wins. torch max_pool1d to max_pool3d. Numbers.",
    ),
    OperatorSpec(
        name="max_pool_with_indices",
        inputs=("x",),
        attributes=(KERNEL, POOL_STRIDE, PADDING, DILATION, CEIL_MODE),
        kind="anchor",
        define=_max_pool_with_indices,
        family="pooling",
        layout="follows",
        doc="max_pool, and as second result the i64 row-major position of each maximum on the spatial axes; the first "
        "of equals. torch max_pool2d_with_indices. Numbers.",
    ),
    OperatorSpec(
        name="avg_pool",
        inputs=("x",),
        attributes=(
            KERNEL,
            POOL_STRIDE,
            PADDING,
            DILATION,
            CEIL_MODE,
            Attribute("count_include_pad", True, "padding counts as zeros"),
            Attribute("divisor_override", None, "divide by this instead of the count"),
        ),
        kind="anchor",
        define=_avg_pool,
        family="pooling",
        layout="follows",
        doc="Average of each window; torch avg_pool1d to avg_pool3d. Floating-point types.",
    ),
    OperatorSpec(
        name="lp_pool",
        inputs=("x",),
        attributes=(Attribute("p", 2), KERNEL, POOL_STRIDE, PADDING, DILATION, CEIL_MODE),
        kind="anchor",
        define=_lp_pool,
        family="pooling",
        layout="follows",
        doc="(sum of |x| ** p) ** (1 / p) of each window; ONNX LpPool. Floating-point types.",
    ),
)
