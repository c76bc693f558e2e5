"""Functions defined inside of a script: their bodies are translated anew wherever they are called."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.errors import ScriptError
from hidet.ir.expr import Const, Expr
from hidet.ir.types import BufferType
from hidet.lang import operators
from hidet.lang.assignments import declare_named
from hidet.lang.values import Inlined

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

MAX_DEPTH = 64
"""Calls inside of each other, at most: a function that calls itself at run time would never end."""


@dataclass(slots=True)
class InlinedCall:
    """A call that is being translated. depth: blocks that were open before it. is_done: its return has been seen."""

    depth: int
    result: Any = None
    is_done: bool = False


def inlined_function(translator: Translator, node: ast.FunctionDef) -> Inlined:
    """What the name of a function inside of a script stands for. ScriptError for parameters that are not plain."""
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults or node.decorator_list:
        translator.fail(node, f"{node.name} takes plain parameters, without defaults and decorators")
    parameters = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]

    def apply(values: Sequence[Any]) -> Any:
        if len(values) != len(parameters):
            raise ScriptError(f"{node.name} takes {len(parameters)} arguments, got {len(values)}")
        if len(translator.inlined) == MAX_DEPTH:
            raise ScriptError(f"{node.name} is called inside of {MAX_DEPTH} others", hint="a script has no recursion")
        call = InlinedCall(len(translator.names.scopes))
        with translator.names.block(is_branch=False, is_function=True):
            for parameter, value in zip(parameters, values, strict=True):
                translator.names.bind(parameter, _own(translator, parameter, value, node))
            translator.inlined.append(call)
            try:
                translator.statements(node.body, loop="none")
            finally:
                translator.inlined.pop()
        return call.result

    return Inlined(apply)


def _own(translator: Translator, name: str, value: Any, node: ast.FunctionDef) -> Any:
    """An argument as the function may change it: numbers that it changes, and those of the program, become variables,
    everything else is what it is now."""
    value = operators.plain_number(value)
    if isinstance(value, bool | int | float) and translator.bindings.is_rebound(name):
        return declare_named(translator, name, operators.as_expr(value), node)
    is_value = isinstance(value, Expr) and not isinstance(value, Const) and not isinstance(value.type, BufferType)
    return declare_named(translator, name, value, node) if is_value else translator.held(value, node)
