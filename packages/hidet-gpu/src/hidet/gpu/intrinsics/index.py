"""Where a thread stands: its index in the block, that of the block in the grid, and their extents."""

from __future__ import annotations

from hidet.dtypes import i32
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import Intrinsic, table

_AXES = ("x", "y", "z")

_REGISTERS = (
    ("thread_idx", "%tid", "index of the thread in its block along axis {}"),
    ("block_dim", "%ntid", "threads of a block along axis {}"),
    ("block_idx", "%ctaid", "index of the block in the grid along axis {}"),
    ("grid_dim", "%nctaid", "blocks of the grid along axis {}"),
)

INDEX = table(
    *(
        Intrinsic(
            name=f"gpu.{name}.{axis}",
            family=GPU,
            group="index",
            doc=doc.format(axis),
            ptx=f"{ptx}",
            result=i32,
        )
        for name, ptx, doc in _REGISTERS
        for axis in _AXES
    ),
    Intrinsic(
        name="gpu.lane_idx",
        family=GPU,
        group="index",
        doc="index of the thread in its warp",
        ptx="%laneid",
        result=i32,
    ),
)
