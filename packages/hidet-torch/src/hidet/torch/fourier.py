"""torch's Fourier transforms on real and imaginary parts.

What a transform does along one axis is an operator of ours, whose handler is core's `fourier`. Axes are transformed one
after the other, the real one first on the way to frequencies and last on the way back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from hidet.errors import UnsupportedOp
from hidet.torch import compat
from torch import Tensor

Parts = tuple[Tensor, Tensor | None]


def transform(parts: Parts, axes: Sequence[int], normalization: int, forward: bool) -> Parts:
    """`aten._fft_c2c`: of all frequencies along `axes`."""
    sign = -1 if forward else 1
    lengths = [_length(parts[0].shape[axis]) for axis in axes]
    found = parts
    for axis, n in zip(axes, lengths, strict=True):
        found = _along(found, axis, n, n, sign)
    return _scaled(found, normalization, lengths)


def transform_of_real(x: Tensor, axes: Sequence[int], normalization: int, onesided: bool) -> Parts:
    """`aten._fft_r2c`: the last of `axes` has frequencies 0 to n / 2 where it is one-sided."""
    lengths = [_length(x.shape[axis]) for axis in axes]
    kept = lengths[-1] // 2 + 1 if onesided else lengths[-1]
    found = _along((x, None), axes[-1], lengths[-1], kept, -1)
    for axis, n in zip(axes[:-1], lengths[:-1], strict=True):
        found = _along(found, axis, n, n, -1)
    return _scaled(found, normalization, lengths)


def transform_to_real(parts: Parts, axes: Sequence[int], normalization: int, last: Any) -> Tensor:
    """`aten._fft_c2r`: back to a real signal, whose last axis of `axes` has `last` elements."""
    *outer, axis = axes
    n = _length(last)
    lengths = [_length(parts[0].shape[each]) for each in outer]
    found = parts
    for each, length in zip(outer, lengths, strict=True):
        found = _along(found, each, length, length, 1)
    bins = n // 2 + 1
    real, imaginary = (None if part is None else part.narrow(axis, 0, bins).movedim(axis, -1) for part in found)
    signal = _operators()["mirrored_fourier"](real, imaginary, n, 1).movedim(-1, axis)
    return _scaled((signal, None), normalization, [*lengths, n])[0]


def _along(parts: Parts, axis: int, n: int, kept: int, sign: int) -> Parts:
    real, imaginary = (None if part is None else part.movedim(axis, -1) for part in parts)
    first, second = _operators()["fourier"](real, imaginary, n, kept, sign)
    return first.movedim(-1, axis), second.movedim(-1, axis)


def _scaled(parts: Parts, normalization: int, lengths: Sequence[int]) -> Parts:
    """normalization: 0 none, 1 by the root of the number of elements, 2 by this number."""
    count = math.prod(lengths)
    if not normalization or count == 1:
        return parts
    factor = 1 / (math.sqrt(count) if normalization == 1 else count)
    real, imaginary = parts
    return real * factor, None if imaginary is None else imaginary * factor


def _length(size: Any) -> int:
    if not isinstance(size, int):
        raise UnsupportedOp(f"a Fourier transform of length {size}, which differs between calls")
    return size


def _fourier(real: Tensor, imaginary: Tensor | None, n: int, kept: int, sign: int) -> tuple[Tensor, Tensor]:
    signal = torch.complex(real, torch.zeros_like(real) if imaginary is None else imaginary)
    found = torch.fft.fft(signal) if sign < 0 else torch.fft.ifft(signal, norm="forward")
    return found.real[..., :kept].clone(), found.imag[..., :kept].clone()


def _mirrored(real: Tensor, imaginary: Tensor | None, n: int, sign: int) -> Tensor:
    signal = torch.complex(real, torch.zeros_like(real) if imaginary is None else imaginary)
    found: Tensor = torch.fft.irfft(signal if sign > 0 else signal.conj(), n, norm="forward")
    return found


_SCHEMAS: Mapping[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "fourier": (
        "(Tensor real, Tensor? imaginary, int n, int kept, int sign) -> (Tensor, Tensor)",
        _fourier,
        lambda real, imaginary, n, kept, sign: tuple(real.new_empty((*real.shape[:-1], kept)) for _ in range(2)),
    ),
    "mirrored_fourier": (
        "(Tensor real, Tensor? imaginary, int n, int sign) -> Tensor",
        _mirrored,
        lambda real, imaginary, n, sign: real.new_empty((*real.shape[:-1], n)),
    ),
}


@cache
def _operators() -> Mapping[str, Callable[..., Any]]:
    """Operators of torch.ops by name."""
    found: dict[str, Callable[..., Any]] = {}
    for name, (schema, function, infer) in _SCHEMAS.items():
        library = compat.operator_library("hidet", name)
        library.define(name + schema)
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"hidet::{name}", infer, lib=library)
        found[name] = getattr(torch.ops.hidet, name).default
    return found
