"""ONNX files of torch models, exported once and kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path

import platformdirs
import torch
from torch import nn

from .entry import Inputs

_OPSET = 20


DynamicShapes = Mapping[str, Mapping[int, str]]
"""Names of the sizes that an exported model leaves open, by input and axis."""


def exported_model(key: str, model: nn.Module, inputs: Inputs, dynamic: DynamicShapes | None = None) -> Path:
    """Return the ONNX file of `model`, exporting it first where there is none.

    key: the model's name. dynamic: sizes that stay open; None fixes all of them. Shapes, torch's version and a checksum
    of the weights are part of the file's name. The file appears under that name only when it is complete.
    """
    shapes = "_".join("x".join(map(str, _extents(name, value, dynamic))) for name, value in inputs.items())
    directory = platformdirs.user_cache_path("hidet-benchmarks") / f"onnx-{torch.__version__}"
    path = directory / f"{key}-{shapes}-{_checksum(model):08x}-opset{_OPSET}.onnx"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        _export(model, inputs, unfinished, dynamic)
        unfinished.replace(path)
    return path


def _extents(name: str, value: torch.Tensor, dynamic: DynamicShapes | None) -> list[object]:
    names = (dynamic or {}).get(name, {})
    return [names.get(axis, extent) for axis, extent in enumerate(value.shape)]


def _checksum(model: nn.Module) -> int:
    """Checksum of the first elements of every parameter: enough to notice another seed or another initialisation."""
    checksum = 0
    for parameter in model.parameters():
        checksum = zlib.crc32(parameter.detach().flatten()[:64].numpy().tobytes(), checksum)
    return checksum


def _export(model: nn.Module, inputs: Inputs, path: Path, dynamic: DynamicShapes | None) -> None:
    shapes = None if dynamic is None else {name: dict(dynamic.get(name, {})) for name in inputs}
    # The exporter tells its progress through print, warnings and logging; none of it concerns a reader of a benchmark.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                (),
                path,
                kwargs=dict(inputs),
                dynamic_shapes=shapes,
                input_names=list(inputs),
                opset_version=_OPSET,
                dynamo=True,
                external_data=False,
            )
    finally:
        logging.disable(logging.NOTSET)
