"""Compiling expressions and running them over arrays, for tests of code generation and of mathematical functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hidet.cpu.arch import arch_from_text
from hidet.cpu.codegen import emit_module
from hidet.cpu.loader import LoadedCode, load_objects
from hidet.cpu.passes.expand_math import expand_math
from hidet.cpu.toolchain import compile_object
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import For, Store
from hidet.ir.types import PointerType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Elementwise:
    """out[i] = value(in0[i], in1[i], ...), for element types `inputs` and `output`."""

    value: Callable[..., Expr]
    inputs: tuple[DType, ...]
    output: DType


def elementwise_module(rows: Mapping[str, Elementwise], lanes: int = 1) -> Module:
    """One kernel a row, of (inputs, output, count); with `lanes` > 1 vectors are computed, and count is a multiple."""
    functions = []
    for name, row in rows.items():
        sources = [Var(f"in{n}", PointerType(dtype)) for n, dtype in enumerate(row.inputs)]
        result, count = Var("out", PointerType(row.output)), build.size_var("count")
        i, item = build.size_var("i"), build.size_var("item")
        value = row.value(*(build.load(source, i, lanes=lanes) for source in sources))
        kind = "vectorize" if lanes == 1 else "serial"
        loop = For(i, build.index(0), count, Store(result, (i,), value), step=lanes, kind=kind)
        functions.append(Function(name, (*sources, result, count), loop, kind="kernel", grid_vars=(item,)))
    return expand_math(Module(tuple(functions), functions[0].name))


@dataclass(frozen=True)
class Kernels:
    """Compiled rows: `kernels("name", x, y)` gives the output array."""

    rows: Mapping[str, Elementwise]
    code: LoadedCode

    def __call__(self, name: str, *inputs: Array) -> Array:
        row = self.rows[name]
        output = np.empty(inputs[0].shape, row.output.numpy())
        inputs = tuple(np.ascontiguousarray(a, d.numpy()) for a, d in zip(inputs, row.inputs, strict=True))
        cells = np.array([*(a.ctypes.data for a in inputs), output.ctypes.data, output.size], np.int64)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        prototype(self.code.address(name))(cells.ctypes.data, 0, 1)
        return output


def compile_elementwise(rows: Mapping[str, Elementwise], lanes: int = 1, cpu: str = "host") -> Kernels:
    """Machine code of every row. `cpu` may name another processor whose code runs here."""
    arch = arch_from_text(cpu)
    return Kernels(rows, load_objects([compile_object(emit_module(elementwise_module(rows, lanes), arch), arch, 2)]))


@pytest.fixture(scope="session")
def elementwise() -> type[Elementwise]:
    """The `Elementwise` class."""
    return Elementwise


@pytest.fixture(scope="session")
def module_of() -> Callable[..., Module]:
    """The function `elementwise_module`."""
    return elementwise_module


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Kernels]:
    """The function `compile_elementwise`."""
    return compile_elementwise
