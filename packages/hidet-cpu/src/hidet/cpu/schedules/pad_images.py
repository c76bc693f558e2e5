"""Copies of images with their padding, channels innermost: what a convolution reads whose images lie otherwise."""

from __future__ import annotations

from contextlib import ExitStack

from hidet import dims
from hidet.cpu.schedules.conv_window import SpatialAxis, Windows
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.pack import decode
from hidet.cpu.schedules.transpose_tile import square_function
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.schedule.lowering import KernelScope

# Planes narrower than this are copied element by element.
_SMALLEST_SQUARE = 4


def launch_pad_images(
    builder: ProgramBuilder, source: Var, target: Var, windows: Windows, channels: tuple[Dim, Dim], lanes: int
) -> Windows:
    """Copy images with their padding into dense memory with channels innermost, converted to the target's dtype.

    channels: (extent, stride in the source). lanes: elements of a vector of the target. Returns how the same windows
    lie on the copies: none leaves its image.
    """
    scope = KernelScope()
    read, written = scope.pointer("images", source.dtype), scope.pointer("padded", target.dtype)
    *outer, last = windows.axes
    extents = [axis.image + sum(axis.pads) for axis in windows.axes]
    item = build.size_var("item")
    image, *places = decode(item, [None, *(parameter(scope, extent, "extent") for extent in extents[:-1])])
    depth, channel_stride = parameter(scope, channels[0], "channels"), scope.size(channels[1], "channel_stride")
    width, padded = parameter(scope, last.image, "width"), parameter(scope, extents[-1], "padded")
    pad = parameter(scope, last.pads[0], "pad")
    start = image * parameter(scope, windows.batch[1], "batch_stride")
    inside: list[Expr] = []
    for axis, place in zip(outer, places, strict=True):
        position = place - parameter(scope, axis.pads[0], "pad")
        inside += [position >= 0, position < parameter(scope, axis.image, "extent")]
        start = start + position * parameter(scope, axis.image_stride, "pixel_stride")
    pixel_stride = scope.size(last.image_stride, "pixel_stride")
    first = item * (padded * depth)
    has_planes = last.image_stride == 1 and channels[1] != 1
    side = _square(lanes, channels[0], last.image)
    k = IRBuilder()

    def clear(begin: Expr, count: Expr) -> None:
        with k.for_range("element", count, kind="vectorize") as element:
            k.store(written, first + begin + element, build.const(0, target.dtype))

    def copy(pixel: Expr, channel: Expr) -> None:
        value = build.load(read, line + pixel * pixel_stride + channel * channel_stride)
        k.store(written, first + (pixel + pad) * depth + channel, build.cast(value, target.dtype))

    with k.if_(build.logical_and(*inside)):
        line = k.let("line", start)
        clear(build.index(0), pad * depth)
        with ExitStack() as otherwise:
            if has_planes and side >= _SMALLEST_SQUARE:
                square = square_function(side, source.dtype, target.dtype)
                builder.add((square,))
                with (
                    k.if_(build.logical_and(depth >= side, width >= side)),
                    k.for_range("from_channel", depth, step=side) as from_channel,
                    k.for_range("from_pixel", width, step=side) as from_pixel,
                ):
                    # The last square of an axis is moved back to end with it.
                    c, p = build.minimum(from_channel, depth - side), build.minimum(from_pixel, width - side)
                    there = build.address(written, first + (p + pad) * depth + c)
                    here = build.address(read, line + c * channel_stride + p)
                    k.run(build.call(square.name, here, channel_stride, there, depth, type=build.INDEX))
                otherwise.enter_context(k.else_())
            if has_planes:
                # Planes are read along their rows; a loop over the few channels of an image would be all overhead.
                with k.for_range("channel", depth) as channel, k.for_range("pixel", width, kind="vectorize") as pixel:
                    copy(pixel, channel)
            else:
                with k.for_range("pixel", width) as pixel, k.for_range("channel", depth, kind="vectorize") as channel:
                    copy(pixel, channel)
        clear((pad + width) * depth, (padded - pad - width) * depth)
    with k.else_():
        clear(build.index(0), padded * depth)
    function = Function("pad_images", scope.params, k.body, kind="kernel", grid_vars=(item,))
    grid = dims.product([windows.batch[0], *extents[:-1]])
    builder.launch(function, (source, target), scope, (grid,), extents[-1] * channels[0])
    strides: list[Dim] = [channels[0]]
    for extent in reversed(extents):
        strides.append(strides[-1] * extent)
    moved = [
        SpatialAxis(extent, axis.result, axis.taps, axis.stride, axis.dilation, (0, 0), stride)
        for axis, extent, stride in zip(windows.axes, extents, reversed(strides[:-1]), strict=True)
    ]
    return Windows((windows.batch[0], strides[-1]), tuple(moved))


def _square(lanes: int, *extents: Dim) -> int:
    """The largest power of two up to `lanes` that is in none of the extents too large, as far as they are known."""
    for extent in extents:
        if isinstance(extent, int):
            lanes = min(lanes, 1 << max(extent, 1).bit_length() - 1)
    return lanes


def padded_elements(windows: Windows, channels: Dim) -> Dim:
    """Elements of the copies that `launch_pad_images` makes."""
    return dims.product([windows.batch[0], channels, *(axis.image + sum(axis.pads) for axis in windows.axes)])
