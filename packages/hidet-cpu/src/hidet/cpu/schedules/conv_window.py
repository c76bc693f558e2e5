"""How the windows of a convolution or pooling lie on an image, and the tables of addresses made from that."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from hidet import dims, dtypes
from hidet.cpu.schedules.gemm_program import ProgramBuilder, parameter
from hidet.cpu.schedules.gemm_spec import RowTable
from hidet.cpu.schedules.pack import decode
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.stmt import For, Store
from hidet.schedule.lowering import KernelScope


@dataclass(frozen=True, slots=True)
class SpatialAxis:
    """One spatial axis: extents of image and result, and how windows lie on it.

    pads: positions before and after the image that windows may cover. image_stride: elements between neighbours.
    """

    image: Dim
    result: Dim
    taps: int
    stride: int
    dilation: int
    pads: tuple[int, int]
    image_stride: Dim


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of every result position of every image: (extent, stride) of the batch axis, and spatial axes.

    is_transposed: result position i has the image under tap k at (i + pad - k * dilation) / stride, where that is
    whole, instead of at i * stride - pad + k * dilation.
    """

    batch: tuple[Dim, Dim]
    axes: tuple[SpatialAxis, ...]
    is_transposed: bool = False

    @property
    def rows(self) -> Dim:
        """Result positions of all images."""
        return dims.product([self.batch[0], *(axis.result for axis in self.axes)])

    @property
    def taps(self) -> int:
        """Positions of one window."""
        return int(dims.product([axis.taps for axis in self.axes]))  # type: ignore[arg-type]  # taps are ints

    @property
    def may_leave(self) -> bool:
        """Whether a window may reach past the image."""
        return self.is_transposed or any(axis.pads != (0, 0) for axis in self.axes)

    @property
    def is_pointwise(self) -> bool:
        """Whether each result position reads one run, that of the same position of the image."""
        is_plain = all(axis.taps == axis.stride == 1 and axis.pads == (0, 0) for axis in self.axes)
        return is_plain and not self.is_transposed


