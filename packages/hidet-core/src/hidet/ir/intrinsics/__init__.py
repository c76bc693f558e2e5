"""Operations of the hardware as data: one table for every name that a program may call and no module defines.

    name        "cuda.…"; other names without a function are left to the targets that know them
    signature   parameters, result, effect, least architecture: `hidet.ir.intrinsics.signature`
    meaning     numpy, in the interpreter of launches
    spelling    in the code generator of the target

`intrinsic_call` builds a call with its type; `hidet.ir.verify_expr` checks calls against the table.
"""

from __future__ import annotations

from hidet.errors import VerifyError, suggestion
from hidet.ir.intrinsics.atomic import ATOMIC
from hidet.ir.intrinsics.barrier import BARRIER
from hidet.ir.intrinsics.bits import BITS
from hidet.ir.intrinsics.convert import CONVERT
from hidet.ir.intrinsics.copy import COPY
from hidet.ir.intrinsics.index import INDEX
from hidet.ir.intrinsics.math import MATH
from hidet.ir.intrinsics.mma import MMA
from hidet.ir.intrinsics.signature import Intrinsic
from hidet.ir.intrinsics.sync import SYNC
from hidet.ir.intrinsics.tma import TMA
from hidet.ir.intrinsics.warp import WARP
from hidet.ir.intrinsics.wgmma import WGMMA

PREFIX = "cuda."
"""What the names of all rows begin with."""

FAMILIES: dict[str, dict[str, Intrinsic]] = {
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

INTRINSICS: dict[str, Intrinsic] = {name: row for family in FAMILIES.values() for name, row in family.items()}
"""Every row by name."""


def find_intrinsic(name: str) -> Intrinsic:
    """The row called `name`. VerifyError, with the nearest name, when there is none."""
    row = INTRINSICS.get(name)
    if row is None:
        raise VerifyError(f"intrinsic {name!r} is unknown", hint=suggestion(name, INTRINSICS))
    return row
