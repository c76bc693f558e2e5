"""How a model's callable is called, from its Python parameters and example arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy

from hidet.errors import ImportFailed
from hidet.runtime.signature import Entries, Fixed, Form, Items, Parameter, Signature

_PLAIN = (bool, int, float, str, type(None))
_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def arrays_by_name(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Values that take the place of inputs, by the names of these, as numpy arrays. ImportFailed for what is none."""
    arrays = {name: numpy.asarray(value) for name, value in (values or {}).items()}
    for name, array in arrays.items():
        if array.dtype == object:
            raise ImportFailed(f"the value of input {name!r} is no array")
    return arrays


def form_of(example: Any, leaf: Callable[[Any, str], Form], place: str) -> Form:
    """The form of an example argument: lists, tuples and mappings of what `leaf` gives forms of.

    leaf: called, in order, for everything else with its place, "state['h'][0]"; not for numbers, texts and None, which
    are fixed to the example's. place: how the model's code spells the argument. ImportFailed for a mapping with other
    keys than texts and whole numbers.
    """
    if isinstance(example, list | tuple):
        return Items(tuple(form_of(item, leaf, f"{place}[{number}]") for number, item in enumerate(example)))
    if isinstance(example, Mapping):
        for key in example:
            if not isinstance(key, str | int):
                raise ImportFailed(f"{place} has the key {key!r}: expected texts and whole numbers")
        return Entries(tuple((key, form_of(item, leaf, f"{place}[{key!r}]")) for key, item in example.items()))
    return Fixed(example) if isinstance(example, _PLAIN) else leaf(example, place)


def signature_of_call(
    declared: Iterable[inspect.Parameter],
    given: Sequence[Form],
    named: Mapping[str, Form],
    *,
    tensor_type: str = "",
    size_hint: str = "",
) -> Signature:
    """The signature of a function that was captured with example arguments.

    declared: its parameters. given, named: forms of the example's arguments, by position and by name. What the example
    leaves out is fixed to the function's default; where that is an object, it cannot be passed. tensor_type, size_hint:
    see `Signature`.
    """
    left, by_name = list(given), dict(named)
    parameters: list[Parameter] = []
    positional = 0
    has_gap = False
    for parameter in declared:
        name, kind, default = parameter.name, parameter.kind, parameter.default
        found: list[Parameter] = []
        if kind == inspect.Parameter.VAR_POSITIONAL:
            found = [Parameter(f"{name}[{number}]", form) for number, form in enumerate(left)]
            left = []
        elif kind == inspect.Parameter.VAR_KEYWORD:
            found = [Parameter(key, form) for key, form in by_name.items()]
        elif (left and kind in _BY_POSITION) or name in by_name:
            form = left.pop(0) if left and kind in _BY_POSITION else by_name.pop(name)
            found = [Parameter(name, form, isinstance(form, Fixed) and _is_same(form.value, default))]
        elif isinstance(default, _PLAIN):
            found = [Parameter(name, Fixed(default), is_optional=True)]
        else:
            has_gap = True
        parameters += found
        if kind in _BY_POSITION and not has_gap:
            positional += len(found)
    return Signature(tuple(parameters), positional, tensor_type, size_hint)


def _is_same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default
