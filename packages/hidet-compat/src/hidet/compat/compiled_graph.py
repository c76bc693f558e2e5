"""What compiled graphs of hidet 0.6 had: functions and properties of `hidet.runtime.CompiledGraph`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from hidet import option
from hidet.api.flow.operation import call
from hidet.api.tensors.create import asarray
from hidet.api.tensors.tensor import Tensor
from hidet.cache import cache_directory
from hidet.errors import LaunchError, UnsupportedOp
from hidet.runtime.compiled import CompiledGraph


class LaunchedGraph:
    """A compiled graph of a GPU, whose calls are one launch each from the third with equal sizes on.

    inputs: what the last run was given. outputs: what it gave.
    """

    def __init__(self, compiled: CompiledGraph, inputs: Sequence[Tensor]) -> None:
        if compiled.bundle.target == "cpu":
            raise LaunchError("a CUDA graph is of kernels on a GPU, this graph was compiled for the host")
        self._compiled = compiled
        self.inputs, self.outputs = list(inputs), list(call(compiled, inputs))

    def run(self, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The outputs for inputs; None takes those that were given last."""
        if inputs is not None:
            self.inputs = list(inputs)
        self.outputs = list(call(self._compiled, self.inputs))
        return self.outputs


def cuda_graph(compiled: CompiledGraph, *args: Tensor) -> LaunchedGraph:
    """The graph as one launch, first called with these tensors. LaunchError for the host's."""
    return LaunchedGraph(compiled, args)


def run_async(compiled: CompiledGraph, inputs: Sequence[Any], stream: object = None) -> list[Any]:
    """The outputs as a list; kernels of a device need not be done. stream: as it is current."""
    if all(isinstance(tensor, Tensor) for tensor in inputs):
        return list(call(compiled, inputs))
    results = compiled(*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def _weights(compiled: CompiledGraph) -> list[Tensor]:
    """The constants that kernels read, prepared ones left out."""
    return [asarray(constant) for constant in compiled.bundle.constants]


weights = property(_weights)


def set_weights(compiled: CompiledGraph, weights: Sequence[Tensor]) -> None:
    """UnsupportedOp: constants are part of what was compiled."""
    raise UnsupportedOp(
        "CompiledGraph.set_weights", hint="make the weights inputs of the graph, trace_from(y, inputs=[x, weight])"
    )


def _meta(compiled: CompiledGraph) -> SimpleNamespace:
    """What it takes: inputs with names, types and shapes; target, and the number of kernels."""
    given = [entry for entry in compiled.bundle.program.inputs if entry.tensor is not None]
    inputs = [
        SimpleNamespace(name=entry.name, dtype=entry.tensor.dtype.name, shape=list(entry.tensor.shape))
        for entry in given
        if entry.tensor is not None
    ]
    return SimpleNamespace(inputs=inputs, target=compiled.bundle.target, num_kernels=compiled.report().kernels)


meta = property(_meta)


def get_cache_dir(compiled: CompiledGraph) -> str:
    """Where machine code is kept: `hidet cache status` lists it."""
    return str(cache_directory(option.get_cache_dir()))


def _dispatch_table(compiled: CompiledGraph) -> Mapping[Any, Any]:
    """UnsupportedOp: programs take sizes as arguments, and one serves all."""
    raise UnsupportedOp("CompiledGraph.dispatch_table", hint="compiled.report().uses says which rule each kernel is of")


dispatch_table = property(_dispatch_table)


def clear_dispatch_table(compiled: CompiledGraph) -> None:
    """UnsupportedOp, as `dispatch_table`."""
    _dispatch_table(compiled)
