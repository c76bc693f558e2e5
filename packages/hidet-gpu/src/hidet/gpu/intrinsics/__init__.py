"""The intrinsics that every GPU has, "gpu.…", a file a group.

    signature   parameters, result, effect: here
    meaning     numpy, in the interpreter of launches: `hidet.gpu.simulator.semantics`
    spelling    in the code generator of the target

`intrinsic_call` builds a call with its type. Targets offer families of what theirs have besides.
"""

from __future__ import annotations

from collections.abc import Mapping

from hidet.errors import VerifyError, suggestion
from hidet.gpu.intrinsics.atomic import ATOMIC
from hidet.gpu.intrinsics.bits import BITS
from hidet.gpu.intrinsics.index import INDEX
from hidet.gpu.intrinsics.math import MATH
from hidet.gpu.intrinsics.memory import MEMORY
from hidet.gpu.intrinsics.sync import SYNC
from hidet.gpu.intrinsics.warp import WARP
from hidet.ir.expr import Call, Expr
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.intrinsic_call import call_intrinsic

GROUPS: dict[str, dict[str, Intrinsic]] = {
    "index": INDEX,
    "sync": SYNC,
    "warp": WARP,
    "atomic": ATOMIC,
    "memory": MEMORY,
    "math": MATH,
    "bits": BITS,
}

INTRINSICS: dict[str, Intrinsic] = {name: row for group in GROUPS.values() for name, row in group.items()}
"""Every row by name."""


def find_intrinsic(name: str, rows: Mapping[str, Intrinsic] = INTRINSICS) -> Intrinsic:
    """The row of a table called `name`. VerifyError, with the nearest name, when there is none."""
    row = rows.get(name)
    if row is None:
        raise VerifyError(f"intrinsic {name!r} is unknown", hint=suggestion(name, rows))
    return row


def intrinsic_call(name: str, *arguments: Expr | bool | int | float, lanes: int = 1) -> Call:
    """A call of the intrinsic `name`; see `hidet.ir.intrinsic_call.call_intrinsic`. VerifyError where there is none."""
    return call_intrinsic(find_intrinsic(name), *arguments, lanes=lanes)
