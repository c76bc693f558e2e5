"""Reductions: sums, extrema, statistics over axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from hidet import dtypes
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.torch.emitter import TorchEmitter

Axes = Sequence[int] | int | None


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {}
    for core, overloads in _CONVERTED.items():
        found |= {f"aten.{core}.{overload}": _converted(core) for overload in overloads}
    for core in ("any", "all"):
        found |= {f"aten.{core}.{overload}": _truth(core) for overload in ("default", "dim", "dims")}
    for core in ("amax", "amin"):
        found[f"aten.{core}.default"] = _extremum(core)
    for core in ("argmax", "argmin"):
        found[f"aten.{core}.default"] = _position(core)
    for name in ("max", "min"):
        found[f"aten.{name}.dim"] = _with_index(f"{name}_with_index")
        found[f"aten.{name}.default"] = _extremum(f"a{name}")
    for core in ("var", "std", "var_mean", "std_mean"):
        found[f"aten.{core}.correction"] = _variance(core)
    return found | _SINGLE


# aten and core name -> overloads: the element type of the input is converted to that of the result
_CONVERTED = {
    "sum": ("default", "dim_IntList"),
    "mean": ("default", "dim"),
    "prod": ("default", "dim_int"),
}


def _converted(core: str) -> Handler:
    def handle(
        e: TorchEmitter, x: Value, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
    ) -> Value:
        wanted = e.result.dtype
        if wanted.is_float or x.tensor.dtype.is_float:
            x = e.cast(x, wanted)
        return e.cast(e.emit(core, x, axes=_axes(dim), keepdim=keepdim), wanted)

    return handle


def _axes(dim: Axes) -> tuple[int, ...] | None:
    if dim is None:
        return None
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _truth(core: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        return e.cast(e.emit(core, x, axes=_axes(dim), keepdim=keepdim), e.result.dtype)

    return handle


def _extremum(core: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
        return e.emit(core, x, axes=_axes(dim), keepdim=keepdim)

    return handle


def _position(core: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        return e.emit(core, x, axes=_axes(dim), keepdim=keepdim)

    return handle


def _with_index(core: str) -> Handler:
    def handle(e: TorchEmitter, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, ...]:
        return e.emit_all(core, (x,), {"axis": dim, "keepdim": keepdim})

    return handle


def _variance(core: str) -> Handler:
    def handle(
        e: TorchEmitter, x: Value, dim: Axes = None, *, correction: Number | None = None, keepdim: bool = False
    ) -> Value | tuple[Value, ...]:
        divisor = 1 if correction is None else correction
        # Squares may be out of the range of a type that has their root, and a mean may be near zero beside elements of
        # it. Eager mode adds them up in f64 on a CPU alone.
        is_wide = core != "var" and e.device == "cpu"
        source = e.cast(x, dtypes.f64) if is_wide else x
        values = e.emit_all(core, (source,), {"axes": _axes(dim), "keepdim": keepdim, "correction": divisor})
        found = tuple(e.cast(value, x.tensor.dtype) for value in values)
        return found[0] if len(found) == 1 else found

    return handle


def _logsumexp(e: TorchEmitter, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    return e.emit("logsumexp", e.cast(x, e.result.dtype), axes=_axes(dim), keepdim=keepdim)


def _vector_norm(
    e: TorchEmitter,
    x: Value,
    ord: Number = 2,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    if isinstance(ord, complex):
        raise UnsupportedOp("a norm of complex order")
    return e.emit("norm", e.cast(x, e.result.dtype), p=ord, axes=_axes(dim), keepdim=keepdim)


def _count_nonzero(e: TorchEmitter, x: Value, dim: Axes = None) -> Value:
    return e.emit("count_nonzero", x, axes=_axes(dim), keepdim=False)


def _cdist(e: TorchEmitter, a: Value, b: Value, p: float, compute_mode: int | None) -> Value:
    """Distances of every row of a[..., m, k] and every row of b[..., n, k]."""
    rows, columns = e.unsqueeze(a, (a.tensor.rank - 1,)), e.unsqueeze(b, (b.tensor.rank - 2,))
    return e.emit("norm", e.emit("sub", rows, columns), p=p, axes=(-1,), keepdim=False)


_SINGLE: dict[str, Handler] = {
    "aten._cdist_forward.default": _cdist,
    "aten.logsumexp.default": _logsumexp,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.count_nonzero.default": _count_nonzero,
    "aten.count_nonzero.dim_IntList": _count_nonzero,
}
