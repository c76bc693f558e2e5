"""`hidet.frontend.from_torch`: a module that is called with tensors of hidet, or with symbolic ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hidet.api.flow.operation import apply_graph
from hidet.api.tensors.create import asarray
from hidet.api.tensors.tensor import Tensor
from hidet.compiler.graphs import compile_graph
from hidet.compiler.graphs import import_model as import_any
from hidet.errors import ImportFailed
from hidet.runtime.compiled import CompiledGraph
from hidet.torch.stand_ins import with_stand_in_modules


class Interpreter:
    """A module of torch on `hidet.Tensor`s; its weights are constants as they are when it is first called.

    concrete_args: arguments by name that are no tensors, which calls leave out.
    """

    def __init__(self, module: torch.nn.Module, concrete_args: Mapping[str, Any] | None = None) -> None:
        self.module = module
        self._fixed = dict(concrete_args or {})
        self._compiled: dict[object, CompiledGraph] = {}

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a list of several; symbolic ones of symbolic inputs, whose sizes must be known."""
        results = self.forward(*inputs)
        return results[0] if len(results) == 1 else results

    def forward(self, *inputs: Any) -> list[Tensor]:
        """As a call, always a list. ImportFailed for inputs whose sizes are symbols, and what torch.export refuses."""
        given = [asarray(each) for each in inputs]
        symbolic = [tensor.is_symbolic() for tensor in given]
        if any(symbolic) and not all(symbolic):
            raise ImportFailed("some inputs have elements and others are symbolic", hint="give symbols, or tensors")
        if any(symbolic):
            return apply_graph(self._imported(given).graph, given)
        kind = tuple((tensor.dtype, tensor.shape, tensor.device) for tensor in given)
        if kind not in self._compiled:
            imported = self._imported(given)
            self._compiled[kind] = compile_graph(imported.graph, imported.ctx)
        results = self._compiled[kind].call_on_inputs([tensor.storage for tensor in given])
        return [asarray(result) for result in (results if isinstance(results, tuple) else (results,))]

    def _imported(self, given: Sequence[Tensor]) -> Any:
        if not all(isinstance(extent, int) for tensor in given for extent in tensor.shape):
            raise ImportFailed(
                "a size of an input is a symbol, which torch.export has to be told of",
                hint="hidet.compile(module, inputs, dynamic_shapes=...)",
            )
        examples = [_example(tensor) for tensor in given]
        module = with_stand_in_modules(self.module)
        return import_any(_Fixed(module, self._fixed) if self._fixed else module, examples)


class _Fixed(torch.nn.Module):
    """A module some of whose arguments are known."""

    def __init__(self, module: torch.nn.Module, fixed: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._known = dict(fixed)

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs, **self._known)


def _example(tensor: Tensor) -> torch.Tensor:
    """A tensor of torch of the same kind."""
    dtype = getattr(torch, "bool" if tensor.dtype.is_bool else tensor.dtype.name)
    return torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)


def module_from_torch(module: torch.nn.Module, concrete_args: Mapping[str, Any] | None = None) -> Interpreter:
    """A module of torch that is called with tensors or symbolic tensors of hidet.

    concrete_args: arguments by name that are no tensors, which calls leave out.
    """
    return Interpreter(module, concrete_args)
