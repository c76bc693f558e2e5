"""hidet as an ONNX backend: `onnx.backend.base.Backend` as functions of a module, `prepare` and the rest.

import hidet.onnx.backend as backend
outputs = backend.prepare(model, "CPU").run([array])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet.context import make_context
from hidet.errors import HidetError, OptionError
from hidet.onnx.runner import OnnxRunner
from hidet.onnx.supported import check
from hidet.plugins.host import load_registry
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep


class HidetRep(BackendRep):
    """A model that `prepare` has compiled."""

    def __init__(self, runner: OnnxRunner) -> None:
        self.runner = runner

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for inputs in the model's order, or by name in a mapping. OptionError for an option."""
        _refuse_options(kwargs)
        if isinstance(inputs, dict):
            return tuple(self.runner(inputs))
        return tuple(self.runner.run(inputs))


class HidetBackend(Backend):
    """hidet for ONNX's own backend tests and for programs that choose a backend by name."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether all operators of a model can be imported."""
        return not check(model)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> HidetRep:
        """Compile a model. HidetError where that is not possible, OptionError for an unknown option."""
        options = {name: value for name, value in kwargs.items() if name not in ("rtol", "atol")}
        return HidetRep(OnnxRunner(model, target=_target(device), options=options))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node on arrays; the newest opset of its domain is taken. outputs_info is not needed."""
        given = [name for name in node.input if name]
        arrays = dict(zip(given, inputs, strict=True))
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        return cls.run_model(helper.make_model(helper.make_graph([node], "node", declared, results)), arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a target for this device ("CPU", "CUDA:0") is installed and can run here."""
        try:
            make_context(_target(device))
        except HidetError:
            return False
        return True


def _target(device: str) -> str:
    """The target of a device as ONNX writes it, "CPU" or "CUDA:1": the name of its type in capitals. OptionError for
    one that no target is for."""
    name, separator, index = device.partition(":")
    if not name.isupper() or (separator and not index.isdigit()):
        raise OptionError(f"device {device!r} is unknown: expected a type and a number, as CPU or CUDA:1")
    if int(index or 0) == 0:
        return load_registry().target_of_device(name.lower())
    if name == "CPU":
        raise OptionError(f"device {device!r} is unknown: there is one CPU, expected CPU")
    return load_registry().target_of_device(f"{name.lower()}:{int(index)}")


def _refuse_options(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise OptionError(f"option {next(iter(kwargs))!r} is unknown: a prepared model takes its inputs alone")


is_compatible = HidetBackend.is_compatible
prepare = HidetBackend.prepare
run_model = HidetBackend.run_model
run_node = HidetBackend.run_node
supports_device = HidetBackend.supports_device