def fill_windows(
    k: IRBuilder, scope: KernelScope, table: RowTable, start: Expr, zeros: Expr | None, windows: Windows
) -> None:
    """Addresses of the pixels under each tap of each result position; `zeros` stands for positions off the image.

    start: address of the channels of pixel 0 of image 0. zeros: None when no window leaves its image. Result positions
    past the last one repeat it. This is what a convolution does besides multiplying, so that positions are counted
    instead of divided out, and what taps along the last axis have in common is computed once.
    """
    results = [parameter(scope, axis.result, "result") for axis in windows.axes]
    batch_stride = parameter(scope, windows.batch[1], "batch_stride")
    axes = [_AxisSizes.of(scope, axis) for axis in windows.axes]
    digits = decode(build.minimum(table.first_row, table.last_row), [None, *results])
    image, *places = (k.let(f"place{n - 1}" if n else "image", digit) for n, digit in enumerate(digits))
    with k.for_range("entry", table.count) as entry:
        pixel = k.let("image_start", start + image * batch_stride)
        firsts = [
            place + axis.pad if windows.is_transposed else place * axis.stride - axis.pad
            for axis, place in zip(axes, places, strict=True)
        ]
        origins = [k.let("origin", first) for first in firsts]
        with ExitStack() as taps:
            number: Expr = build.index(0)
            inside: Var | None = None
            for axis, origin in zip(axes, origins, strict=True):
                tap = taps.enter_context(k.for_range("tap", axis.taps))
                if windows.is_transposed:
                    reached = origin - tap * axis.dilation
                    position = k.let("position", reached // axis.stride)
                    found = _below(reached // axis.stride, axis.extent, build.equal(reached % axis.stride, 0))
                else:
                    position = k.let("position", origin + tap * axis.dilation)
                    found = _below(position, axis.extent)
                inside = k.let("is_on_image", found if inside is None else build.logical_and(inside, found))
                pixel = k.let("address", pixel + position * axis.pixel_stride)
                number = number * axis.taps + tap
            chosen: Expr = pixel if zeros is None or inside is None else build.select(inside, pixel, zeros)
            k.store(table.variable, number * table.stride + entry, Bitcast(chosen, build.INDEX))
        with k.if_(table.first_row + entry < table.last_row):
            _advance(k, [image, *places], results)


@dataclass(frozen=True, slots=True, eq=False)
class _AxisSizes:
    """A `SpatialAxis` as parameters of a kernel."""

    pad: Expr
    stride: Expr
    dilation: Expr
    extent: Expr
    taps: Expr
    pixel_stride: Expr

    @staticmethod
    def of(scope: KernelScope, axis: SpatialAxis) -> _AxisSizes:
        return _AxisSizes(
            pad=parameter(scope, axis.pads[0], "pad"),
            stride=parameter(scope, axis.stride, "stride"),
            dilation=parameter(scope, axis.dilation, "dilation"),
            extent=parameter(scope, axis.image, "extent"),
            taps=parameter(scope, axis.taps, "taps"),
            pixel_stride=parameter(scope, axis.image_stride, "pixel_stride"),
        )


def _below(position: Expr, extent: Expr, *conditions: Expr) -> Expr:
    """Whether 0 <= position < extent, and `conditions`: negative positions are large as unsigned numbers."""
    return build.logical_and(build.cast(position, dtypes.u64) < build.cast(extent, dtypes.u64), *conditions)


def _advance(k: IRBuilder, counters: Sequence[Var], extents: Sequence[Expr]) -> None:
    """Count `counters` on by one, the last one first; the first has no extent."""
    *outer, last = counters
    k.assign(last, last + 1)
    if outer:
        with k.if_(build.equal(last, extents[-1])):
            k.assign(last, build.index(0))
            _advance(k, outer, extents[:-1])


def launch_zeros(builder: ProgramBuilder, pointer: Var, count: Dim) -> None:
    """Clear the first `count` elements of a scratch buffer, in the entry function itself: a few hundred bytes."""
    place = build.size_var("place")
    zero = Store(pointer, (place,), build.const(0, pointer.dtype))
    builder.run(For(place, build.index(0), builder.size(count), zero, kind="vectorize"))


def merge_last_taps(windows: Windows, channels: Dim) -> tuple[Windows, Dim]:
    """Windows whose taps along the last axis are part of one longer run, and the length of that run.

    Only for dense pixels that no window leaves: there neighbouring taps are then neighbours in memory.
    """
    *outer, last = windows.axes
    merged = SpatialAxis(last.image, last.result, 1, last.stride, 1, last.pads, last.image_stride)
    return Windows(windows.batch, (*outer, merged)), channels * last.taps


def result_positions(rank: int) -> tuple[int, ...]:
    """Axes of [batch, channel, *space] that a row number counts through."""
    return (0, *range(2, rank))


def spatial_axes(
    image: Sequence[Dim],
    image_strides: Sequence[Dim],
    result: Sequence[Dim],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> tuple[SpatialAxis, ...]:
    """One `SpatialAxis` for each position of the arguments."""
    rows = zip(image, result, kernel, stride, dilation, pads, image_strides, strict=True)
    return tuple(SpatialAxis(*row) for row in rows)


def without_padding(windows: Windows) -> Windows:
    """The windows on images without padding."""
    return replace(windows, axes=tuple(replace(axis, pads=(0, 0)) for axis in windows.axes))


def with_padding_of(windows: Windows, other: Windows) -> Windows:
    """The windows with the padding and direction of `other`."""
    pads = [axis.pads for axis in other.axes]
    axes = tuple(replace(axis, pads=pair) for axis, pair in zip(windows.axes, pads, strict=True))
    return replace(windows, axes=axes, is_transposed=other.is_transposed)
