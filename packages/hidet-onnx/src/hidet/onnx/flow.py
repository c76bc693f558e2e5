"""`hidet.frontend.from_onnx`: a model that is called with tensors, or with symbolic ones, which gives symbolic ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hidet.api.flow.operation import apply_graph
from hidet.api.tensors.create import asarray
from hidet.api.tensors.tensor import Tensor
from hidet.errors import ImportFailed
from hidet.onnx.convert import declared_inputs, from_onnx
from hidet.onnx.loader import load_model
from hidet.onnx.runner import OnnxRunner

if TYPE_CHECKING:
    from onnx import ModelProto


class OnnxModule:
    """A model of ONNX on `hidet.Tensor`s, in the order of its inputs.

    input_names, output_names: as the model says them. op_sets: the version of each domain of operators.
    """

    def __init__(self, model: str | os.PathLike[str] | ModelProto) -> None:
        """ImportFailed for a damaged model."""
        self._model = load_model(model)
        self._runner: OnnxRunner | None = None
        self._source = model
        self.input_names = list(declared_inputs(self._model))
        self.output_names = [entry.name for entry in self._model.proto.graph.output]
        self.op_sets: Mapping[str, int] = {entry.domain: entry.version for entry in self._model.proto.opset_import}

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a list of several. The first call with elements compiles."""
        results = self.forward(*inputs)
        return results[0] if len(results) == 1 else results

    def forward(self, *inputs: Any) -> list[Tensor]:
        """The outputs: of tensors those of the compiled model, of symbolic ones what computes them.

        ImportFailed for another number of inputs, and where some inputs are symbolic and others not.
        """
        given = [asarray(each) for each in inputs]
        if len(given) != len(self.input_names):
            named = ", ".join(self.input_names)
            raise ImportFailed(f"the model takes {len(self.input_names)} inputs ({named}), got {len(given)}")
        symbolic = [tensor.is_symbolic() for tensor in given]
        if not any(symbolic):
            return self._run(given)
        if not all(symbolic):
            which = self.input_names[symbolic.index(False)]
            raise ImportFailed(f"input {which!r} has elements and others are symbolic", hint="give symbols, or tensors")
        shapes = {name: tensor.shape for name, tensor in zip(self.input_names, given, strict=True)}
        return apply_graph(from_onnx(self._source, shapes=shapes), given)

    def _run(self, given: list[Tensor]) -> list[Tensor]:
        if self._runner is None:
            device = given[0].device if given else "cpu"
            self._runner = OnnxRunner(self._source, target=device)
        results = self._runner.run([tensor.storage for tensor in given])
        return [asarray(result) for result in results]

    def __repr__(self) -> str:
        return f"OnnxModule({', '.join(self.input_names)}) -> {', '.join(self.output_names)}"


def module_from_onnx(model: str | os.PathLike[str] | ModelProto) -> OnnxModule:
    """A model of ONNX, a path or a ModelProto, that is called with tensors or symbolic tensors.

    `hidet.onnx.from_onnx` gives its graph.
    """
    return OnnxModule(model)
