"""Data movement: joining, padding, repeating, reading at computed places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.dims import Dim
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.torch.emitter import TorchEmitter
from hidet.torch.mapping.selection import masked_index


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {}
    for axes in (1, 2, 3):
        found[f"aten.reflection_pad{axes}d.default"] = _pad_like("reflect")
        found[f"aten.replication_pad{axes}d.default"] = _pad_like("replicate")
    return found | _SINGLE


def _cat(e: TorchEmitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Tensors of shape [0] are left out, whatever the rank of the others: an old rule of torch."""
    dtype, rank = e.result.dtype, e.result.rank
    kept = [e.cast(x, dtype) for x in tensors if x.tensor.rank == rank and (rank > 1 or x.tensor.shape != (0,))]
    if not kept:
        return e.emit("full", shape=e.result.shape, value=0, dtype=dtype)
    return kept[0] if len(kept) == 1 else e.emit("concat", *kept, axis=dim)


def _stack(e: TorchEmitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    return e.emit("stack", *[e.cast(x, e.result.dtype) for x in tensors], axis=dim)


def _sides(pad: Sequence[Dim], rank: int) -> tuple[tuple[Dim, Dim], ...]:
    """torch lists (before, after) from the last axis backwards."""
    listed = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    return (*((0, 0),) * (rank - len(listed)), *reversed(listed))


def _constant_pad(e: TorchEmitter, x: Value, pad: Sequence[Dim], value: Number = 0) -> Value:
    return e.emit("pad", x, pads=_sides(pad, x.tensor.rank), mode="constant", value=value)


def _pad_like(mode: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, padding: Sequence[Dim]) -> Value:
        return e.emit("pad", x, pads=_sides(padding, x.tensor.rank), mode=mode)

    return handle


def _flip(e: TorchEmitter, x: Value, dims: Sequence[int]) -> Value:
    return e.emit("flip", x, axes=tuple(dims)) if dims and x.tensor.rank else x


def _roll(e: TorchEmitter, x: Value, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> Value:
    """Without axes, the elements move in row-major order."""
    if dims:
        return e.emit("roll", x, shifts=tuple(shifts), axes=tuple(dims))
    flat = e.reshape(x, (_count(x),))
    return e.reshape(e.emit("roll", flat, shifts=tuple(shifts), axes=(0,)), x.tensor.shape)


def _count(x: Value) -> Dim:
    count: Dim = 1
    for extent in x.tensor.shape:
        count = count * extent
    return count


def _repeat(e: TorchEmitter, x: Value, repeats: Sequence[Dim]) -> Value:
    return e.emit("tile", x, repeats=tuple(repeats)) if any(n != 1 for n in repeats) else e.reshape(x, e.result.shape)


def _repeat_interleave(
    e: TorchEmitter, x: Value, repeats: Dim, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    if dim is None:
        return e.emit("repeat_interleave", e.reshape(x, (_count(x),)), repeats=repeats, axis=0)
    return e.emit("repeat_interleave", x, repeats=repeats, axis=dim)


def _tril(e: TorchEmitter, x: Value, diagonal: int = 0) -> Value:
    return e.emit("tril", x, offset=diagonal)


def _triu(e: TorchEmitter, x: Value, diagonal: int = 0) -> Value:
    return e.emit("triu", x, offset=diagonal)


def _diag_embed(e: TorchEmitter, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    return e.emit("diag_embed", x, offset=offset, axis1=dim1, axis2=dim2)


def _gather(e: TorchEmitter, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    return e.emit("gather", x, index, axis=dim, wraps=False)


def _index_select(e: TorchEmitter, x: Value, dim: int, index: Value) -> Value:
    if x.tensor.rank == 0:
        return x
    places = e.reshape(index, e.result.shape[dim % x.tensor.rank :][:1])
    return e.emit("index_select", x, places, axis=dim, wraps=False)


def _index(e: TorchEmitter, x: Value, indices: Sequence[Value | None]) -> Value:
    if any(index is not None and index.tensor.dtype.is_bool for index in indices):
        return masked_index(e, x, indices)
    return e.emit("index", x, *positions(indices))


def positions(indices: Sequence[Value | None]) -> list[Value | None]:
    """Index tensors of integers."""
    for index in indices:
        if index is not None and not index.tensor.dtype.is_signed:
            raise UnsupportedOp("writing where a mask is true")
    return list(indices)


def _embedding(
    e: TorchEmitter,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return e.emit("embedding", weight, indices, wraps=False)


def _pixel_shuffle(e: TorchEmitter, x: Value, upscale_factor: int) -> Value:
    return e.emit("pixel_shuffle", x, factor=upscale_factor)


def _pixel_unshuffle(e: TorchEmitter, x: Value, downscale_factor: int) -> Value:
    return e.emit("pixel_unshuffle", x, factor=downscale_factor)


def _channel_shuffle(e: TorchEmitter, x: Value, groups: int) -> Value:
    return e.emit("channel_shuffle", x, groups=groups)


def _im2col(
    e: TorchEmitter,
    x: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    return e.emit("im2col", x, **_patches(kernel_size, dilation, padding, stride))


def _col2im(
    e: TorchEmitter,
    x: Value,
    output_size: Sequence[Dim],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    return e.emit("col2im", x, size=tuple(output_size), **_patches(kernel_size, dilation, padding, stride))


def _patches(
    kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    return {
        "kernel": tuple(kernel),
        "dilation": tuple(dilation),
        "padding": tuple(padding),
        "stride": tuple(stride),
    }


_SINGLE: dict[str, Handler] = {
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.flip.default": _flip,
    "aten.roll.default": _roll,
    "aten.repeat.default": _repeat,
    "aten.repeat_interleave.self_int": _repeat_interleave,
    "aten.tril.default": _tril,
    "aten.triu.default": _triu,
    "aten.diag_embed.default": _diag_embed,
    "aten.gather.default": _gather,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": _index,
    "aten.embedding.default": _embedding,
    "aten.pixel_shuffle.default": _pixel_shuffle,
    "aten.pixel_unshuffle.default": _pixel_unshuffle,
    "aten.channel_shuffle.default": _channel_shuffle,
    "aten.native_channel_shuffle.default": _channel_shuffle,
    "aten.im2col.default": _im2col,
    "aten.col2im.default": _col2im,
}
