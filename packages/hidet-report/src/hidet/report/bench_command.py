"""`hidet bench`: how long a model takes, beside other systems in the same process on the same inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy
from rich.console import Console
from rich.table import Table

from hidet.cli.inputs import inputs_option, shapes_option, values_option
from hidet.cli.model import (
    ARTIFACT_SUFFIX,
    arguments_from,
    compiled_from,
    model_argument,
    request_from,
    run_once,
    settings_option,
    target_option,
)
from hidet.cli.output import json_option, print_json
from hidet.cli.timing import measure_alternately
from hidet.plugins.host import load_registry

if TYPE_CHECKING:
    from hidet.cli.timing import Latency


@click.command("bench")
@model_argument
@inputs_option
@shapes_option
@values_option
@click.option("--against", multiple=True, metavar="PEER", help="Also measure this, such as onnxruntime or eager.")
@click.option("--threads", type=click.IntRange(min=1), help="1 by default; a saved model has its own.")
@click.option("--seconds", default=1.0, show_default=True, help="Seconds a system's turn takes; there are three turns.")
@target_option
@settings_option
@json_option
def bench(
    model: Path,
    inputs: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    against: Sequence[str],
    threads: int | None,
    seconds: float,
    target: str,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Measure the latency of MODEL. MODEL may be what `hidet compile -o` saved."""
    is_saved = model.suffix == ARTIFACT_SUFFIX
    if is_saved and threads is not None:
        raise click.UsageError(f"{model} is compiled already: --threads does not apply")
    peers = {peer: _peer(model, peer) for peer in against}
    request = request_from(shapes, values, inputs)
    made = compiled_from(model, target, settings, request, None if is_saved else {"threads": threads or 1})
    arguments = arguments_from(made, request)
    ours = run_once(made.compiled, list(arguments.values()))
    given = list(arguments.values())
    runs: dict[str, Callable[[], object]] = {"hidet": lambda: made.compiled.call_on_inputs(given)}
    differences: dict[str, float] = {}
    # A compiled graph has names of letters, digits and _ alone; a peer is called by those of the model.
    spelt = {re.sub(r"\W", "_", name): name for name in request.named}
    arrays = {**made.bound, **{spelt.get(name, name): array for name, array in arguments.items()}}
    for peer, prepare in peers.items():
        run = prepare(model, arrays, threads or 1)
        runs[peer] = run
        differences[peer] = largest_difference(ours, run())
    latencies = measure_alternately(runs, seconds, rounds=3)
    if as_json:
        rows = {
            name: {"median": v.median, "fastest": v.fastest, "calls": v.calls, "difference": differences.get(name)}
            for name, v in latencies.items()
        }
        print_json({"model": model, "threads": None if is_saved else threads or 1, "seconds": rows})
    else:
        _print_table(latencies, differences)


def _peer(model: Path, name: str) -> Callable[[Path, Mapping[str, Any], int], Callable[[], Sequence[Any]]]:
    """The function of a front-end that runs its models by another system. UsageError for an unknown one."""
    if model.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"--against {name}: nothing else runs a saved model; give the model it was made from")
    frontend = load_registry().frontend_for(str(model))
    if name not in frontend.peers:
        known = ", ".join(frontend.peers) or "none"
        raise click.UsageError(f"--against {name}: unknown for this kind of model; known: {known}")
    found: Callable[[Path, Mapping[str, Any], int], Callable[[], Sequence[Any]]] = frontend.resolve_peer(name)
    return found


def _print_table(latencies: Mapping[str, Latency], differences: Mapping[str, float]) -> None:
    best = min(latencies.values(), key=lambda latency: latency.median).median
    table = Table()
    for column in ("system", "median ms", "fastest ms", "calls", "to the best", "largest difference"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name, value in latencies.items():
        table.add_row(
            name,
            f"{value.median * 1e3:.3f}",
            f"{value.fastest * 1e3:.3f}",
            str(value.calls),
            f"{value.median / best:.2f}",
            f"{differences[name]:.1e}" if name in differences else "-",
        )
    Console().print(table)


def largest_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference of any output, relative to the largest value of that output; infinity for other shapes."""
    if len(ours) != len(theirs):
        return float("inf")
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        a, b = (numpy.asarray(value, dtype=numpy.float64) for value in (mine, other))
        if a.shape != b.shape:
            return float("inf")
        if a.size:
            worst = max(worst, float(numpy.abs(a - b).max() / max(float(numpy.abs(b).max()), 1e-30)))
    return worst
