"""What users' scripts import from `hidet.utils`: measuring, and comparing results. Nothing in hidet uses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pkgutil import extend_path
from typing import Any

import numpy

from hidet.utils.benchmark import benchmark_func, do_bench

__all__ = ["assert_close", "benchmark_func", "do_bench", "prod", "same_list"]

# Wheels may continue this package in folders of their own.
__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> Any:
    # What plug-ins add.
    return import_module("hidet.plugins.attributes").find("hidet.utils", name)


def prod(seq: Iterable[Any]) -> Any:
    """The product of numbers; 1 for none."""
    total: Any = 1
    for factor in seq:
        total = total * factor
    return total


def same_list(lhs: Sequence[Any], rhs: Sequence[Any], use_equal: bool = True) -> bool:
    """Whether two lists have equal elements in the same order; use_equal False: the same objects."""
    if len(lhs) != len(rhs):
        return False
    return all(a == b if use_equal else a is b for a, b in zip(lhs, rhs, strict=True))


def assert_close(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """AssertionError, with the largest differences, unless two tensors of any library are close."""
    numpy.testing.assert_allclose(_on_host(actual), _on_host(expected), rtol=rtol, atol=atol)


def _on_host(tensor: Any) -> Any:
    found = tensor.detach() if hasattr(tensor, "detach") else tensor
    array = numpy.asarray(found.cpu() if hasattr(found, "cpu") else found)
    return array.astype(numpy.float64) if array.dtype.kind not in "iub" else array
