"""Fourier transforms of real and imaginary parts, which graphs on complex tensors become (`hidet.torch.fourier`)."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.frontend import Handler
from hidet.graph import Value
from hidet.torch.emitter import TorchEmitter


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {"hidet.fourier.default": _fourier, "hidet.mirrored_fourier.default": _mirrored}


def _fourier(e: TorchEmitter, real: Value, imaginary: Value | None, n: int, kept: int, sign: int) -> tuple[Value, ...]:
    return e.emit_all("fourier", (real, imaginary), {"n": n, "kept": kept, "sign": sign})


def _mirrored(e: TorchEmitter, real: Value, imaginary: Value | None, n: int, sign: int) -> Value:
    return e.emit("fourier", real, imaginary, n=n, kept=n, sign=sign, mirrored=True)
