"""`hidet bench`: how long an ONNX model takes, beside ONNX Runtime in the same process on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hidet.cli.inputs import inputs_option, parse_inputs, random_array
from hidet.cli.model import model_argument, target_option
from hidet.cli.output import json_option, print_json

if TYPE_CHECKING:
    from hidet.onnx.runner import OnnxRunner

PEERS = ("onnxruntime",)


@click.command("bench")
@model_argument
@inputs_option
@click.option("--against", type=click.Choice(PEERS), multiple=True, help="Also measure this.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--seconds", default=1.0, show_default=True, help="Seconds a system's turn takes; there are three turns.")
@target_option
@json_option
def bench(
    model: Path,
    inputs: Sequence[str],
    against: Sequence[str],
    threads: int,
    seconds: float,
    target: str,
    as_json: bool,
) -> None:
    """Measure the latency of MODEL."""
    from rich.console import Console
    from rich.table import Table

    from hidet.onnx.runner import OnnxRunner
    from hidet.testing.timing import measure_alternately

    runner = OnnxRunner(model, target=target, options={"threads": threads})
    arrays = input_arrays(runner, inputs)
    ours = runner(arrays)
    runs: dict[str, Callable[[], object]] = {"hidet": lambda: runner(arrays)}
    differences: dict[str, float] = {}
    for peer in against:
        run = onnxruntime_run(model, arrays, threads)
        runs[peer] = run
        differences[peer] = largest_difference(ours, run())
    latencies = measure_alternately(runs, seconds, rounds=3)
    best = min(latencies.values(), key=lambda latency: latency.median).median
    if as_json:
        rows = {
            name: {"median": v.median, "fastest": v.fastest, "calls": v.calls, "difference": differences.get(name)}
            for name, v in latencies.items()
        }
        print_json({"model": model, "threads": threads, "seconds": rows})
        return
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


def input_arrays(runner: OnnxRunner, given: Sequence[str], seed: int = 0) -> Mapping[str, Any]:
    """An array for each of a runner's inputs, by name: from `--input`, or random where the model fixes the shape.

    UsageError names an input that is missing.
    """
    import numpy

    wanted = parse_inputs(given, runner.inputs)
    generator = numpy.random.default_rng(seed)
    arrays = {}
    for name, type_ in runner.input_types.items():
        given_value = wanted.get(name)
        if isinstance(given_value, numpy.ndarray):
            arrays[name] = given_value
            continue
        shape = given_value if given_value is not None or type_ is None else type_.shape
        if type_ is None or shape is None or not all(isinstance(extent, int) for extent in shape):
            raise click.UsageError(f"input {name} has no fixed shape: --input {name}=1x8, or a .npy file")
        arrays[name] = random_array(
            generator, [extent for extent in shape if isinstance(extent, int)], type_.dtype.numpy()
        )
    return arrays


def onnxruntime_run(model: Path, arrays: Mapping[str, Any], threads: int) -> Callable[[], Sequence[Any]]:
    """A call of ONNX Runtime's CPU provider on these inputs. ClickException when it is not installed, or fails."""
    try:
        import onnxruntime
    except ImportError as error:
        raise click.ClickException("onnxruntime is not installed: pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise click.ClickException(f"ONNX Runtime cannot load {model}: {error}") from error
    feed = dict(arrays)
    return lambda: session.run(None, feed)


def largest_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference of any output, relative to the largest value of that output."""
    import numpy

    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        a, b = (numpy.asarray(value, dtype=numpy.float64) for value in (mine, other))
        if a.shape != b.shape:
            return float("inf")
        if a.size:
            worst = max(worst, float(numpy.abs(a - b).max() / max(float(numpy.abs(b).max()), 1e-30)))
    return worst
