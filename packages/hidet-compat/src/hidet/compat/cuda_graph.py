"""`CudaGraph`: a graph whose kernels are launched as one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hidet.api.flow import FlowGraph
from hidet.api.flow.operation import call
from hidet.api.tensors.create import zeros
from hidet.api.tensors.tensor import Tensor
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context_on
from hidet.errors import LaunchError, ShapeError


class CudaGraph:
    """A graph whose kernels are launched as one from the second run on, where that is quicker.

    inputs: what the last run was given. outputs: what it gave.
    """

    def __init__(self, flow: FlowGraph) -> None:
        """LaunchError for a graph of the host, ShapeError for symbolic sizes."""
        if flow.device == "cpu":
            raise LaunchError(f"a CUDA graph is of kernels on a GPU, this graph is on {flow.device}")
        self.inputs = zero_inputs(flow)
        self._compiled = compile_graph(flow.graph, make_context_on(flow.device, {"mode": "reduce-overhead"}))
        self.outputs = list(call(self._compiled, self.inputs))

    def run(self, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The outputs for inputs; None takes those that were given last."""
        if inputs is not None:
            self.inputs = list(inputs)
        self.outputs = list(call(self._compiled, self.inputs))
        return self.outputs

    def run_async(
        self, inputs: Sequence[Tensor] | None = None, stream: object = None, output_to_torch_tensor: bool = False
    ) -> list[Any]:
        """`run`, which waits for no kernel in any case. stream: as it is current. output_to_torch_tensor: gives torch's
        tensors."""
        outputs = self.run(inputs)
        return [output.torch() for output in outputs] if output_to_torch_tensor else list(outputs)


MODULE = sys.modules[__name__]
"""What `hidet.cuda.graph` is."""


def zero_inputs(flow: FlowGraph) -> list[Tensor]:
    """Tensors of zeros that a graph may be called with. ShapeError where a size is symbolic."""
    return [_zeros_for(tensor) for tensor in flow.inputs]


def _zeros_for(tensor: Tensor) -> Tensor:
    if not all(isinstance(extent, int) for extent in tensor.shape):
        raise ShapeError(f"a size of {tuple(map(str, tensor.shape))} is not known", hint="pass tensors of your own")
    return zeros(tensor.shape, tensor.dtype, tensor.device)
