"""Windows of convolutions and poolings, and images with channels last: what their families share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter
from hidet.graph import Value

Pairs = tuple[tuple[Dim, Dim], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the axes of images are. is_last: channels are the last axis."""

    is_last: bool

    def from_images(self, e: Emitter, x: Value) -> Value:
        """Images [n, c, *space]."""
        return e.transpose(x, (0, x.tensor.rank - 1, *range(1, x.tensor.rank - 1))) if self.is_last else x

    def to_images(self, e: Emitter, x: Value) -> Value:
        """Images as the model has them, of [n, c, *space]."""
        return e.transpose(x, (0, *range(2, x.tensor.rank), 1)) if self.is_last else x

    def space(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The numbers of the spatial axes, of those of all axes."""
        return tuple(numbers[1:-1] if self.is_last else numbers[2:])


def layout_of(e: Emitter, data_format: str) -> Layout:
    """The layout that an attribute names. UnsupportedOp for one of packed channels."""
    if data_format in ("NHWC", "NDHWC", "NWC"):
        return Layout(True)
    if data_format in ("NCHW", "NCDHW", "NCW"):
        return Layout(False)
    raise UnsupportedOp(f"{e.operator}: data_format is {data_format!r}, expected NHWC or NCHW")


def require_plain(e: Emitter, layout: Layout, what: str, numbers: Sequence[int]) -> None:
    """UnsupportedOp for windows that go over the batch or channels."""
    outside = (numbers[0], numbers[-1 if layout.is_last else 1])
    if outside != (1, 1):
        raise UnsupportedOp(f"{e.operator}: {what} is {list(numbers)}, expected 1 for batch and channels")


def pads_of(
    e: Emitter,
    padding: str,
    explicit: Sequence[int],
    layout: Layout,
    space: Sequence[Dim],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Pairs:
    """What is added before and after each spatial axis. With SAME there are ceil(extent / stride) windows."""
    if padding == "VALID":
        return ((0, 0),) * len(kernel)
    if padding == "EXPLICIT":
        pairs = list(zip(explicit[::2], explicit[1::2], strict=True))
        if len(pairs) != len(kernel) + 2:
            raise ImportFailed(f"{e.operator}: explicit_paddings is {list(explicit)}, expected two numbers an axis")
        return tuple(pairs[1:-1] if layout.is_last else pairs[2:])
    if padding != "SAME":
        raise ImportFailed(f"{e.operator}: padding is {padding!r}, expected SAME, VALID or EXPLICIT")
    found = []
    for extent, taps, step, spread in zip(space, kernel, stride, dilation, strict=True):
        reach = (taps - 1) * spread + 1
        total = dims.maximum(0, (dims.ceildiv(extent, step) - 1) * step + reach - extent)
        found.append((dims.floordiv(total, 2), total - dims.floordiv(total, 2)))
    return tuple(found)


def padded(e: Emitter, x: Value, pads: Pairs, value: float) -> tuple[Value, tuple[tuple[int, int], ...]]:
    """Images [n, c, *space] and what is left to add to them: amounts that depend on open sizes are added here."""
    numbers = [pair for pair in pads if isinstance(pair[0], int) and isinstance(pair[1], int)]
    if len(numbers) == len(pads):
        return x, tuple((int(a), int(b)) for a, b in numbers)  # type: ignore[arg-type]  # they are numbers
    made = e.emit("pad", x, pads=((0, 0), (0, 0), *pads), mode="constant", value=value)
    return made, ((0, 0),) * len(pads)
