"""Functions of numbers, `hidet.ir.primitives.exp(x)`: in definitions of operators and in scripts alike.

Those of a target are in `hidet.ir.primitives.cuda` and `hidet.ir.primitives.cpu`, for scripts alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.lang import operators
from hidet.lang.operand import unwrapped, wrapped
from hidet.lang.values import Primitive

_OTHER_NAMES = {"maximum": "max", "minimum": "min"}


@dataclass(frozen=True, slots=True)
class ScalarPrimitive(Primitive):
    """A row of the scalar operations: a name for scripts, and a function of elements in definitions."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Of elements and numbers. TypeError for another number of them."""
        given = [operators.as_expr(unwrapped(value)) for value in arguments]
        arity = 1 if self.name in UNARY_OPS else 2
        if len(given) != arity or keywords:
            raise TypeError(f"{self.name} takes {arity} numbers, got {len(given) + len(keywords)}")
        return wrapped(operators.unary(self.name, *given) if arity == 1 else operators.binary(self.name, *given))


def __getattr__(name: str) -> Any:
    known = _OTHER_NAMES.get(name, name)
    if known in UNARY_OPS or known in BINARY_OPS:
        return ScalarPrimitive(known)
    if name.startswith("__"):
        raise AttributeError(name)
    # Heavy, and for those alone who name what no row is.
    for language in ("hidet.lang", "hidet.lang.cuda", "hidet.lang.cpu"):
        try:
            return getattr(import_module(language), name)
        except (AttributeError, ImportError):
            continue
    raise AttributeError(f"module 'hidet.ir.primitives' has no attribute {name!r}")
