"""What users' scripts import from `hidet.utils`: measuring, and comparing results. Nothing in hidet uses it."""

from __future__ import annotations

from typing import Any

from hidet.utils.benchmark import benchmark_func, do_bench

__all__ = ["assert_close", "benchmark_func", "do_bench"]


def assert_close(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """AssertionError, with the largest differences, unless two tensors of any library are close."""
    import numpy

    numpy.testing.assert_allclose(_on_host(actual), _on_host(expected), rtol=rtol, atol=atol)


def _on_host(tensor: Any) -> Any:
    import numpy

    found = tensor.detach() if hasattr(tensor, "detach") else tensor
    array = numpy.asarray(found.cpu() if hasattr(found, "cpu") else found)
    return array.astype(numpy.float64) if array.dtype.kind not in "iub" else array
