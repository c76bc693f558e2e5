"""`hidet.testing.check_*`: functions of hidet held against those of numpy or torch, on random tensors."""

from __future__ import annotations

import ctypes
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from hidet.api.flow import trace_from
from hidet.api.tensors.create import asarray, symbol
from hidet.api.tensors.tensor import Tensor
from hidet.errors import HidetError
from hidet.lang.types import dtype_of
from hidet.plugins.host import load_registry
from hidet.utils.benchmark import benchmark_func

Function = Callable[..., Any]
Shape = Sequence[Any]


def devices_of(device: str) -> list[str]:
    """The device, or, for "all", the host and a GPU where there is one."""
    if device != "all":
        return [device]
    try:
        load_registry().target_of_kind("gpu")
        has_gpu = bool(import_module("hidet.cuda").available())
    except HidetError:
        has_gpu = False
    return ["cpu", "cuda"] if has_gpu else ["cpu"]


def check_unary(
    shape: Shape,
    numpy_op: Function,
    hidet_op: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """AssertionError unless both functions give the same for a random tensor."""
    _check([shape], numpy_op, hidet_op, device, dtype, atol, rtol)


def check_binary(
    a_shape: Shape,
    b_shape: Shape,
    numpy_op: Function,
    hidet_op: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_unary`, of two tensors."""
    _check([a_shape, b_shape], numpy_op, hidet_op, device, dtype, atol, rtol)


def check_ternary(
    a_shape: Shape,
    b_shape: Shape,
    c_shape: Shape,
    numpy_op: Function,
    hidet_op: Function,
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
    device: str = "all",
) -> None:
    """As `check_unary`, of three tensors."""
    _check([a_shape, b_shape, c_shape], numpy_op, hidet_op, device, dtype, atol, rtol)


def check_unary_dynamic(
    shape: Shape,
    numpy_op: Function,
    hidet_op: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_unary`, by a graph for any sizes: an extent may be a pair, of a name and of the size to check."""
    _check([shape], numpy_op, hidet_op, device, dtype, atol, rtol, is_dynamic=True)


def check_binary_dynamic(
    a_shape: Shape,
    b_shape: Shape,
    numpy_op: Function,
    hidet_op: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_unary_dynamic`, of two tensors."""
    _check([a_shape, b_shape], numpy_op, hidet_op, device, dtype, atol, rtol, is_dynamic=True)


def check_torch_unary(
    shape: Shape,
    torch_func: Function,
    hidet_func: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_unary`, with a function of torch."""
    _check([shape], _in_torch(torch_func), hidet_func, device, dtype, atol, rtol)


def check_torch_binary(
    a_shape: Shape,
    b_shape: Shape,
    torch_func: Function,
    hidet_func: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_binary`, with a function of torch."""
    _check([a_shape, b_shape], _in_torch(torch_func), hidet_func, device, dtype, atol, rtol)


def check_torch_binary_dynamic(
    a_shape: Shape,
    b_shape: Shape,
    torch_func: Function,
    hidet_func: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_binary_dynamic`, with a function of torch."""
    _check([a_shape, b_shape], _in_torch(torch_func), hidet_func, device, dtype, atol, rtol, is_dynamic=True)


def check_torch_binary_with_inputs(
    a: Any,
    b: Any,
    torch_func: Function,
    hidet_func: Function,
    device: str = "all",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_torch_binary`, of tensors of torch."""
    _compare([a.cpu().numpy(), b.cpu().numpy()], _in_torch(torch_func), hidet_func, device, atol, rtol)


def check_torch_ternary(
    a_shape: Shape,
    b_shape: Shape,
    c_shape: Shape,
    torch_func: Function,
    hidet_func: Function,
    device: str = "all",
    dtype: Any = "float32",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """As `check_ternary`, with a function of torch."""
    _check([a_shape, b_shape, c_shape], _in_torch(torch_func), hidet_func, device, dtype, atol, rtol)


def check_module(
    model: Any, args: Sequence[Any], device: str = "all", atol: float = 1e-4, rtol: float = 1e-4, dynamic: bool = False
) -> None:
    """AssertionError unless a model of torch gives the same as it is and compiled. dynamic: for any sizes."""
    import torch

    model = model.eval()
    for place in devices_of(device):
        there, given = model.to(place), [arg.to(place) if hasattr(arg, "to") else arg for arg in args]
        torch.compiler.reset()
        with torch.no_grad():
            expected = there(*given)
            compiled: Any = torch.compile(there, backend="hidet", dynamic=dynamic)
            found = compiled(*given)
        pairs = zip(_listed(found), _listed(expected), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, atol=atol, rtol=rtol)


def assert_torch_allclose(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """AssertionError unless tensors of torch, or what converts to them, are close."""
    import torch

    given = [torch.as_tensor(each.numpy() if isinstance(each, Tensor) else each).cpu() for each in (actual, expected)]
    torch.testing.assert_close(*given, rtol=rtol, atol=atol)


def device_to_torch(device: str) -> str:
    """The name that torch has for a device: "vcuda" is one of hidet 0.6 alone."""
    return device.removeprefix("v") if device.startswith(("vcuda", "vhip")) else device


@contextmanager
def capture_stdout() -> Iterator[io.StringIO]:
    """What is printed inside, by Python and by compiled code, as `captured.getvalue()` behind the block."""
    captured = io.StringIO()
    sys.stdout.flush()
    saved = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        python, sys.stdout = sys.stdout, os.fdopen(os.dup(1), "w")
        try:
            yield captured
        finally:
            sys.stdout.close()
            sys.stdout = python
            _flush_c()
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            captured.write(file.read().decode())


def _flush_c() -> None:
    """Write what the C library holds back: compiled code prints through it."""
    ctypes.CDLL(None).fflush(None)


def _check(
    shapes: Sequence[Shape],
    reference: Function,
    function: Function,
    device: str,
    dtype: Any,
    atol: float,
    rtol: float,
    *,
    is_dynamic: bool = False,
) -> None:
    kind = dtype_of(dtype).numpy()
    arrays = [np.random.randn(*(_size(extent) for extent in shape)) for shape in shapes]
    named = [[_name(extent) for extent in shape] for shape in shapes] if is_dynamic else None
    given = [np.asarray(10 * array if kind.kind in "iu" else array).astype(kind) for array in arrays]
    _compare(given, reference, function, device, atol, rtol, named)


def _compare(
    arrays: Sequence[Any],
    reference: Function,
    function: Function,
    device: str,
    atol: float,
    rtol: float,
    named: Sequence[Shape] | None = None,
) -> None:
    expected = [np.asarray(array) for array in _listed(reference(*arrays))]
    for place in devices_of(device):
        tensors = [asarray(array, device=place) for array in arrays]
        if named is None:
            found = function(*tensors)
        else:
            symbols = [symbol(shape, t.dtype, place) for shape, t in zip(named, tensors, strict=True)]
            found = trace_from(_listed(function(*symbols)), symbols).forward(tensors)
        for one, other in zip(_listed(found), expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other, atol=atol, rtol=rtol)


def _in_torch(function: Function) -> Function:
    def run(*arrays: Any) -> list[Any]:
        import torch

        return [result.numpy() for result in _listed(function(*map(torch.from_numpy, arrays)))]

    return run


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


def _size(extent: Any) -> int:
    return int(extent[1] if isinstance(extent, tuple) else extent)


def _name(extent: Any) -> Any:
    return extent[0] if isinstance(extent, tuple) else extent


__all__ = ["benchmark_func"]
