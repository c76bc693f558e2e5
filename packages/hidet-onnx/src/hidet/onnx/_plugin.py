"""Plug-in module of the ONNX front-end: what hidet-onnx offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import AttributeSpec, CheckSpec, FrontendSpec

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec
    from hidet.plugins.specs import CommandTable, FrontendSpec

HIDET_API = 1


def is_onnx_model(model: object) -> bool:
    """Whether `model` is a path that ends in .onnx, or a ModelProto."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).endswith(".onnx")
    kind = type(model)
    return kind.__name__ == "ModelProto" and kind.__module__.startswith("onnx")


def hidet_frontends() -> Iterable[FrontendSpec]:
    """Models in ONNX files."""
    return [
        FrontendSpec(
            name="onnx",
            accepts=is_onnx_model,
            load="hidet.onnx.convert:import_for_compile",
            fixes_inputs=True,
            peers={"onnxruntime": "hidet.onnx.bench:onnxruntime_run"},
            doc="an ONNX model: a path ending in .onnx, or a ModelProto",
        )
    ]


def hidet_attributes() -> Iterable[AttributeSpec]:
    """`hidet.frontend.from_onnx`."""
    return [AttributeSpec(name="hidet.frontend.from_onnx", load="hidet.onnx.flow:module_from_onnx")]


def hidet_operators() -> Iterable[OperatorSpec]:
    """Decoding of images."""
    from hidet.onnx.decode_image import SPEC

    return [SPEC]


def hidet_commands(cli: CommandTable) -> None:
    """`hidet check`."""
    cli.add("check", load="hidet.onnx.check_command:check_model", doc="Say which operators of an ONNX model are known.")


def hidet_checks() -> Iterable[CheckSpec]:
    """ONNX Runtime, to compare with."""
    return [
        CheckSpec(name="onnx.onnxruntime", load="hidet.onnx.checks:check_onnxruntime", doc="ONNX Runtime"),
    ]
