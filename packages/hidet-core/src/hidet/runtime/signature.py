"""How the callable of a compiled model is called: its parameters, and where in them the inputs of the graph are; and
what it returns.

A model may take more than the tensors of its graph: tensors that nobody reads, numbers that are part of the compiled
code, and lists, tuples and mappings of all these. It may return such, too. A front-end says so beside the graph that it
makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.errors import LaunchError

if TYPE_CHECKING:
    from hidet.graph import Graph

Number = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class GraphInput:
    """Input `number` of the graph. None: nothing reads it, and anything may be passed."""

    number: int | None


@dataclass(frozen=True, slots=True)
class Fixed:
    """What the graph was made for, and the only thing that may be passed."""

    value: Number


@dataclass(frozen=True, slots=True)
class GraphOutput:
    """Result `number` of the graph."""

    number: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list or tuple. is_list: which of them is returned; either may be passed."""

    items: tuple[Form, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping with these keys."""

    entries: tuple[tuple[str | int, Form], ...]


Form = GraphInput | GraphOutput | Fixed | Items | Entries
"""Of arguments: `GraphInput` and what holds it; of results: `GraphOutput` and what holds it."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the callable. is_optional: it may be left out, because the model's default is what was fixed."""

    name: str
    form: Form
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a compiled model in order; the first `positional` of them may be passed by position.

    tensor_type: full name of the class of the results ("torch.Tensor") where no argument tells; "" for numpy arrays.
    size_hint: what to do about arguments of other sizes, for messages; "" where there is nothing to say.
    results: what a call returns; None for the graph's results, a single one bare and several as a tuple.
    """

    parameters: tuple[Parameter, ...]
    positional: int
    tensor_type: str = ""
    size_hint: str = ""
    results: Form | None = None

    def arranged(self, given: Sequence[Any], named: Mapping[str, Any], count: int) -> list[Any]:
        """The `count` inputs of the graph, from what a caller passes. LaunchError for arguments that do not fit."""
        if len(given) > self.positional:
            raise LaunchError(
                f"the compiled graph takes {self.positional} arguments by position {self._names()}, got {len(given)}"
            )
        left = dict(named)
        inputs: list[Any] = [None] * count
        for number, parameter in enumerate(self.parameters):
            name = parameter.name
            if number < len(given):
                if name in left:
                    raise LaunchError(f"{_place(number, name)} is passed by position and by name")
                _fill(inputs, parameter.form, given[number], number, name)
            elif name in left:
                _fill(inputs, parameter.form, left.pop(name), number, name)
            elif not parameter.is_optional:
                raise LaunchError(f"{_place(number, name)} is missing: the compiled graph takes {self._names()}")
        if left:
            raise LaunchError(f"the compiled graph has no argument {', '.join(left)}: it takes {self._names()}")
        return inputs

    def direct(self, count: int) -> int:
        """How many arguments by position, without any by name, are the `count` inputs of the graph already; else -1."""
        forms = [parameter.form for parameter in self.parameters]
        is_direct = forms[:count] == [GraphInput(number) for number in range(count)] and count <= self.positional
        return count if is_direct and all(parameter.is_optional for parameter in self.parameters[count:]) else -1

    def places(self, count: int) -> list[str]:
        """How messages name each of the `count` inputs of the graph."""
        found = [""] * count
        for number, parameter in enumerate(self.parameters):
            for path, form in _leaves(parameter.form, parameter.name):
                if form.number is not None:
                    found[form.number] = _place(number, path)
        return found

    def _names(self) -> str:
        return f"({', '.join(parameter.name for parameter in self.parameters)})"


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """What a front-end makes of a model that is called otherwise than its graph. `hidet.compile` takes it, too."""

    graph: Graph
    signature: Signature


def returned(form: Form, results: Sequence[Any]) -> Any:
    """What a call returns, of the results of the graph."""
    if isinstance(form, GraphOutput):
        return results[form.number]
    if isinstance(form, Items):
        made = [returned(item, results) for item in form.items]
        return made if form.is_list else tuple(made)
    if isinstance(form, Entries):
        return {key: returned(item, results) for key, item in form.entries}
    assert isinstance(form, Fixed)
    return form.value


def signature_of_inputs(names: Sequence[str]) -> Signature:
    """That of a graph which is called with its inputs, one after the other or by name."""
    parameters = tuple(Parameter(name, GraphInput(number)) for number, name in enumerate(names))
    return Signature(parameters, len(parameters))


def _fill(inputs: list[Any], form: Form, value: Any, number: int, path: str) -> None:
    """Put what `value`, of parameter `number`, has for the graph into `inputs`. path: how a model's code spells it."""
    if isinstance(form, GraphInput):
        if form.number is not None:
            inputs[form.number] = value
    elif isinstance(form, Fixed):
        # True == 1 == 1.0, but a model may do otherwise for each.
        if type(value) is not type(form.value) or value != form.value:
            raise LaunchError(
                f"{_place(number, path)} was fixed to {form.value!r} when the graph was compiled, got {_shown(value)}",
                hint="compile the model again with an example of that value",
            )
    elif isinstance(form, Items):
        if not isinstance(value, list | tuple) or len(value) != len(form.items):
            raise LaunchError(
                f"{_place(number, path)} is {_shown(value)}, expected a list or tuple of {len(form.items)}"
            )
        for place, (item, inner) in enumerate(zip(value, form.items, strict=True)):
            _fill(inputs, inner, item, number, f"{path}[{place}]")
    else:
        assert isinstance(form, Entries)
        keys = [key for key, _ in form.entries]
        if not isinstance(value, Mapping) or len(value) != len(keys) or any(key not in value for key in keys):
            raise LaunchError(f"{_place(number, path)} is {_shown(value)}, expected a mapping with the keys {keys}")
        for key, inner in form.entries:
            _fill(inputs, inner, value[key], number, f"{path}[{key!r}]")


def _leaves(form: Form, path: str) -> Iterator[tuple[str, GraphInput]]:
    if isinstance(form, GraphInput):
        yield path, form
    elif isinstance(form, Items):
        for place, item in enumerate(form.items):
            yield from _leaves(item, f"{path}[{place}]")
    elif isinstance(form, Entries):
        for key, item in form.entries:
            yield from _leaves(item, f"{path}[{key!r}]")


def _place(number: int, path: str) -> str:
    return f"argument {number} ({path})" if path else f"argument {number}"


def _shown(value: Any) -> str:
    """A value as messages show it: tensors have more elements than a message has room for."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {list(value)}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, list | tuple) else "")
