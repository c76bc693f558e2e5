"""`hidet report`: a page about the compilation of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

import hidet
from hidet.cli.inputs import inputs_option, parse_shapes, parse_values, shapes_option, values_option
from hidet.cli.model import model_argument, parse_settings, settings_option, target_option
from hidet.cli.output import json_option, print_json
from hidet.report.checking import check_accuracy
from hidet.report.model_inputs import compile_with_inputs
from hidet.report.page import write_page
from hidet.report.profiling import SECONDS, profile


@click.command("report")
@model_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The page.")
@inputs_option
@shapes_option
@values_option
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads.")
@click.option("--seconds", default=SECONDS, show_default=True, help="How long to measure; 0: not at all.")
@click.option("--accuracy", is_flag=True, help="Also compare each kernel with float64.")
@click.option("--tune", metavar="BUDGET", help='Tune it first, for a time such as "60s", with hidet-tune.')
@click.option("--no-listings", is_flag=True, help="Leave out what the compiler gets and assembly.")
@target_option
@settings_option
@json_option
def report_model(
    model: Path,
    output: Path,
    inputs: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    threads: int,
    seconds: float,
    accuracy: bool,
    tune: str | None,
    no_listings: bool,
    target: str,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Compile and measure MODEL, and write a page with all that became of it, which needs no network."""
    options = {"threads": threads}
    tuning = None
    if tune is not None:
        sizes, known = parse_shapes(shapes), parse_values(values)
        chosen = {**options, **parse_settings(settings)}
        tuning = hidet.tune(str(model), budget=tune, target=target, options=chosen, shapes=sizes, values=known)
    compiled, given = compile_with_inputs(model, target, settings, shapes, values, inputs, options)
    times = profile(compiled, *given, seconds=seconds) if seconds else None
    errors = check_accuracy(compiled, *given) if accuracy else None
    write_page(compiled.report(), output, times, errors, tuning, listings=not no_listings)
    nbytes = output.stat().st_size
    if as_json:
        print_json({"model": model, "page": output, "bytes": nbytes})
    else:
        click.echo(f"{output} ({nbytes / 1e6:.1f} MB)")
