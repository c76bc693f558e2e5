"""What host code tells a kernel of its launch: values that no caller passes, which are calls of intrinsics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.cuda.intrinsic_families import LAUNCHES
from hidet.ir.expr import Call
from hidet.ir.intrinsic import Intrinsic, table
from hidet.ir.intrinsic_call import call_intrinsic
from hidet.ir.node import IRNode

_INDEPENDENT = Intrinsic(
    name="cuda.launch.is_independent",
    family=LAUNCHES,
    group="launch",
    doc="1 where what is launched may run beside what was launched before it (`Invoke.is_independent`), else 0",
    ptx="griddepcontrol",
    parameters=(),
    result=dtypes.i32,
    arch=90,
)
ROWS = table(_INDEPENDENT)
MEANINGS: Mapping[str, Callable[..., Any]] = {_INDEPENDENT.name: lambda: np.int32(0)}
"""Meanings of the rows: kernels of the simulator run one after the other."""


def independent_flag() -> Call:
    """The argument of a launch that says whether it is independent."""
    return call_intrinsic(_INDEPENDENT)


def is_independent_flag(node: IRNode) -> bool:
    """Whether an argument of a launch, or what its shared memory is computed from, is that."""
    return isinstance(node, Call) and node.callee == _INDEPENDENT.name
