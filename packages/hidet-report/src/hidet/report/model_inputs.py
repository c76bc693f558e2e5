"""The model of a command, compiled, with arrays for its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hidet.cli.model import ARTIFACT_SUFFIX, arguments_from, compiled_from, request_from
from hidet.runtime.compiled import CompiledGraph


def compile_with_inputs(
    model: Path,
    target: str,
    settings: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    inputs: Sequence[str],
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> tuple[CompiledGraph, list[Any]]:
    """The compiled graph of a model's file, and its inputs in order, random where the user gave none.

    shapes, values, inputs, settings: texts of the options of these names. options: of the compilation, besides.
    UsageError for an artifact, which does not say what it was made from.
    """
    if model.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"{model} is compiled already, and does not say from what: give the model itself")
    request = request_from(shapes, values, inputs)
    made = compiled_from(model, target, settings, request, options)
    return made.compiled, list(arguments_from(made, request, seed).values())
