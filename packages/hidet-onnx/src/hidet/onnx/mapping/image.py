"""Images: sampling at places that are data, boxes, patches, undoing of pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet import dtypes
from hidet.dims import Dim, product
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.graph.types import contiguous_strides
from hidet.onnx.decode_image import require_pillow
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.windows import explicit_pads

_SAMPLING = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("GridSample", 16): _grid_sample,
        ("AffineGrid", 20): _affine_grid,
        ("RoiAlign", 10): _roi_align_from_edges,
        ("RoiAlign", 16): _roi_align,
        ("MaxRoiPool", 1): _roi_pool,
        ("Col2Im", 18): _columns_to_image,
        ("DeformConv", 19): _deform_conv,
        ("MaxUnpool", 9): _max_unpool,
        ("CenterCropPad", 18): _center_crop_pad,
        ("ImageDecoder", 20): _decode,
    }


def _grid_sample(
    e: Emitter,
    x: Value,
    grid: Value,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Value:
    if mode not in _SAMPLING:
        raise UnsupportedOp(f"GridSample: mode is {mode!r}, expected one of {', '.join(_SAMPLING)}")
    source = x.tensor.dtype
    wide = source if source.is_float and source.is_compute else dtypes.f32
    result = e.emit(
        "grid_sample",
        e.cast(x, wide),
        e.cast(grid, wide),
        mode=_SAMPLING[mode],
        padding=padding_mode,
        align_corners=bool(align_corners),
    )
    return e.cast(result, source)


def _affine_grid(e: Emitter, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    """`size` is that of the image: [n, c, *space]."""
    _, _, *space = e.dims(size, "the size")
    return e.emit("affine_grid", theta, space=tuple(space), align_corners=bool(align_corners))


def _roi_align_from_edges(e: Emitter, x: Value, boxes: Value, images: Value, **attributes: float) -> Value:
    """Version 10 counts from the edge of the first element."""
    return _roi_align(e, x, boxes, images, coordinate_transformation_mode="output_half_pixel", **attributes)  # type: ignore[arg-type]  # the rest are numbers


def _roi_align(
    e: Emitter,
    x: Value,
    boxes: Value,
    images: Value,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Value:
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise UnsupportedOp(f"RoiAlign: coordinate_transformation_mode is {coordinate_transformation_mode!r}")
    return e.emit(
        "roi_align",
        x,
        e.cast(boxes, x.tensor.dtype),
        images,
        size=(output_height, output_width),
        scale=spatial_scale,
        samples=sampling_ratio,
        centred=coordinate_transformation_mode == "half_pixel",
        mode=mode,
    )


def _roi_pool(e: Emitter, x: Value, boxes: Value, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Value:
    """boxes[r, 5]: the image, then x1, y1, x2, y2."""
    count, width = boxes.tensor.shape
    if width != 5:
        raise ImportFailed(f"MaxRoiPool takes boxes [boxes, 5], got {boxes.type}")
    images = e.cast(e.emit("select", boxes, axis=1, index=0), dtypes.i64)
    corners = e.emit("slice", boxes, starts=(0, 1), stops=(count, 5), steps=(1, 1))
    return e.emit("roi_pool", x, corners, images, size=tuple(pooled_shape), scale=spatial_scale)


def _columns_to_image(
    e: Emitter,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    size = e.dims(image_shape, "the shape of the image")
    kernel = e.ints(block_shape, "the shape of a block")
    ones = (1,) * len(kernel)
    return e.emit(
        "col2im",
        x,
        size=size,
        kernel=kernel,
        stride=tuple(strides or ones),
        padding=explicit_pads(e, pads, len(kernel)),
        dilation=tuple(dilations or ones),
    )


def _deform_conv(
    e: Emitter,
    x: Value,
    weight: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Columns of moved taps, then one product a group."""
    filters, group_channels, *kernel = weight.tensor.shape
    taps = tuple(kernel_shape or [int(k) for k in kernel])  # type: ignore[arg-type]  # weights have known extents
    ones = (1,) * len(taps)
    columns = e.emit(
        "deform_columns",
        x,
        offset,
        mask,
        kernel=taps,
        stride=tuple(strides or ones),
        padding=explicit_pads(e, pads, len(taps)),
        dilation=tuple(dilations or ones),
        groups=offset_group,
    )
    batch, _, windows = columns.tensor.shape
    rows = group_channels * product(taps)
    grouped = e.reshape(columns, (batch, group, rows, windows))
    matrices = e.reshape(weight, (group, filters // group, rows))
    result = e.emit("matmul", matrices, grouped)
    result = e.reshape(result, (batch, filters, *offset.tensor.shape[2:]))
    if bias is None:
        return result
    return e.emit("add", result, e.reshape(bias, (filters, *ones)))


def _max_unpool(
    e: Emitter,
    x: Value,
    indices: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Each element of x where its index, row-major over the whole un-padded result, says; zeros elsewhere."""
    axes = len(kernel_shape)
    steps = strides or (1,) * axes
    lead, space = x.tensor.shape[:-axes], x.tensor.shape[-axes:]
    rows = zip(space, steps, kernel_shape, explicit_pads(e, pads, axes), strict=True)
    inferred: tuple[Dim, ...] = (*lead, *((n - 1) * step + k - a - b for n, step, k, (a, b) in rows))
    shape = inferred if output_shape is None else e.dims(output_shape, "the output's shape")
    # Indices count in the inferred shape; a larger result holds it in its corner.
    places, rest = [], e.cast(e.emit("reshape", indices, shape=(-1,)), dtypes.i64)
    for stride in contiguous_strides(inferred):
        size = e.size(stride)
        places.append(e.emit("floor_divide", rest, size))
        rest = e.emit("remainder", rest, size)
    base = e.emit("full", shape=tuple(shape), value=0, dtype=x.tensor.dtype)
    return e.emit("index_put", base, e.emit("reshape", x, shape=(-1,)), *places)


def _center_crop_pad(e: Emitter, x: Value, shape: Value, *, axes: Sequence[int] | None = None) -> Value:
    """The middle of an axis that is too long, zeros around one that is too short; odd differences go to the end."""
    rank = x.tensor.rank
    places = range(rank) if axes is None else [axis % rank for axis in axes]
    starts: list[Dim] = [0] * rank
    stops: list[Dim] = list(x.tensor.shape)
    pads: list[tuple[Dim, Dim]] = [(0, 0)] * rank
    for axis, wanted in zip(places, e.dims(shape, "the shape"), strict=True):
        extent = x.tensor.shape[axis]
        if not isinstance(extent, int) or not isinstance(wanted, int):
            raise UnsupportedOp(f"CenterCropPad of a symbolic extent: {extent} to {wanted}")
        if wanted < extent:
            # The start is rounded down (ONNX operator specification, CenterCropPad).
            starts[axis] = (extent - wanted) // 2
            stops[axis] = (extent - wanted) // 2 + wanted
        else:
            pads[axis] = ((wanted - extent) // 2, wanted - extent - (wanted - extent) // 2)
    cut = e.emit("slice", x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * rank)
    return e.emit("pad", cut, pads=tuple(pads), value=0)


def _decode(e: Emitter, encoded: Value, *, pixel_format: str = "RGB") -> Value:
    require_pillow()
    size = (e.builder.fresh_size(), e.builder.fresh_size())
    return e.emit("onnx.decode_image", encoded, pixel_format=pixel_format, defines=size)
