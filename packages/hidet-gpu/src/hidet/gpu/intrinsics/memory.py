"""Memory of a block that launches ask for."""

from __future__ import annotations

from hidet.dtypes import i32, i64, u8
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import Intrinsic, Value, table
from hidet.ir.types import PointerType

MEMORY = table(
    Intrinsic(
        name="gpu.dynamic_shared_memory",
        family=GPU,
        group="memory",
        doc="the shared memory that the launch asks for beyond what the kernel declares, from a byte on",
        ptx="State Spaces: .shared",
        parameters=(Value("offset", (i32, i64)),),
        result=PointerType(u8, "shared"),
    ),
)
