"""Python that is computed while a script is translated: lambdas, comprehensions, dictionaries and texts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hidet.errors import ScriptError
from hidet.lang.values import Inlined

if TYPE_CHECKING:
    from hidet.lang.expressions import ExpressionTranslator

_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}


def lambda_(translator: ExpressionTranslator, node: ast.Lambda) -> Inlined:
    if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.defaults:
        translator.fail(node, "a lambda of a script takes plain arguments only")
    parameters = [argument.arg for argument in node.args.args]

    def apply(arguments: Sequence[object]) -> object:
        if len(arguments) != len(parameters):
            raise ScriptError(f"the lambda takes {len(parameters)} arguments, got {len(arguments)}")
        with translator.block(is_branch=False):
            for parameter, argument in zip(parameters, arguments, strict=True):
                translator.names.bind(parameter, argument)
            return translator.value(node.body)

    return Inlined(apply)


def comprehension(translator: ExpressionTranslator, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> list[Any]:
    found: list[Any] = []
    with translator.block(is_branch=False):
        _comprehend(translator, node.generators, lambda: found.append(translator.value(node.elt)))
    return found


def dictionary_comprehension(translator: ExpressionTranslator, node: ast.DictComp) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    with translator.block(is_branch=False):
        _comprehend(
            translator,
            node.generators,
            lambda: found.update({translator.value(node.key): translator.value(node.value)}),
        )
    return found


def _comprehend(
    translator: ExpressionTranslator, generators: Sequence[ast.comprehension], act: Callable[[], None]
) -> None:
    if not generators:
        act()
        return
    first, *others = generators
    for item in translator.known_sequence(first.iter):
        translator.bind_parts(first.target, item)
        if all(translator.known(test, "the condition of a comprehension") for test in first.ifs):
            _comprehend(translator, others, act)


def text(translator: ExpressionTranslator, node: ast.JoinedStr) -> str:
    parts = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            value = translator.known(part.value, "a value in an f-string")
            convert = _CONVERSIONS.get(part.conversion)
            shown = value if convert is None else convert(value)
            spec = "" if part.format_spec is None else translator.value(part.format_spec)
            parts.append(format(shown, spec))
        else:
            parts.append(translator.value(part))
    return "".join(parts)


def dictionary(translator: ExpressionTranslator, node: ast.Dict) -> dict[Any, Any]:
    if None in node.keys:
        translator.fail(node, "** has no meaning in a script")
    keys = [translator.known(key, "a key") for key in node.keys if key is not None]
    return dict(zip(keys, map(translator.value, node.values), strict=True))


CASES: dict[type[ast.AST], Callable[[ExpressionTranslator, Any], Any]] = {
    ast.Dict: dictionary,
    ast.Lambda: lambda_,
    ast.ListComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.SetComp: lambda translator, node: set(comprehension(translator, node)),
    ast.DictComp: dictionary_comprehension,
    ast.JoinedStr: text,
}
"""class of an expression -> what it stands for"""
