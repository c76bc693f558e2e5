"""Memory of a block that launches ask for, and what is copied to memory of a block in the background."""

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
        name="gpu.copy_async",
        family=GPU,
        group="memory",
        doc="copy 16 bytes to shared memory, in the background where the device can",
        ptx="cp.async",
        parameters=(
            Memory("target", ("shared",), align=16, nbytes=16),
            Memory("source", ("global",), align=16, nbytes=16),
        ),
        effect="writes",
    ),
    Intrinsic(
        name="gpu.copy_async_finish",
        family=GPU,
        group="memory",
        doc="wait until all copies of this thread in the background are finished, and visible to it",
        ptx="cp.async.wait_all",
        effect="waits",
    ),
)
