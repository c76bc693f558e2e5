"""What tensors of hidet 0.6 had: functions and properties of `hidet.Tensor`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy

from hidet.api.flow.functions import function
from hidet.api.tensors.create import asarray
from hidet.api.tensors.tensor import Tensor, device_name, placed
from hidet.compat.warn import warn_unread
from hidet.errors import LaunchError, UnsupportedOp


def _layout(x: Tensor) -> Any:
    """Where elements lie: in row-major order (`hidet.lang.layout.row_major`). LaunchError without hidet-script."""
    try:
        layouts: Any = importlib.import_module("hidet.lang.layout")
    except ModuleNotFoundError as error:
        raise LaunchError("Tensor.layout is of Hidet Script", hint="pip install hidet-script") from error
    return layouts.row_major(*x.shape)


layout = property(_layout)


def copy_(x: Tensor, src: Any) -> Tensor:
    """Overwrite x with the elements of src, which are converted, and repeated as broadcasting does. The memory that x
    shares has them on the host; on a device x gets other memory. LaunchError for a symbolic tensor."""
    if x.is_symbolic():
        raise LaunchError("copy_ overwrites elements, which a symbolic tensor has none of")
    source = numpy.asarray(asarray(src).numpy())
    if x.device == "cpu":
        numpy.copyto(x.storage, source, casting="unsafe")
    else:
        elements = numpy.broadcast_to(source, x.shape).astype(x.dtype.numpy())
        x.storage = placed(elements, x.device).storage
    return x


def copy_async(x: Tensor, stream: object = None) -> Tensor:
    """A copy, which is there when this returns. stream: as it is current."""
    return x.copy()


def cpu_async(x: Tensor, stream: object = None) -> Tensor:
    """The tensor on the host, where its elements are there when this returns. stream: as it is current."""
    return x.cpu()


def cuda_async(x: Tensor, device: int | str | None = None, stream: object = None) -> Tensor:
    """The tensor on a GPU; None is the first. stream: as it is current."""
    return x.cuda(device)


def to_device(x: Tensor, device: str, stream: object = None) -> Tensor:
    """The tensor on a device. stream: as it is current."""
    return x.to(device=device)


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """With `value` where the mask holds."""
    filled: Tensor = function("where")(mask, value, x)
    return filled


def rearrange(x: Tensor, plan: Sequence[Sequence[int]]) -> Tensor:
    """See `hidet.ops.rearrange`."""
    turned: Tensor = function("rearrange")(x, plan)
    return turned


def signature(x: Tensor) -> str:
    """Type, shape and device as a text."""
    return f"tensor({x.dtype.name}, {list(x.shape)}, {x.device})"


def cuda_(x: Tensor, device: int | str | None = None) -> Tensor:
    """Move the tensor itself to a GPU; None is the first."""
    return move_to(x, device if isinstance(device, str) else f"cuda:{device or 0}")


def move_to(x: Tensor, device: str) -> Tensor:
    """Move a tensor itself to a device; a symbolic one is of that device from here on."""
    if not x.is_symbolic():
        x.storage = x.to(device=device).storage
    x._device = device_name(device)
    return x


def vcuda_(x: Tensor) -> Tensor:
    """Changes nothing, and warns: compiling copies no weights."""
    warn_unread("Tensor.vcuda_()", "weights are not copied to compile a graph; x.cuda_() moves a tensor")
    return x


def hip(x: Tensor, device: int | str | None = None) -> Tensor:
    """UnsupportedOp: a target is a wheel, and none is for HIP."""
    raise UnsupportedOp("tensors on devices of HIP", hint="docs/targets.md says what a wheel for another GPU offers")


hip_ = vhip_ = hip
