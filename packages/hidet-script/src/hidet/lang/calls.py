"""Calls in a script: of functions of `hidet.lang`, of other scripts, of intrinsics, and of Python functions."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.errors import HidetError, ScriptError
from hidet.ir import stmt as s
from hidet.ir.expr import Expr
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.scalar_ops import UNARY_OPS
from hidet.lang import operators
from hidet.lang.expressions import joined
from hidet.lang.intrinsics import IntrinsicFunction
from hidet.lang.layout import Layout
from hidet.lang.mapping import TaskMapping
from hidet.lang.operand import unwrapped, wrapped
from hidet.lang.primitives import MEANINGS
from hidet.lang.types import ValueKind
from hidet.lang.values import Bound, Inlined, Primitive, TensorValue, is_runtime

if TYPE_CHECKING:
    from hidet.lang.translator import Translator


def _folded(op: str) -> Callable[..., Any]:
    def fold(*values: Any) -> Any:
        given = values[0] if len(values) == 1 else values
        result = given[0]
        for value in given[1:]:
            result = operators.binary(op, result, value) if is_runtime((result, value)) else _PYTHON[op](result, value)
        return result

    return fold


def _refused(problem: str, hint: str) -> Callable[..., Any]:
    def refuse(*values: Any, **keywords: Any) -> Any:
        raise ScriptError(problem, hint=hint)

    return refuse


def _length(value: Any) -> int:
    if isinstance(value, list | tuple | dict):
        return len(value)
    raise ScriptError("only Python's containers have a length here", hint="a tensor has shape")


_PYTHON: dict[str, Callable[..., Any]] = {"min": min, "max": max, "add": lambda a, b: a + b}
# Python functions that mean an operation where an argument is known at run time only.
_RUNTIME_MEANINGS: dict[object, Callable[..., Any]] = {
    builtins.min: _folded("min"),
    builtins.max: _folded("max"),
    builtins.sum: lambda values, start=0: _folded("add")(start, *values),
    builtins.abs: lambda value: operators.unary("abs", value),
    builtins.pow: lambda a, b: operators.binary("pow", a, b),
    builtins.float: lambda value: operators.cast(value, dtypes.f32),
    builtins.int: lambda value: operators.cast(value, dtypes.i64),
    builtins.bool: operators.condition,
    builtins.print: _refused("print shows what Python knows, this is known at run time only", 'printf("%d\\n", i)'),
    builtins.range: _refused("the length of this range is known at run time only", "write a for statement over it"),
    builtins.len: _length,
    math.pow: lambda a, b: operators.binary("pow", a, b),
    math.fma if hasattr(math, "fma") else "fma": lambda a, b, c: MEANINGS["fma"](None, a, b, c),
    **{
        getattr(math, name): lambda value, op=name: operators.unary(op, value)
        for name in UNARY_OPS
        # floor, ceil and trunc of Python give integers.
        if hasattr(math, name) and name not in ("floor", "ceil", "trunc")
    },
}


def translate_call(translator: Translator, node: ast.Call) -> Any:
    """The value of a call; statements that it stands for are added to the translator's block."""
    for keyword in node.keywords:
        if keyword.arg is None:
            translator.fail(keyword.value, "** has no meaning in a script")
    function, arguments, given = translator.in_order(
        partial(translator.value, node.func),
        partial(translator.elements, node.args),
        partial(translator.elements, [keyword.value for keyword in node.keywords]),
    )
    keywords = {str(keyword.arg): value for keyword, value in zip(node.keywords, given, strict=True)}
    count = len(translator.stmts)
    try:
        result = apply(translator, function, arguments, keywords)
    except Exception as error:
        # What a function of the user raises is the user's; the place in the script is ours to tell.
        if not isinstance(error, HidetError) and not hasattr(error, "__notes__"):
            error.add_note(f"called while script {translator.source.tree.name} was translated:")
            error.add_note(translator.place(node).render())
        raise
    translator.locate(count, node)
    return result


def apply(translator: Translator, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """`function(*arguments, **keywords)`, by the first of the rules below that fits."""
    if isinstance(function, Primitive):
        primitive = function.meaning or MEANINGS[function.name]
        return primitive(translator, *arguments, **keywords)
    if isinstance(function, ValueKind):
        (value,) = arguments
        return operators.cast(value, function.type)
    if isinstance(function, Bound):
        return _METHODS[function.name](translator, function.owner, *arguments, **keywords)
    if isinstance(function, Inlined):
        return function.apply(arguments)
    call_script = getattr(function, "call_from_script", None)
    if call_script is not None:
        return call_script(translator, arguments, keywords)
    if isinstance(function, Intrinsic):
        function = IntrinsicFunction(function)
    if isinstance(function, IntrinsicFunction):
        return function(*arguments, **keywords)
    meaning = _runtime_meaning(function)
    if meaning is not None and is_runtime((*arguments, *keywords.values())):
        return meaning(*arguments, **keywords)
    if isinstance(function, Expr | TensorValue) or not callable(function):
        raise ScriptError(f"{type(function).__name__} objects are no functions")
    return _of_python(translator, function, arguments, keywords)


def _of_python(
    translator: Translator,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Any:
    """What a Python function gives, which may use its arguments several times, keep them or leave them."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, list | dict):
        return function(*translator.held(arguments), **translator.held(keywords))
    keep = translator.held if isinstance(function, type) else translator.once
    given, named = keep(arguments), keep(keywords)
    if isinstance(function, Layout) or isinstance(owner, TaskMapping | Layout):
        # These compute with expressions themselves, of indices.
        plain = [operators.index(a) if isinstance(a, Expr) else a for a in given]
        return function(*plain, **named)
    return unwrapped(function(*wrapped(given), **wrapped(named)))


def _runtime_meaning(function: object) -> Callable[..., Any] | None:
    try:
        return _RUNTIME_MEANINGS.get(function)
    except TypeError:  # no hash
        return None


def _read(translator: Translator, owner: TensorValue, indices: Any, protected: bool = True) -> Any:
    """The element, or zero outside of the tensor where `protected`."""
    listed = tuple(indices) if isinstance(indices, tuple | list) else (indices,)
    element = owner.read(listed, is_guarded=protected)
    if not protected:
        return element
    zero = operators.convert(False if element.dtype.is_bool else 0, owner.element, "zero")
    return operators.select(_is_inside(translator, owner, listed), element, zero)


def _write(translator: Translator, owner: TensorValue, indices: Any, value: Any, protected: bool = True) -> None:
    """Write the element; where `protected`, nothing happens outside of the tensor."""
    listed = tuple(indices) if isinstance(indices, tuple | list) else (indices,)
    # The test and the store are two statements.
    listed, value = translator.once((listed, value))
    store = owner.write(listed, value, is_guarded=protected)
    translator.stmts.append(s.If(_is_inside(translator, owner, listed), store) if protected else store)


def _is_inside(translator: Translator, owner: TensorValue, indices: Sequence[Any]) -> Any:
    tests: list[Callable[[], Any]] = []
    for index, extent in zip(indices, owner.shape, strict=True):
        place = operators.index(index)
        tests += [
            partial(operators.binary, "le", 0, place),
            partial(operators.binary, "lt", place, operators.index(extent)),
        ]
    return operators.condition(joined(translator, True, iter(tests)))


_METHODS: dict[str, Callable[..., Any]] = {"read": _read, "write": _write}
