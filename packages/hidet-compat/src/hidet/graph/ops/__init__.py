"""`hidet.ops` by another name, and modules with the classes of its operators: `hidet.graph.ops.matmul.MatmulOp`."""

from __future__ import annotations

import sys
from typing import Any

from hidet import ops
from hidet.compat.operator_classes import MODULES, OperatorModule

# `import hidet.graph.ops.matmul` finds them here; the attribute `matmul` stays the function.
sys.modules.update({f"{__name__}.{name}": OperatorModule(name) for name in MODULES})


def __getattr__(name: str) -> Any:
    return getattr(ops, name)


def __dir__() -> list[str]:
    return dir(ops)
