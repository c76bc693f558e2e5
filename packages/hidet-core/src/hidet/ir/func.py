"""Functions and modules of the thread IR."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from hidet.ir.expr import Var
from hidet.ir.stmt import Stmt
from hidet.ir.types import ValueType

FunctionKind = Literal["kernel", "device", "host"]

EXPORTED = ("export", True)
"""Attribute of a function that is called from outside its module, as the entry is."""

SYMBOL = "symbol."
"""Begins the name of a call without arguments that gives, as an i64, the address of the symbol named after it.

The symbol is no function of any module: whoever loads the code provides it.
"""

COMPACT = ("compact", True)
"""Attribute of a kernel whose time passes in the functions it calls: its own loops are not worth copies of code, and
get SIMD only where their kind says so."""

FINISHES = ("finishes", True)
"""Attribute of a host function that runs to its end where an assertion in what it calls has failed."""

SHARED = "shared"
"""Key of an attribute of device functions that several programs have in common and call too seldom to inline them.

Functions of one module with equal values form a group; `hidet.schedule.shared_functions` makes groups, and names their
functions so that equal names mean equal functions, in every program.
"""


APART = (("inline", False),)
"""Attributes of a device or host function that stays a function, wherever it is called."""

SIZES = "sizes"
"""Key of an attribute: the names of the last parameters, which are extents that callers take from shapes of tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """One function.

    `kind`: "kernel" runs once per index of its launch grid, whose indices are `grid_vars` (i64); "device" is called
    from kernels; "host" runs on the CPU once and launches kernels. `result` None means no value is returned.
    `attributes` are target-specific launch settings such as ("block", (256, 1, 1)), `EXPORTED`, `COMPACT`, or one
    with key `SHARED`.
    """

    name: str
    params: tuple[Var, ...]
    body: Stmt
    kind: FunctionKind = "device"
    grid_vars: tuple[Var, ...] = ()
    result: ValueType | None = None
    attributes: tuple[tuple[str, object], ...] = ()
    _digest: str | None = field(default=None, init=False, repr=False)  # kept by `hidet.ir.structural`


def named(function: Function, name: str) -> Function:
    """The function under another name. It keeps its digest, of which its name is no part."""
    renamed = replace(function, name=name)
    object.__setattr__(renamed, "_digest", function._digest)
    return renamed


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Functions compiled together. `entry` names the host function that callers run; `externals` the functions
    that are linked from other modules."""

    functions: tuple[Function, ...]
    entry: str
    externals: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        # The printer prints modules, and so is above.
        return str(import_module("hidet.ir.printer").print_module(self))

    def function(self, name: str) -> Function:
        """The function called `name`; KeyError if this module has none."""
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(f"module has no function {name!r}; it has {[f.name for f in self.functions]}")


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # What plug-ins add.
        return import_module("hidet.plugins.attributes").find("hidet.ir.func", name)
