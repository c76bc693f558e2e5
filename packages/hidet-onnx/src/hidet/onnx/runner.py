"""`OnnxRunner`: a model that is called with arrays by name, compiled for what it is called with where it has to be."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, Options, make_context
from hidet.errors import ImportFailed, ShapeError, ShapeNeeded, ValueNeeded
from hidet.frontend import SizeNames
from hidet.graph import TensorType
from hidet.onnx.convert import declared_inputs, given_array
from hidet.onnx.importer import ImportedModel, import_model
from hidet.onnx.loader import load_model
from hidet.onnx.value_types import ArgumentType, type_of_argument, value_type

if TYPE_CHECKING:
    from hidet.graph import Graph
    from hidet.runtime.compiled import CompiledGraph
    from onnx import ModelProto

MAX_COMPILED = 8
"""Programs kept for different elements of inputs that shapes are computed from."""


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """A compiled model, right for the elements of its bound inputs and for these types of inputs."""

    model: ImportedModel
    compiled: CompiledGraph
    bound: Mapping[str, Any]
    types: Mapping[str, ArgumentType]

    def fits(self, types: Mapping[str, ArgumentType], arrays: Mapping[str, Any]) -> bool:
        """Whether inputs have these types, and bound inputs the same elements, again."""
        return types == self.types and all(_same(arrays[name], array) for name, array in self.bound.items())


class OnnxRunner:
    """Runs a model on numpy arrays.

    It is compiled at once. A model whose shapes depend on elements of an input (the shape given to Reshape), whose
    inputs have no declared rank, or whose branches differ in more than extents, is compiled at the first call, and
    again for other such elements or shapes.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | ModelProto,
        *,
        target: str = "auto",
        options: Options | Mapping[str, Any] | None = None,
    ) -> None:
        """Raises ImportFailed or UnsupportedOp where the model cannot be imported whatever it is called with."""
        self._model = load_model(model)
        self._ctx: CompileContext = make_context(target, options)
        self._programs: tuple[_Program, ...] = ()
        self._declared = declared_inputs(self._model)
        self.inputs: tuple[str, ...] = tuple(self._declared)
        self.outputs: tuple[str, ...] = tuple(entry.name for entry in self._model.proto.graph.output)
        self._is_general = True
        try:
            self._programs = (self._compile({}, {}, reads_sizes=False),)
        except (ValueNeeded, ShapeNeeded):
            self._is_general = False

    def __call__(self, *inputs: Any, **named: Any) -> list[Any]:
        """The outputs in the model's order.

        Inputs are one mapping from name to array, or arrays in the model's order, or arrays by keyword. A Python number
        stands for a tensor without axes, of the type that the model declares.
        ImportFailed names an input that is missing or unknown, or what an input cannot be.
        """
        if len(inputs) == 1 and isinstance(inputs[0], Mapping) and not named:
            return self._call(inputs[0])
        if len(inputs) > len(self.inputs):
            raise ImportFailed(f"the model takes {len(self.inputs)} inputs, got {len(inputs)}", hint=self._usage())
        by_place = dict(zip(self.inputs, inputs, strict=False))
        twice = sorted(by_place.keys() & named.keys())
        if twice:
            raise ImportFailed(f"input {twice[0]!r} is given twice, in order and by name", hint=self._usage())
        return self._call({**by_place, **named})

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """As a call, with inputs in the model's order."""
        if len(inputs) != len(self.inputs):
            raise ShapeError(f"the model takes {len(self.inputs)} inputs, got {len(inputs)}")
        return self._call(dict(zip(self.inputs, inputs, strict=True)))

    def _usage(self) -> str:
        return "arrays by name: {" + ", ".join(f"{name!r}: array" for name in self.inputs) + "}, or in this order"

    def _call(self, given: Mapping[str, Any]) -> list[Any]:
        if given.keys() != set(self.inputs):
            what = f"the model takes inputs {', '.join(self.inputs) or 'none'}, got {', '.join(given) or 'none'}"
            raise ImportFailed(what, hint=self._usage())
        arrays = given
        # Numbers and lists of numbers; arrays of any library go through as they are.
        plain = [name for name, value in given.items() if isinstance(value, bool | int | float | complex)]
        if plain:
            arrays = {**given, **{name: given_array(self._declared[name], given[name], name) for name in plain}}
        program = self._program(arrays)
        results = program.compiled(*[arrays[name] for name in program.model.arguments])
        return list(results) if isinstance(results, tuple) else [results]

    @property
    def input_types(self) -> Mapping[str, TensorType | None]:
        """Type of each input by name; None where it is no tensor, or the model does not say how many axes it has."""
        types: dict[str, TensorType | None] = {}
        sizes = SizeNames()
        for name, declared in self._declared.items():
            try:
                type_ = value_type(declared, name, sizes)
            except ShapeNeeded:
                type_ = None
            types[name] = type_ if isinstance(type_, TensorType) else None
        return types

    @property
    def compiled(self) -> tuple[CompiledGraph, ...]:
        """What was compiled so far, the latest last."""
        return tuple(program.compiled for program in self._programs)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs of `compiled`, as imported."""
        return tuple(program.model.graph for program in self._programs)

    def _program(self, arrays: Mapping[str, Any]) -> _Program:
        # Sizes that the model leaves open are taken to be at least 1: empty tensors get a program of their own.
        if self._is_general and not any(0 in getattr(array, "shape", ()) for array in arrays.values()):
            return self._programs[0]
        types = self._types(arrays)
        general = self._programs[: 1 if self._is_general else 0]
        special = self._programs[len(general) :]
        for program in special:
            if program.fits(types, arrays):
                return program
        made = self._compile(types, arrays)
        # Replaced as a whole, so that a thread sees a whole table.
        self._programs = (*general, *special[-MAX_COMPILED + 1 :], made)
        return made

    def _types(self, arrays: Mapping[str, Any]) -> dict[str, ArgumentType]:
        """Types of the inputs by what they are called with."""
        return {name: type_of_argument(self._declared[name], value, name) for name, value in arrays.items()}

    def _compile(
        self, types: Mapping[str, ArgumentType], values: Mapping[str, Any], reads_sizes: bool = True
    ) -> _Program:
        imported = import_model(self._model, self._ctx, shapes=types, values=values, reads_sizes=reads_sizes)
        compiled = compile_graph(imported.graph, self._ctx)
        return _Program(imported, compiled, {name: values[name].copy() for name in imported.bound}, types)


def _same(a: Any, b: Any) -> bool:
    """Whether arrays have the same type, shape and bits."""
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
