"""The intrinsics that NVIDIA's GPUs have besides those of every GPU, "cuda.…", a file a group.

    signature   parameters, result, effect, least architecture: here
    meaning     numpy, in the interpreter of launches: `hidet.cuda.simulator`
    spelling    `hidet.cuda.codegen.hardware`

`intrinsic_call` builds a call of either family.
"""

from __future__ import annotations

from hidet.cuda.intrinsics.atomic import ATOMIC
from hidet.cuda.intrinsics.barrier import BARRIER
from hidet.cuda.intrinsics.bits import BITS
from hidet.cuda.intrinsics.convert import CONVERT
from hidet.cuda.intrinsics.copy import COPY
from hidet.cuda.intrinsics.index import INDEX
from hidet.cuda.intrinsics.math import MATH
from hidet.cuda.intrinsics.mma import MMA
from hidet.cuda.intrinsics.sync import SYNC
from hidet.cuda.intrinsics.tma import TMA
from hidet.cuda.intrinsics.warp import WARP
from hidet.cuda.intrinsics.wgmma import WGMMA
from hidet.gpu.intrinsics import INTRINSICS as GPU_INTRINSICS
from hidet.gpu.intrinsics import find_intrinsic
from hidet.ir.expr import Call, Expr
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.intrinsic_call import call_intrinsic

GROUPS: dict[str, dict[str, Intrinsic]] = {
    "index": INDEX,
    "sync": SYNC,
    "warp": WARP,
    "atomic": ATOMIC,
    "copy": COPY,
    "mma": MMA,
    "wgmma": WGMMA,
    "barrier": BARRIER,
    "tma": TMA,
    "convert": CONVERT,
    "math": MATH,
    "bits": BITS,
}

CUDA_INTRINSICS: dict[str, Intrinsic] = {name: row for group in GROUPS.values() for name, row in group.items()}
"""NVIDIA's rows by name."""

INTRINSICS: dict[str, Intrinsic] = {**GPU_INTRINSICS, **CUDA_INTRINSICS}
"""What kernels for NVIDIA's GPUs may call."""

PLAIN: dict[str, Intrinsic] = {name.partition(".")[2]: row for name, row in INTRINSICS.items()}
"""Every row by its name without the family's, which no two of them share."""


def intrinsic_call(name: str, *arguments: Expr | bool | int | float, lanes: int = 1) -> Call:
    """A call of the intrinsic `name`; see `hidet.ir.intrinsic_call.call_intrinsic`. VerifyError where there is none."""
    return call_intrinsic(find_intrinsic(name, INTRINSICS), *arguments, lanes=lanes)
