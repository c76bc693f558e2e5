"""How the callable of a compiled model is called, and what it returns: as TensorFlow's function."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import form_of, signature_of_call
from hidet.runtime.signature import Entries, Fixed, Form, GraphInput, GraphOutput, Items, Parameter
from hidet.tensorflow.compat import load_tensorflow


@dataclass(frozen=True, slots=True)
class CallForms:
    """names: of the graph's inputs. parameters, positional, results: of the signature."""

    names: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    positional: int
    results: Form | None


def call_forms(concrete: Any, count: int) -> CallForms:
    """How a concrete function with `count` inputs is called, and what it returns.

    UnsupportedOp for results that are no tensors: ragged and sparse ones.
    """
    tf = load_tensorflow()
    args, kwargs = concrete.structured_input_signature
    # The order in which TensorFlow takes a structure apart, which is not that of its own iteration.
    numbers: Iterator[int] = iter(range(count))
    numbered = tf.nest.map_structure(
        lambda entry: _Numbered(next(numbers), entry) if isinstance(entry, tf.TensorSpec) else entry, (args, kwargs)
    )
    names = [""] * count

    def leaf(value: Any, place: str) -> Form:
        if not isinstance(value, _Numbered):
            raise ImportFailed(f"argument {place} is a {type(value).__name__}, which no compiled model takes")
        names[value.number] = value.name or place
        return GraphInput(value.number)

    declared = list(concrete.function_type.parameters.values())
    places = [parameter.name for parameter in declared if parameter.kind != inspect.Parameter.KEYWORD_ONLY]
    given = [form_of(value, leaf, _place(places, number)) for number, value in enumerate(numbered[0])]
    named = {name: form_of(value, leaf, name) for name, value in numbered[1].items()}
    if "" in names:
        raise ImportFailed(f"the function has {count} inputs, of which its signature names {count - names.count('')}")
    signature = signature_of_call(declared, given, named)
    return CallForms(_distinct(names), signature.parameters, signature.positional, _results(concrete))


@dataclass(frozen=True, slots=True)
class _Numbered:
    """An input of the graph with what the function says of it."""

    number: int
    spec: Any

    @property
    def name(self) -> str:
        return self.spec.name or ""


def _place(names: list[str], number: int) -> str:
    return names[number] if number < len(names) else f"argument_{number}"


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Names of which no two are equal."""
    taken: set[str] = set()
    for number, name in enumerate(names):
        made, count = name, 1
        while made in taken:
            count += 1
            made = f"{name}_{count}"
        taken.add(made)
        names[number] = made
    return tuple(names)


def _results(concrete: Any) -> Form | None:
    """What a call returns, of numbers of the graph's results; None for one tensor, or a tuple of them."""
    tf = load_tensorflow()
    structure = concrete.structured_outputs
    numbers: Iterator[int] = iter(range(len(concrete.outputs)))

    def numbered(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, tf.Tensor | tf.TensorSpec):
            raise UnsupportedOp(f"the model returns a {type(value).__name__}: expected tensors")
        return _Numbered(next(numbers), value)

    form = _form(tf.nest.map_structure(numbered, structure))
    plain = [GraphOutput(number) for number in range(len(concrete.outputs))]
    return None if [form] == plain or (form == Items(tuple(plain)) and len(plain) > 1) else form


def _form(value: Any) -> Form:
    if isinstance(value, _Numbered):
        return GraphOutput(value.number)
    if isinstance(value, Mapping):
        return Entries(tuple((key, _form(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return Items(tuple(_form(item) for item in value), is_list=isinstance(value, list))
    return Fixed(value)
