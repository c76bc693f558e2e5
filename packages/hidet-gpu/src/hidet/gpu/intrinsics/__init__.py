"""The intrinsics of GPUs, a file a group: "gpu.…" of every one, "cuda.…" of NVIDIA's.

    signature   parameters, result, effect, least architecture: here
    meaning     numpy, in the interpreter of launches: `hidet.gpu.simulator.semantics`
    spelling    in the code generator of the target

`intrinsic_call` builds a call with its type.
"""

from __future__ import annotations

from hidet.errors import VerifyError, suggestion
from hidet.gpu.intrinsics.atomic import ATOMIC
from hidet.gpu.intrinsics.barrier import BARRIER
from hidet.gpu.intrinsics.bits import BITS
from hidet.gpu.intrinsics.convert import CONVERT
from hidet.gpu.intrinsics.copy import COPY
from hidet.gpu.intrinsics.family import CUDA, GPU
from hidet.gpu.intrinsics.index import INDEX
from hidet.gpu.intrinsics.math import MATH
from hidet.gpu.intrinsics.mma import MMA
from hidet.gpu.intrinsics.sync import SYNC
from hidet.gpu.intrinsics.tma import TMA
from hidet.gpu.intrinsics.warp import WARP
from hidet.gpu.intrinsics.wgmma import WGMMA
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

INTRINSICS: dict[str, Intrinsic] = {name: row for group in GROUPS.values() for name, row in group.items()}
"""Every row by name."""

GPU_INTRINSICS = {name: row for name, row in INTRINSICS.items() if row.family is GPU}
CUDA_INTRINSICS = {name: row for name, row in INTRINSICS.items() if row.family is CUDA}
"""Those of each family."""

PLAIN: dict[str, Intrinsic] = {name.partition(".")[2]: row for name, row in INTRINSICS.items()}
"""Every row by its name without the family's, which no two of them share."""


def find_intrinsic(name: str) -> Intrinsic:
    """The row called `name`. VerifyError, with the nearest name, when there is none."""
    row = INTRINSICS.get(name)
    if row is None:
        raise VerifyError(f"intrinsic {name!r} is unknown", hint=suggestion(name, INTRINSICS))
    return row


def intrinsic_call(name: str, *arguments: Expr | bool | int | float, lanes: int = 1) -> Call:
    """A call of the intrinsic `name`; see `hidet.ir.intrinsic_call.call_intrinsic`. VerifyError where there is none."""
    return call_intrinsic(find_intrinsic(name), *arguments, lanes=lanes)
