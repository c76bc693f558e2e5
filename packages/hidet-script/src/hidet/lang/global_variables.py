"""Variables of a module: memory that its functions share, and that lasts as long as the compiled module.

The thread IR has none: functions that use one get it as a parameter, and so do those that call them. What Python calls
hands over the memory, which is zero at first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from hidet.errors import ScriptError
from hidet.ir import build
from hidet.ir.expr import Call, Expr, Var
from hidet.ir.func import SIZES, Function
from hidet.ir.node import IRNode
from hidet.ir.stmt import Invoke, Launch
from hidet.ir.types import BufferType
from hidet.ir.visit import rewrite, walk
from hidet.lang.facts import IndexFacts
from hidet.lang.types import TensorKind, dtype_of
from hidet.lang.values import TensorValue, tensor_of

Users = Mapping[str, Sequence[Var]]
"""Functions by name, and the variables that they use, or that what they call uses."""


def global_variable(name: str, kind: Any) -> TensorValue:
    """A variable for scripts: a tensor of a type with extents that are known, a scalar type is that of one element.
    ScriptError for other types."""
    given = kind if isinstance(kind, TensorKind) else TensorKind(dtype_of(kind), (1,))
    if not all(isinstance(extent, int) for extent in given.shape) or given.layout is not None or given.is_pointer:
        raise ScriptError(f"variable {name} of a module has type {given}: it needs extents known now, row-major")
    variable = Var(name, BufferType(given.dtype, tuple(map(build.index, given.shape))))
    return tensor_of(variable, given.shape, None, IndexFacts())


def users_of(functions: Sequence[Function], variables: Sequence[Var]) -> Users:
    """Which functions use which variables."""
    reads = {f.name: {node for node in walk(f.body) if isinstance(node, Var)} & {*variables} for f in functions}
    calls = {f.name: set(map(_callee, walk(f.body))) & reads.keys() for f in functions}
    changed = True
    while changed:
        changed = False
        for name, callees in calls.items():
            wanted = reads[name].union(*(reads[callee] for callee in callees))
            changed = changed or wanted != reads[name]
            reads[name] = wanted
    return {name: [var for var in variables if var in found] for name, found in reads.items() if found}


def with_parameters(functions: Sequence[Function], users: Users) -> list[Function]:
    """The functions, with the variables as parameters and arguments, before sizes that callers find."""
    places = {f.name: len(f.params) - len(dict(f.attributes).get(SIZES, ())) for f in functions}  # type: ignore[arg-type]  # names
    made = []
    for function in functions:
        place, more = places[function.name], users.get(function.name, ())
        params = (*function.params[:place], *more, *function.params[place:])
        body = rewrite(function.body, partial(_passing, users=users, places=places))
        made.append(replace(function, params=params, body=body))
    return made


def _callee(node: IRNode) -> str:
    if isinstance(node, Call):
        return node.callee
    return node.kernel if isinstance(node, Launch) else node.function if isinstance(node, Invoke) else ""


def _passing(node: IRNode, users: Users, places: Mapping[str, int]) -> IRNode | None:
    callee = _callee(node)
    if callee not in users or not isinstance(node, Call | Launch | Invoke):
        return None
    place = places[callee]
    arguments: tuple[Expr, ...] = (*node.arguments[:place], *users[callee], *node.arguments[place:])
    fields = {name: getattr(node, name) for name in (*node.child_fields, *node.attribute_fields)}
    changed: IRNode = type(node)(**{**fields, "arguments": arguments})
    return changed


class ModuleWithVariables:
    """A compiled module whose functions get the variables of the module behind what they are called with."""

    def __init__(self, compiled: Any, users: Users, device: str) -> None:
        variables = dict.fromkeys(var for found in users.values() for var in found)
        zeros = import_module("hidet.api.tensors.create").zeros
        shapes = {var: [extent.value for extent in var.type.shape] for var in variables}  # type: ignore[union-attr]  # memory
        self.variables = {var.name: zeros(shapes[var], var.dtype, device) for var in variables}
        self._compiled = compiled
        self._users = users

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __getitem__(self, name: str) -> Any:
        function = self._compiled[name]
        used = [self.variables[var.name] for var in self._users.get(function.name, ())]
        return partial(_call, function, used) if used else function

    def __call__(self, *arguments: Any) -> Any:
        """Call the entry."""
        return self["launch"](*arguments)


def _call(function: Any, variables: Sequence[Any], *arguments: Any) -> Any:
    return function(*arguments, *variables)
