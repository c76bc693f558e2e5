"""Python that is computed while a script is translated: lambdas, comprehensions, dictionaries and texts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from hidet.errors import ScriptError
from hidet.lang.values import Inlined

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}


def lambda_(translator: Translator, node: ast.Lambda) -> Inlined:
    if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.defaults:
        translator.fail(node, "a lambda of a script takes plain arguments only")
    parameters = [argument.arg for argument in node.args.args]

    def apply(arguments: Sequence[object]) -> object:
        if len(arguments) != len(parameters):
            raise ScriptError(f"the lambda takes {len(parameters)} arguments, got {len(arguments)}")
        return translator.kept(translator.once(arguments), evaluate)

    def evaluate(arguments: Sequence[object]) -> object:
        with translator.names.block(is_branch=False):
            for parameter, argument in zip(parameters, arguments, strict=True):
                translator.names.bind(parameter, argument)
            return translator.value(node.body)

    return Inlined(apply)


def comprehension(translator: Translator, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> list[Any]:
    with translator.names.block(is_branch=False):
        return _comprehended(translator, node.generators, lambda: translator.value(node.elt))


def dictionary_comprehension(translator: Translator, node: ast.DictComp) -> dict[Any, Any]:
    with translator.names.block(is_branch=False):
        return dict(
            _comprehended(translator, node.generators, lambda: tuple(translator.elements((node.key, node.value))))
        )


def _comprehended(
    translator: Translator, generators: Sequence[ast.comprehension], make: Callable[[], Any]
) -> list[Any]:
    """What `make` gives for each choice of items."""
    if not generators:
        return [make()]
    first, *others = generators

    def of_item(item: Any) -> list[Any]:
        translator.bind_parts(first.target, item)
        is_taken = all(translator.known(test, "the condition of a comprehension") for test in first.ifs)
        return _comprehended(translator, others, make) if is_taken else []

    def of_items(items: Sequence[Any]) -> list[Any]:
        return list(chain.from_iterable(translator.in_order(*(partial(of_item, item) for item in items))))

    found: list[Any] = translator.kept(translator.known_sequence(first.iter), of_items)
    return found


def text(translator: Translator, node: ast.JoinedStr) -> str:
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


def dictionary(translator: Translator, node: ast.Dict) -> dict[Any, Any]:
    if None in node.keys:
        translator.fail(node, "** has no meaning in a script")
    keys = [translator.known(key, "a key") for key in node.keys if key is not None]
    return dict(zip(keys, translator.elements(node.values), strict=True))


CASES: dict[type[ast.AST], Callable[[Translator, Any], Any]] = {
    ast.Dict: dictionary,
    ast.Lambda: lambda_,
    ast.ListComp: comprehension,
    ast.GeneratorExp: comprehension,
    ast.SetComp: lambda translator, node: set(comprehension(translator, node)),
    ast.DictComp: dictionary_comprehension,
    ast.JoinedStr: text,
}
"""class of an expression -> what it stands for"""
