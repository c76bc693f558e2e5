"""Models as they are loaded: a module, its inputs, and how it is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import SizeNames
from hidet.runtime.signature import (
    Entries,
    Form,
    GraphInput,
    Items,
    Parameter,
    Signature,
    signature_of_inputs,
)
from hidet.stablehlo.program import Function, Module, Ranked, Shape


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """An argument of the main function.

    sizes: names of the open extents, or what they are computed from ("2*b"), by axis; None where nobody knows.
    constant: what takes its place; None for an input of the graph.
    """

    name: str
    dtype: DType
    shape: Shape
    sizes: tuple[str | None, ...] | None = None
    constant: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A module and what is known of its main function.

    arguments: forms of arguments, by name, whose leaves `GraphInput` count the module's inputs; None for a function of
    the inputs themselves. positional: how many of them may be passed by position. results: the form of what it returns.
    """

    name: str
    module: Module
    main: Function
    inputs: tuple[Input, ...]
    arguments: tuple[Parameter, ...] | None = None
    results: Form | None = None
    positional: int = 0
    tensor_type: str = ""


def main_function(module: Module) -> Function:
    """The function that a module is called by: "main", or the only one."""
    found = module.functions.get("main")
    if found is None and len(module.functions) == 1:
        (found,) = module.functions.values()
    if found is None:
        raise ImportFailed(f"the module has no function main, only {', '.join(map(repr, module.functions))}")
    return found


def inputs_of(
    module: Module, function: Function, shapes: Sequence[tuple[str | None, ...] | None] = (), platform: int = 0
) -> tuple[Input, ...]:
    """The inputs of a function. shapes: names of their open extents, as `Input.sizes`. platform: the number of the
    processor among those that a module for several has branches for."""
    found: list[Input] = []
    taken: set[str] = set()
    names = _names_of_arguments(module, function)
    for number, type_ in enumerate(function.block.types):
        if not isinstance(type_, Ranked):
            raise UnsupportedOp(f"argument {number} of the model is a {type_}, expected a tensor")
        name = names[number] or f"arg{number}"
        while name in taken:
            name = f"{name}_{number}"
        taken.add(name)
        is_platform = function.argument_attributes[number].get("jax.global_constant") == "_platform_index"
        constant = type_.dtype.numpy().type(platform) if is_platform else None
        sizes = shapes[number] if number < len(shapes) else None
        found.append(Input(name, type_.dtype, type_.shape, sizes, constant))
    return tuple(found)


def _names_of_arguments(module: Module, function: Function) -> list[str]:
    """What a function calls its arguments; where it does not, what a function calls them to which it passes them on:
    jax wraps a function of open sizes in one that tells them."""
    names = list(function.argument_names)
    for operation in function.block.operations:
        called = operation.attributes.get("callee")
        inner = module.functions.get(str(getattr(called, "name", called))) if operation.name == "call" else None
        if inner is None or any(names):
            continue
        known = dict(zip(operation.operands, inner.argument_names, strict=False))
        names = [known.get(number, "") for number in function.block.arguments]
    return names


def shape_of_input(entry: Input, sizes: SizeNames, given: Sequence[Dim] | None) -> tuple[Dim, ...]:
    """The extents of an input: those that are given, else those of the model with a symbol for each open one."""
    if given is not None:
        if len(given) != len(entry.shape) or any(
            own is not None and isinstance(new, int) and own != new for own, new in zip(entry.shape, given, strict=True)
        ):
            raise ImportFailed(f"input {entry.name!r} is {Ranked(entry.dtype, entry.shape)}, given {tuple(given)}")
        return tuple(given)
    extents: list[Dim] = []
    for axis, extent in enumerate(entry.shape):
        if extent is not None:
            extents.append(extent)
            continue
        name = None if entry.sizes is None else entry.sizes[axis]
        if name is not None and name.isidentifier():
            extents.append(sizes.named(name))
        else:
            extents.append(sizes.fresh(f"{entry.name}_{axis}"))
    return tuple(extents)


def signature_of(model: Model, given: Collection[str]) -> Signature:
    """How the compiled model is called. given: names of inputs that have become constants."""
    left = [entry.name for entry in model.inputs if entry.constant is None and entry.name not in given]
    numbers = {
        number: left.index(entry.name)
        for number, entry in enumerate(model.inputs)
        if entry.constant is None and entry.name not in given
    }
    if model.arguments is None:
        plain = signature_of_inputs(left)
        return Signature(plain.parameters, plain.positional, model.tensor_type, results=model.results)
    parameters = tuple(
        Parameter(entry.name, _renumbered(entry.form, numbers), entry.is_optional) for entry in model.arguments
    )
    return Signature(parameters, model.positional, model.tensor_type, results=model.results)


def _renumbered(form: Form, numbers: Mapping[int, int]) -> Form:
    if isinstance(form, GraphInput):
        return GraphInput(None if form.number is None else numbers.get(form.number))
    if isinstance(form, Items):
        return Items(tuple(_renumbered(item, numbers) for item in form.items), form.is_list)
    if isinstance(form, Entries):
        return Entries(tuple((key, _renumbered(item, numbers)) for key, item in form.entries))
    return form
