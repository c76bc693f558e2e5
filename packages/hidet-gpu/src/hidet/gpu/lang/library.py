"""Functions of scripts that are made of rows of the table: what earlier versions call otherwise, or in fewer words."""

from __future__ import annotations

from typing import Any

from hidet.errors import ScriptError
from hidet.gpu.lang.rows import find_row
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.lang import operators
from hidet.lang.operand import Operand, unwrapped
from hidet.lang.values import Primitive


def atomic_sub(addr: Any, value: Any) -> Any:
    """Take `value` from an element and give what it was, as one operation."""
    return find_row("gpu.atomic_add")(addr, operators.unary("neg", unwrapped(value)))


def load(addr: Any, space: str = "generic", sync: str | None = None, scope: str | None = None) -> Any:
    """The element at a pointer. sync: "acquire" orders what follows behind it, for all threads of the device.

    space: advice of earlier versions; pointers know where they point. ScriptError for another `sync` or `scope`.
    """
    if sync is None:
        pointer = operators.decayed(unwrapped(addr))
        assert isinstance(pointer, Expr)
        return Operand(build.load(pointer, 0))
    _check_order("load", sync, "acquire", scope)
    return Operand(find_row("gpu.load_acquire")(addr))


def store(addr: Any, value: Any, space: str = "generic", sync: str | None = None, scope: str | None = None) -> Any:
    """Write the element at a pointer. sync: "release" orders what came before in front of it; see `load`."""
    if sync is None:
        raise ScriptError("store writes p[0] where nothing is ordered", hint="write p[0] = value")
    _check_order("store", sync, "release", scope)
    return find_row("gpu.store_release")(addr, value)


def _check_order(what: str, sync: str, expected: str, scope: str | None) -> None:
    if sync != expected or scope not in (None, "gpu"):
        raise ScriptError(f"{what} got sync={sync!r}, scope={scope!r}", hint=f"sync={expected!r}, scope='gpu'")


register_tensor = Primitive("register_tensor")
shared_tensor = Primitive("shared_tensor")
