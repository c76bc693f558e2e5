"""How the callable of `hidet.compile(module, ...)` is called: as the module is, with arguments like the example's."""

from __future__ import annotations

import inspect
from collections import OrderedDict, namedtuple
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from hidet.errors import ImportFailed
from hidet.frontend import signature_of_call
from hidet.runtime.signature import Entries, Fixed, Form, GraphInput, Items, Signature
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind


def signature_of(
    program: ExportedProgram, model: torch.nn.Module | ExportedProgram, inputs: Sequence[int], size_hint: str = ""
) -> Signature:
    """The signature of a model that was captured as `program`.

    inputs: for each input of hidet's graph, the number of the program's input that it is. What the example leaves out
    is fixed to the module's default; where that is an object, it cannot be passed. ImportFailed for containers that
    only torch can take apart. size_hint: see `Signature`.
    """
    numbers = {argument: number for number, argument in enumerate(inputs)}
    leaves: Iterator[Form] = iter(
        [
            Fixed(spec.arg.value) if isinstance(spec.arg, ConstantArgument) else GraphInput(numbers.get(number))
            for number, spec in enumerate(program.graph_signature.input_specs)
            if spec.kind == InputKind.USER_INPUT
        ]
    )
    # The structure of (args, kwargs) of the example.
    args, kwargs = program.call_spec.in_spec.children()
    given = [_form(item, leaves, f"argument {number}") for number, item in enumerate(args.children())]
    named = {name: _form(item, leaves, name) for name, item in zip(kwargs.context, kwargs.children(), strict=True)}
    declared = _declared(program, len(given), named) if isinstance(model, ExportedProgram) else _parameters(model)
    return signature_of_call(declared, given, named, tensor_type="torch.Tensor", size_hint=size_hint)


def _parameters(module: torch.nn.Module) -> Iterable[inspect.Parameter]:
    return inspect.signature(module.forward).parameters.values()


def _declared(program: ExportedProgram, count: int, named: Iterable[str]) -> list[inspect.Parameter]:
    """Parameters of the module that was exported, as far as the program knows them: names without defaults."""
    known = program.module_call_graph[0].signature
    names = None if known is None else known.forward_arg_names
    by_name = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in named]
    if names is None:
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL), *by_name]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [*(inspect.Parameter(name, kind) for name in names[:count]), *by_name]


def _form(spec: Any, leaves: Iterator[Form], place: str) -> Form:
    """What stands at a place of the example, whose structure torch describes by `spec`."""
    if spec.is_leaf():
        return next(leaves)
    children = spec.children()
    if spec.type in (tuple, list, namedtuple):
        return Items(tuple(_form(child, leaves, f"{place}[{number}]") for number, child in enumerate(children)))
    if spec.type in (dict, OrderedDict) and all(isinstance(key, str | int) for key in spec.context):
        pairs = zip(spec.context, children, strict=True)
        return Entries(tuple((key, _form(child, leaves, f"{place}[{key!r}]")) for key, child in pairs))
    raise ImportFailed(
        f"{place} is a {spec.type.__name__}: expected tensors, numbers, or lists, tuples and dicts of them",
        hint="pass the tensors inside it, or use torch.compile(model, backend='hidet')",
    )
