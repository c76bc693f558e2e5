"""What plug-ins add to modules of hidet, by the hook `hidet_attributes`.

Asked where a module has no such name of its own: `hidet`, `hidet.graph`, `hidet.graph.operator`, `hidet.ops`,
`hidet.option`, `hidet.frontend`, `hidet.drivers`, `hidet.runtime`, `hidet.ir`, `hidet.ir.expr`, `hidet.ir.func`,
`hidet.lang`, `hidet.cuda`, `hidet.lang.cuda`, `hidet.utils` and `hidet.testing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hidet.plugins.wheels import member_hint

if TYPE_CHECKING:
    from hidet.plugins.specs import AttributeSpec


def find(module: str, name: str) -> object:
    """What `module.name` is: a module of that package, or what a plug-in says. AttributeError where it is neither."""
    path = f"{module}.{name}"
    is_package = "__path__" in vars(import_module(module))
    # `from hidet.runtime import artifact` asks before it imports: plug-ins are not loaded for that.
    if is_package and not name.startswith("_") and find_spec(path) is not None:
        return import_module(path)
    spec = None if name.startswith("_") else _attributes().get(path)
    if spec is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return spec.resolve()


def member(owner: object, path: str, name: str) -> object:
    """What `owner.name` is to a plug-in, which offers functions and properties of the class that users know by `path`:
    "hidet.Tensor", "hidet.FlowGraph", "hidet.runtime.CompiledGraph", "hidet.runtime.CompileReport". AttributeError
    where it is nothing to any."""
    spec = None if name.startswith("_") else _attributes().get(f"{path}.{name}")
    if spec is None:
        hint = member_hint(f"{path}.{name}")
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}")
    found: Any = spec.resolve()
    return found.__get__(owner, type(owner))


def names_of(module: str) -> list[str]:
    """What plug-ins add to a module."""
    return [name.removeprefix(f"{module}.") for name in _attributes() if name.rpartition(".")[0] == module]


def _attributes() -> Mapping[str, AttributeSpec]:
    # The host of plug-ins is heavy, and most who import a module of hidet miss no name in it.
    found: Mapping[str, AttributeSpec] = import_module("hidet.plugins.host").load_registry().attributes
    return found
