"""Additions of several neighbours."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import f32
from hidet.ir.intrinsic import Intrinsic, Memory, Value, table

ATOMIC = table(
    *(
        Intrinsic(
            name=f"cuda.reduce_add_x{lanes}_at",
            family=CUDA,
            group="atomic",
            doc=f"add {lanes} f32 values to {lanes} neighbours, each unordered with other accesses",
            ptx="red",
            parameters=(
                Memory("place", ("global",), (f32,), align=4 * lanes, nbytes=4 * lanes),
                Value("value", (f32,), (lanes,)),
            ),
            effect="writes",
            arch=90,
        )
        for lanes in (2, 4)
    ),
)
