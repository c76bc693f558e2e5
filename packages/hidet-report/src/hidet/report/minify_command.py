"""`hidet minify`: the smallest part of a model with the same fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hidet.cli.inputs import inputs_option, parse_shapes, parse_values, shapes_option, values_option
from hidet.cli.model import model_argument, parse_settings, settings_option, target_option
from hidet.cli.output import json_option, print_json
from hidet.compiler.graphs import import_model
from hidet.report.minify import minify_imported
from hidet.report.model_inputs import compile_with_inputs


@click.command("minify")
@model_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The script.")
@inputs_option
@shapes_option
@values_option
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@target_option
@settings_option
@json_option
def minify_model_file(
    model: Path,
    output: Path | None,
    inputs: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    seed: int,
    target: str,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Find the smallest part of MODEL that does not compile, or that computes wrong results, and write a script that
    shows it."""
    imported = import_model(
        str(model),
        target=target,
        options=parse_settings(settings),
        shapes=parse_shapes(shapes),
        values=parse_values(values),
    )
    try:
        _, given = compile_with_inputs(model, target, settings, shapes, values, inputs, seed=seed)
    except click.ClickException:
        raise
    except Exception:  # noqa: BLE001  # the fault to look for, which needs no inputs
        given = []
    found = minify_imported(imported, given, output or Path(f"{model.stem}_small.py"))
    count, of = len(found.graph.nodes), len(imported.graph.nodes)
    if as_json:
        print_json({"model": model, "script": found.script, "what": found.what, "operators": count, "of": of})
    else:
        click.echo(f"{found.script} shows it with {count} of {of} operators: {found.what}")
