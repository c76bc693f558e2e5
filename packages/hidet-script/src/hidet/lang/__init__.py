"""Hidet Script: kernels written as Python functions, which are read and never executed.

    import hidet
    from hidet.lang import attrs, f32, i32
    from hidet.lang.cuda import blockIdx, threadIdx

    @hidet.script
    def scale(x: f32[n], factor: f32):
        attrs.cuda.grid_dim = (n + 255) // 256
        attrs.cuda.block_dim = 256
        i = blockIdx.x * 256 + threadIdx.x
        if i < n:
            x[i] = x[i] * factor

What Python knows when a script is translated (numbers, tuples, mappings, layouts, functions of such) is computed then;
what depends on parameters and memory becomes thread IR. Types are `f32`, `i64`, `f16x2`, … ; scalar operations are
called by their names in the thread IR: `exp`, `truncdiv`.
"""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import Any

from hidet.lang import cpu, cuda, layout, mapping, meta, types
from hidet.lang.attributes import attr, attrs
from hidet.lang.cpu import VECTOR_OPERATIONS
from hidet.lang.function import ScriptFunction
from hidet.lang.layout import (
    col_layout,
    column_layout,
    column_major,
    local_layout,
    row_layout,
    row_major,
    strided,
    strided_layout,
)
from hidet.lang.mapping import (
    TaskMapping,
    auto_map,
    chain,
    col_repeat,
    col_spatial,
    column_repeat,
    column_spatial,
    predicated_auto_map,
    repeat,
    row_repeat,
    row_spatial,
    spatial,
)
from hidet.lang.module import ScriptModule, script, script_module
from hidet.lang.primitives import MEANINGS
from hidet.lang.types import DeclareScope, kind_named, tensor_type, vectorize
from hidet.lang.values import Primitive


def __getattr__(name: str) -> Any:
    if name in MEANINGS and name not in VECTOR_OPERATIONS:
        return Primitive(name)
    kind = kind_named(name)
    # What plug-ins add, where it is none.
    return import_module("hidet.plugins.attributes").find("hidet.lang", name) if kind is None else kind


_NAMES = {*(MEANINGS.keys() - VECTOR_OPERATIONS), *types.SCALAR_NAMES, "void"}
"""What `__getattr__` gives."""


def __dir__() -> list[str]:
    return sorted({*__all__, *_NAMES})


__all__ = [
    "DeclareScope",
    "ScriptFunction",
    "ScriptModule",
    "TaskMapping",
    "attr",
    "attrs",
    "auto_map",
    "chain",
    "col_layout",
    "col_repeat",
    "col_spatial",
    "column_layout",
    "column_major",
    "column_repeat",
    "column_spatial",
    "cpu",
    "cuda",
    "layout",
    "local_layout",
    "mapping",
    "meta",
    "predicated_auto_map",
    "repeat",
    "row_layout",
    "row_major",
    "row_repeat",
    "row_spatial",
    "script",
    "script_module",
    "spatial",
    "strided",
    "strided_layout",
    "tensor_type",
    "types",
    "vectorize",
]
# Python's own min and abs mean the same in a script, and more outside of it.
__all__ += sorted(name for name in _NAMES - {*__all__} if not hasattr(builtins, name))
