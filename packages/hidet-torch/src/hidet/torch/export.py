"""`hidet.compile(module, example_inputs)`: a module captured whole, with its parameters as constants of the graph."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from hidet import dtypes
from hidet.context import CompileContext
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.graph import Attrs, Graph, Node, TensorType, Value
from hidet.runtime.signature import ModelGraph
from hidet.torch import compat
from hidet.torch.calls import signature_of
from hidet.torch.composed import composed, corrected
from hidet.torch.eager_nodes import refusal
from hidet.torch.files import load_program
from hidet.torch.imported import ImportedGraph
from hidet.torch.importer import import_fx
from hidet.torch.mapping import handlers_of
from hidet.torch.outputs import plan_own_outputs
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

File = str | os.PathLike[str]
"""A path of what `torch.export.save` wrote, which stands for the program."""
Model = torch.nn.Module | ExportedProgram | Callable[..., Any] | File
ExampleInputs = Sequence[Any] | Mapping[str, Any] | torch.Tensor

# What a graph cannot hold, by the name of its kind: not every torch has all kinds.
_UPDATED = {"BUFFER_MUTATION": "buffer", "PARAMETER_MUTATION": "parameter"}
_EXAMPLE_HINT = "sizes are fixed by the example inputs; pass dynamic_shapes=... to hidet.compile for sizes that differ"
_PROGRAM_HINT = "sizes are fixed by the exported program; pass dynamic_shapes=... to torch.export.export"
_DATA = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def import_module(
    model: Model, example_inputs: ExampleInputs | None, ctx: CompileContext, dynamic_shapes: Any = None
) -> ModelGraph:
    """The graph of a module, or a function, for arguments like these, in order or by name in a mapping, and how it
    is called.

    Parameters and buffers become constants, over their own memory until the graph is compiled. A module that is on the
    CPU as a whole may be compiled for another device, to which nothing of it is moved. Results are the tensors
    that the module returns, in order, containers flattened; what it writes to an input is in the caller's tensor.
    dynamic_shapes: as torch.export takes it; None where all sizes are those of the example.
    Raises ImportFailed without example inputs, which an exported program has itself, for modules that update their
    buffers or parameters, and for sizes that the module cannot leave open; UnsupportedOp, with the whole list, for
    operators that only torch can run.
    """
    model = _as_module(model)
    with torch.no_grad(), warnings.catch_warnings():
        # torch.export copies objects whose class it has deprecated itself.
        warnings.simplefilter("ignore", FutureWarning)
        program = _exported(model, example_inputs, dynamic_shapes).run_decompositions(_decompositions(ctx))
    data = _bound_data(program)
    _write_back(program)
    name = type(model).__name__
    bounds = compat.program_bounds(program)
    device = torch.device("cpu") if device_of_module(program, None) == "cpu" else None
    imported = import_fx(
        program.graph_module, ctx, name=name, bound=data, plan=plan_own_outputs, bounds=bounds, device=device
    )
    if imported.eager:
        error = refusal(imported.eager)
        raise UnsupportedOp(error.message, hint="torch.compile(model, backend='hidet') runs such operators in torch")
    hint = _PROGRAM_HINT if isinstance(model, ExportedProgram) else _EXAMPLE_HINT
    return ModelGraph(_with_random_state(imported, ctx), signature_of(program, model, imported.inputs, hint))


def device_of_module(model: Model, example_inputs: ExampleInputs | None) -> str:
    """The device of a module's parameters, or of its inputs where it has none."""
    model = _as_module(model)
    if isinstance(model, ExportedProgram):
        owned = [*model.state_dict.values(), *model.constants.values()]
        given = model.example_inputs
    else:
        owned = [*model.parameters(), *model.buffers()]
        given = None if example_inputs is None else _arguments(example_inputs)
    tensors = (value for value in (*owned, *compat.leaves(given)) if isinstance(value, torch.Tensor))
    return next((str(value.device) for value in tensors if value.dim()), "cpu")


