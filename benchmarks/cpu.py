"""Measure whole models on the CPU: hidet beside eager, Inductor and ONNX Runtime, in one run on the same inputs.

python benchmarks/cpu.py                  everything: five models, 1 and 2 threads, first calls
python benchmarks/cpu.py --quick          short turns, no first calls
python benchmarks/cpu.py --models minilm --systems eager,hidet --threads 2 --json result.json
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.console import Console
from torch import nn

from benchmarks.environment import describe_environment
from benchmarks.first_call import FirstCall, measure_first_calls
from benchmarks.fma_peak import peak_flops
from benchmarks.models import MODELS, BenchmarkModel, model_flops
from benchmarks.options import names_from, report_console, thread_counts
from benchmarks.results import REFERENCE_SYSTEM, FirstCallRow, Row, to_json
from benchmarks.systems import DEFAULT_SYSTEMS, SYSTEMS, Unavailable, prepare
from benchmarks.tables import print_first_calls, print_latencies
from hidet.cli.timing import measure_alternately
from tests.models.entry import Inputs


@click.command()
@click.option("--models", callback=names_from(tuple(MODELS)), default=",".join(MODELS), show_default=True)
@click.option("--systems", callback=names_from(tuple(SYSTEMS)), default=",".join(DEFAULT_SYSTEMS), show_default=True)
@click.option(
    "--threads", callback=thread_counts, default="1,2", show_default=True, help="Numbers of threads, comma-separated."
)
@click.option("--seconds", default=1.0, show_default=True, help="Seconds a system's turn takes; there are three turns.")
@click.option("--first-call/--no-first-call", default=True, show_default=True, help="In fresh processes.")
@click.option("--quick", is_flag=True, help="Turns of 0.2 s and no first calls.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(
    models: tuple[str, ...],
    systems: tuple[str, ...],
    threads: tuple[int, ...],
    seconds: float,
    first_call: bool,
    quick: bool,
    json_path: Path | None,
) -> None:
    """Measure whole models on the CPU: hidet beside eager, Inductor and ONNX Runtime, in one run on the same inputs."""
    warnings.simplefilter("ignore")
    console, progress = report_console(), Console(stderr=True)
    environment = describe_environment()
    console.print(f"{environment['device']['cpu']}, {environment['device']['cores']} cores, {environment['date']}")
    console.print(", ".join(f"{name} {version}" for name, version in environment["versions"].items() if version))

    seconds = 0.2 if quick else seconds
    rows: list[Row] = []
    for count in threads:
        torch.set_num_threads(count)
        with progress.status("") as status:
            group = [
                _measure_model(MODELS[name], systems, count, seconds, lambda text: status.update(text))
                for name in models
            ]
        best = max(row.peak for row in group)
        group = [replace(row, peak=best) for row in group]
        print_latencies(console, group, systems)
        rows += group

    first_calls: list[FirstCallRow] = []
    if first_call and not quick:
        with progress.status("") as status:
            for name in models:
                first_calls.append(_measure_first_calls(name, systems, max(threads), lambda text: status.update(text)))
        print_first_calls(console, first_calls, [system for system in systems if system != REFERENCE_SYSTEM])
    if json_path is not None:
        json_path.write_text(json.dumps(to_json(environment, rows, first_calls, systems), indent=1), encoding="utf-8")
        console.print(f"written: {json_path}")


def _measure_model(
    entry: BenchmarkModel, systems: Sequence[str], threads: int, seconds: float, tell: Callable[[str], None]
) -> Row:
    tell(f"{entry.name}, {threads} threads: building")
    torch._dynamo.reset()
    model, inputs = entry.build(), entry.inputs()
    with torch.no_grad():
        flops = model_flops(model, inputs)
        expected = model(**inputs)
        runs, differences, reasons = {}, {}, {}
        for system in systems:
            tell(f"{entry.name}, {threads} threads: preparing {system}")
            try:
                runs[system], differences[system] = _prepare_and_compare(
                    system, entry.name, model, inputs, threads, expected
                )
            except Exception as error:  # noqa: BLE001 - whatever stops one system is a line of the table, not the end
                reasons[system] = _reason(error)
        tell(f"{entry.name}, {threads} threads: measuring")
        before = peak_flops(threads)
        latencies = measure_alternately(dict(runs), seconds, rounds=3)
        after = peak_flops(threads)
    return Row(
        model=entry.name,
        what=entry.what,
        threads=threads,
        flops=flops,
        latencies=latencies,
        differences=differences,
        reasons=reasons,
        peak=max(before, after),
        peak_around=min(before, after),
    )


def _prepare_and_compare(
    system: str, key: str, model: nn.Module, inputs: Inputs, threads: int, expected: torch.Tensor
) -> tuple[Callable[[], torch.Tensor], float]:
    run = prepare(system, key, model, inputs, threads)
    difference = (run() - expected).abs().max() / expected.abs().max()
    return run, float(difference)


def _measure_first_calls(name: str, systems: Sequence[str], threads: int, tell: Callable[[str], None]) -> FirstCallRow:
    calls: dict[str, list[FirstCall]] = {}
    reasons: dict[str, str] = {}
    for system in systems:
        if system == REFERENCE_SYSTEM:
            continue
        tell(f"{name}: first calls with {system} in fresh processes")
        try:
            calls[system] = measure_first_calls(system, name, threads)
        except RuntimeError as error:
            reasons[system] = str(error)
    return FirstCallRow(model=name, threads=threads, calls=calls, reasons=reasons)


def _reason(error: Exception) -> str:
    if isinstance(error, Unavailable):
        return str(error)
    first_line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line[:160]}"


if __name__ == "__main__":
    main()
