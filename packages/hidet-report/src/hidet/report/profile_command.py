"""`hidet profile`: how long each kernel of a model takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from hidet.cli.inputs import inputs_option, shapes_option, values_option
from hidet.cli.model import model_argument, settings_option, target_option
from hidet.cli.output import json_option, print_json
from hidet.report.model_inputs import compile_with_inputs
from hidet.report.profile_text import WIDTH, profile_table
from hidet.report.profiling import SECONDS, profile


@click.command("profile")
@model_argument
@inputs_option
@shapes_option
@values_option
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads.")
@click.option("--seconds", default=SECONDS, show_default=True, help="How long to measure.")
@click.option("--top", type=click.IntRange(min=1), help="Show so many rows, those first that take longest.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a trace for Chrome or Perfetto.")
@target_option
@settings_option
@json_option
def profile_model(
    model: Path,
    inputs: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    threads: int,
    seconds: float,
    top: int | None,
    trace: Path | None,
    target: str,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Measure each kernel of MODEL, and name the line of the model that it comes from."""
    options = {"threads": threads}
    compiled, given = compile_with_inputs(model, target, settings, shapes, values, inputs, options)
    found = profile(compiled, *given, seconds=seconds)
    if trace is not None:
        try:
            trace.write_text(json.dumps(found.trace()), encoding="utf-8")
        except OSError as error:
            raise click.FileError(str(trace), hint=error.strerror) from error
    if as_json:
        print_json({"model": model, **found.as_json()})
        return
    rows = found.rows if top is None else sorted(found.rows, key=lambda row: -row.seconds)[:top]
    Console(width=None if sys.stdout.isatty() else WIDTH).print(profile_table(found, rows))