class _FunctionModule(torch.nn.Module):
    """A function as a module without parameters of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        # What torch.export reads names and defaults of arguments from.
        self.forward = function


def _as_module(model: Model) -> torch.nn.Module | ExportedProgram:
    """A function as a module, a file as its program. ImportFailed for a file that holds none."""
    if isinstance(model, str | os.PathLike):
        return load_program(model)
    return model if isinstance(model, torch.nn.Module | ExportedProgram) else _FunctionModule(model)


def _arguments(example_inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return tuple(example_inputs), {}


def _exported(
    model: torch.nn.Module | ExportedProgram, example_inputs: ExampleInputs | None, dynamic_shapes: Any
) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None:
            raise ImportFailed(
                "an exported program was given with dynamic_shapes: it has those that it was exported with",
                hint="torch.export.export(model, args, dynamic_shapes=...)",
            )
        if example_inputs is not None:
            raise ImportFailed(
                "an exported program was given with example inputs: it is for those that it was exported with",
                hint="hidet.compile(program)",
            )
        return model
    if example_inputs is None:
        raise ImportFailed(
            f"{type(model).__name__} was given without example inputs, which tell dtypes and shapes",
            hint="hidet.compile(model, (tensor, ...))",
        )
    # Of a tensor that is passed twice torch.export makes one input, and another call's second tensor would be ignored.
    args, kwargs = compat.map_tensors(_no_tensor_twice(), _arguments(example_inputs))
    try:
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except compat.export_errors() as error:
        if dynamic_shapes is None:
            raise
        raise ImportFailed(
            f"torch.export refuses {type(model).__name__} with these dynamic_shapes: {error}",
            hint="torch.export.Dim.AUTO leaves open what can be left open",
        ) from error


def _no_tensor_twice() -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that gives back a tensor when it first sees it, then copies."""
    seen: set[int] = set()

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in seen:
            return tensor.clone()
        seen.add(id(tensor))
        return tensor

    return once


def _decompositions(ctx: CompileContext) -> dict[Any, Any]:
    """Everything that torch.export or `composed` can take apart, but for what core, or a plug-in, has itself."""
    handled = handlers_of(ctx.registry)
    everything = {**torch.export.default_decompositions(), **composed()}
    return {**corrected(), **{target: everything[target] for target in everything if str(target) not in handled}}


def _bound_data(program: ExportedProgram) -> dict[int, torch.Tensor]:
    """Tensors that take the place of inputs, by number."""
    signature = program.graph_signature
    for output in signature.output_specs:
        what = _UPDATED.get(output.kind.name)
        if what is not None:
            raise ImportFailed(
                f"the module updates its {what} {output.target}, which a graph with fixed parameters cannot hold",
                hint=f"call model.eval(), pass the {what} as an input, or use torch.compile(model, backend='hidet')",
            )
    data = {**program.state_dict, **program.constants}
    return {
        number: data[spec.target]
        for number, spec in enumerate(signature.input_specs)
        if spec.kind in _DATA and spec.target is not None
    }


def _write_back(program: ExportedProgram) -> None:
    """Put a trailing `aten.copy_` for each input that the module overwrites in the place of the result it was made."""
    graph = program.graph_module.graph
    inputs = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    output = graph.output_node()
    returned = []
    with graph.inserting_before(output):
        for spec, node in zip(program.graph_signature.output_specs, output.args[0], strict=True):
            if spec.kind == OutputKind.USER_INPUT_MUTATION:
                graph.call_function(torch.ops.aten.copy_.default, (inputs[spec.target], node))
            else:
                returned.append(node)
    output.args = (tuple(returned),)


def _with_random_state(imported: ImportedGraph, ctx: CompileContext) -> Graph:
    """The graph, which draws itself what `torch.compile` passes beside the module's arguments: seed and offset."""
    graph = imported.graph
    if not imported.random_inputs:
        return graph
    kept = len(graph.inputs) - imported.random_inputs
    operator = ctx.registry.operators["random_state"]
    drawn = [*graph.inputs[kept:], Value("offset", TensorType(dtypes.i64, ()))][:2]
    node = Node(operator, (), Attrs({}), tuple(drawn))
    return replace(graph, inputs=graph.inputs[:kept], nodes=(node, *graph.nodes))
