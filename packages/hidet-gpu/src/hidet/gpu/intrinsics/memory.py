"""Memory of a block that launches ask for."""

from __future__ import annotations

from hidet.dtypes import i32, i64, u8
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import Intrinsic, Memory, Value, table
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
    Intrinsic(
        name="gpu.prefetch",
        family=GPU,
        group="memory",
        doc="bring bytes, a multiple of 16, into the cache that all blocks share, where the device can; results are "
        "the same without",
        ptx="cp.async.bulk.prefetch",
        parameters=(Memory("source", ("global",), align=16), Value("bytes", (i32,))),
        effect="reads",
    ),
)
