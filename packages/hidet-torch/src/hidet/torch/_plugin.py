"""Plug-in module of the PyTorch front-end: what hidet-torch offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import AttributeSpec, CheckSpec, FrontendSpec, HandlerSpec

if TYPE_CHECKING:
    from hidet.compiler.lowered import LoweredGraph
    from hidet.context import CompileContext
    from hidet.plugins.specs import FrontendSpec, HandlerSpec
    from hidet.runtime.compiled import CompiledGraph

HIDET_API = 1


def is_module(model: object) -> bool:
    """Whether `model` is the path of a torch.export.ExportedProgram (.pt2) or, in a process that has torch, a
    torch.nn.Module, an ExportedProgram, or a function."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).endswith(".pt2")
    torch = sys.modules.get("torch")
    exporter = sys.modules.get("torch.export")
    is_program = exporter is not None and isinstance(model, exporter.ExportedProgram)
    return is_program or (torch is not None and (isinstance(model, torch.nn.Module) or inspect.isfunction(model)))


def hidet_attributes() -> Iterable[AttributeSpec]:
    """`hidet.frontend.from_torch`."""
    return [AttributeSpec(name="hidet.frontend.from_torch", load="hidet.torch.flow:module_from_torch")]


def hidet_graph_compiled(compiled: CompiledGraph, lowered: LoweredGraph, ctx: CompileContext) -> None:
    """Artifacts for torch's structured trace, of what dynamo compiles."""
    if "torch._dynamo" in sys.modules:
        from hidet.torch.traces import trace_compilation

        trace_compilation(compiled, lowered, ctx)


def hidet_handlers() -> Iterable[HandlerSpec]:
    """Calls of what stands for functions of torch."""
    return [HandlerSpec(frontend="torch", operator="hidet.call.default", load="hidet.torch.stand_ins:emit_call")]


def hidet_frontends() -> Iterable[FrontendSpec]:
    """Modules, captured with torch.export."""
    return [
        FrontendSpec(
            name="torch",
            accepts=is_module,
            load="hidet.torch.export:import_module",
            tensor_types=("torch.Tensor",),
            adapter="hidet.torch.tensors:TorchAdapter",
            device="hidet.torch.export:device_of_module",
            settings="hidet.torch.settings:settings_of_torch",
            dynamic_shapes=True,
            compiled="hidet.torch.compiled_models:parts_of",
            peers={"eager": "hidet.torch.files:run_eager"},
            doc="torch.nn.Module, torch.export.ExportedProgram or a function of tensors, captured whole; "
            "a path ending in .pt2, which torch.export.save wrote",
        )
    ]


def hidet_checks() -> Iterable[CheckSpec]:
    """Which torch there is."""
    return [
        CheckSpec(name="torch.build", load="hidet.torch.checks:check_torch", doc="torch's build and its backend"),
    ]
