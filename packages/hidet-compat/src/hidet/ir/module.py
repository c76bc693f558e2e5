"""Functions and what is compiled together, by their names in hidet 0.6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hidet.ir.func import Function as IRFunction
from hidet.ir.func import Module
from hidet.ir.type import Kind
from hidet.lang.function import ScriptFunction
from hidet.lang.module import module_of


class Function(metaclass=Kind):
    """A function under `hidet.script`, one that a builder made, or one of a module."""

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        return isinstance(instance, ScriptFunction | IRFunction)


class IRModule(metaclass=Kind):
    """What `script_module.ir_module()` gives, and is built; `IRModule(functions)` makes one.

    functions: those of scripts or builders, by name or in order, with at least one that a host calls, or a kernel.
    """

    def __new__(cls, functions: Mapping[str, ScriptFunction] | Iterable[ScriptFunction] = ()) -> Module:  # type: ignore[misc]  # what it stands for
        return module_of(functions.values() if isinstance(functions, Mapping) else functions)

    @staticmethod
    def holds(instance: object) -> bool:
        """Whether it is one."""
        return isinstance(instance, Module)


__all__ = ["Function", "IRModule"]
