"""Functions of scripts that stand for several statements of a GPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hidet.gpu.intrinsics import intrinsic_call
from hidet.ir.expr import Expr
from hidet.ir.types import PointerType
from hidet.lang import operators
from hidet.lang.types import dtype_of
from hidet.lang.values import Primitive

if TYPE_CHECKING:
    from hidet.lang.translator import Translator


def _dynamic_shared_memory(translator: Translator, byte_offset: Any, dtype: Any = "uint8") -> Expr:
    """A pointer into the shared memory that `attrs.cuda.dynamic_smem_bytes` asks for."""
    start = intrinsic_call("gpu.dynamic_shared_memory", operators.index(byte_offset))
    return operators.cast(start, PointerType(dtype_of(dtype), "shared"))


dynamic_shared_memory = Primitive("dynamic_shared_memory", _dynamic_shared_memory)
