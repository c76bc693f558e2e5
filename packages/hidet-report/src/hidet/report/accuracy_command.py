"""`hidet accuracy`: how far the kernels of a model are from float64."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from hidet.cli.inputs import inputs_option, shapes_option, values_option
from hidet.cli.model import model_argument, settings_option, target_option
from hidet.cli.output import json_option, print_json
from hidet.report.accuracy_text import WIDTH, accuracy_table
from hidet.report.checking import check_accuracy
from hidet.report.model_inputs import compile_with_inputs


@click.command("accuracy")
@model_argument
@inputs_option
@shapes_option
@values_option
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--repro", type=click.Path(dir_okay=False, path_type=Path), help="A script for the first wrong kernel.")
@target_option
@settings_option
@json_option
def check_model(
    model: Path,
    inputs: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    seed: int,
    repro: Path | None,
    target: str,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Compare each kernel of MODEL with float64, beside numpy's error; exit with 1 when one is wrong."""
    compiled, given = compile_with_inputs(model, target, settings, shapes, values, inputs, seed=seed)
    script = repro or Path(f"{model.stem}_wrong_kernel.py")
    found = check_accuracy(compiled, *given, repro=script)
    if as_json:
        print_json({"model": model, **found.as_json()})
    else:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(accuracy_table(found))
    if not found.is_right:
        raise SystemExit(1)
