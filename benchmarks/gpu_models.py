"""Measure whole models on a GPU: hidet beside eager, eager in a CUDA graph and Inductor, in one run on the same inputs.

python benchmarks/gpu_models.py                                          all rows and systems, about half an hour
python benchmarks/gpu_models.py --rows resnet50:1:f16 --peers eager-graph,inductor --seconds 0.2
python benchmarks/gpu_models.py --rows gpt2:1:f16 --layers               our slowest kernels with their schedules
python benchmarks/gpu_models.py --losses                                 these of every row whose best peer is faster
python benchmarks/gpu_models.py --rows resnet50:1:f16 --first-calls      in fresh processes, without and with a cache
python benchmarks/gpu_models.py --peers inductor --ahead 8               rows are compiled by eight processes before
python benchmarks/gpu_models.py --tuned                                  what 60 s of tuning give, Inductor beside
python benchmarks/gpu_models.py --merge one.json,two.json                one table of what several runs wrote

A system that fails or is not ready in time has "-" in the table and the reason below it. Rows whose best peer is faster
are listed at the end, the largest loss first.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from click.core import ParameterSource
from rich.console import Console
from torch import nn

from benchmarks.ahead import Command, keep_triton_candidates, run_ahead
from benchmarks.environment import describe_environment
from benchmarks.gpu_first_call import BACKENDS, GpuFirstCall, measure_first_calls, print_first_calls
from benchmarks.gpu_layers import print_kernels, profile_kernels
from benchmarks.gpu_results import (
    GpuRow,
    merge_runs,
    print_choices,
    print_losses,
    print_rows,
    rows_to_json,
    unmeasured,
)
from benchmarks.gpu_rows import DEFAULT_ROWS, GPU_MODELS, TUNED_ROWS, RowName, prepare_row
from benchmarks.gpu_systems import DEFAULT_PEERS, GPU_SYSTEMS, tuned_store
from benchmarks.gpu_timing import time_on_gpu
from benchmarks.options import names_from, report_console, rows_of
from benchmarks.results import AUTOTUNED_SYSTEM, OUR_SYSTEM, REFERENCE_SYSTEM, STORED_SYSTEM, TUNED_SYSTEM
from benchmarks.systems import Unavailable
from benchmarks.time_limit import TimeLimitExceeded, time_limit
from hidet.cli.timing import measure_alternately
from hidet.runtime.compiled import CompileReport
from hidet.testing.numerics import Sample, Verdict, check_output
from tests.models.check import to_numpy
from tests.models.compile_reports import collected_reports, sum_counts, sum_phases
from tests.models.entry import Inputs
from tests.models.reference import run_reference

_PEERS = tuple(system for system in GPU_SYSTEMS if system != OUR_SYSTEM)
_ROUNDS = 3
_MEASURING = (AUTOTUNED_SYSTEM, TUNED_SYSTEM, STORED_SYSTEM)
"""Systems that choose by measuring."""


def run_files(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any]:
    """Click callback for comma-separated files that --json wrote: their data by name."""
    try:
        return {name: json.loads(Path(name).read_text(encoding="utf-8")) for name in value.split(",")} if value else {}
    except (OSError, json.JSONDecodeError) as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command()
@click.option(
    "--rows",
    callback=rows_of(RowName.parse),
    default=",".join(DEFAULT_ROWS),
    help="model:batch:dtype, comma-separated.",
)
@click.option("--peers", callback=names_from(_PEERS), default=",".join(DEFAULT_PEERS), show_default=True)
@click.option("--seconds", default=0.5, show_default=True, help="Seconds a system's turn takes; there are three turns.")
@click.option("--limit", default=300.0, show_default=True, help="Seconds until a system has to be ready to be timed.")
@click.option("--ahead", default=0, help="Processes that compile rows before they are measured; 0: none.")
@click.option("--tuned", is_flag=True, help="Rows, systems and choices of tuning, where no others are named.")
@click.option("--layers", is_flag=True, help="Print our slowest kernels instead of measuring peers.")
@click.option("--losses", is_flag=True, help="Print our slowest kernels of rows whose best peer is faster.")
@click.option("--first-calls", is_flag=True, help="Measure our first calls in fresh processes instead.")
@click.option("--most", default=15, show_default=True, help="Kernels that --layers prints.")
@click.option("--check/--no-check", default=True, show_default=True, help="Compare results with a float64 reference.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
@click.option("--merge", "runs", callback=run_files, help="Print a table of these JSON files, and measure nothing.")
def main(
    rows: tuple[RowName, ...],
    peers: tuple[str, ...],
    seconds: float,
    limit: float,
    ahead: int,
    tuned: bool,
    layers: bool,
    losses: bool,
    first_calls: bool,
    most: int,
    check: bool,
    json_path: Path | None,
    runs: dict[str, Any],
) -> None:
    """Measure whole models on a GPU: hidet beside eager and Inductor, in one run on the same inputs."""
    if runs:
        _print_merged(runs, json_path)
        return
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    if tuned:
        rows = tuple(map(RowName.parse, TUNED_ROWS)) if _is_default("rows") else rows
        peers = (AUTOTUNED_SYSTEM, TUNED_SYSTEM, STORED_SYSTEM) if _is_default("peers") else peers
    warnings.simplefilter("ignore")
    torch.backends.cudnn.benchmark = True
    console, progress = report_console(), Console(stderr=True)
    environment = describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}")
    console.print(", ".join(f"{name} {version}" for name, version in environment["versions"].items() if version))
    if first_calls:
        _measure_first_calls(console, progress, environment, rows, limit, json_path)
        return
    systems = (OUR_SYSTEM,) if layers else (*peers, OUR_SYSTEM)
    if ahead:
        keep_triton_candidates()
        with progress.status(f"{ahead} processes compile {len(rows)} rows"), tempfile.TemporaryDirectory() as chosen:
            commands = [command for name in rows for command in _compiling(name, systems, chosen)]
            run_ahead(console, commands, ahead, limit * len(systems))
    done: list[GpuRow] = []
    for number, name in enumerate(rows):
        with progress.status(str(name)) as status, torch.no_grad():
            measurement = _Measurement(name, check, limit, lambda text: status.update(text))
            row = measurement.run(systems, 0.0 if layers else seconds)
        is_lost = row.ratio is not None and row.ratio > 1
        if (layers or (losses and is_lost)) and OUR_SYSTEM in measurement.runs:
            print_kernels(console, row.name, profile_kernels(measurement.runs[OUR_SYSTEM], measurement.reports), most)
        done.append(row)
        del measurement
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        print_rows(console, [row], systems)
        if tuned:
            print_choices(console, row, tuned_store())
        if json_path is not None:
            left = [unmeasured(str(other), systems) for other in rows[number + 1 :]]
            json_path.write_text(json.dumps(rows_to_json(environment, [*done, *left]), indent=1), encoding="utf-8")
    if len(done) > 1:
        print_rows(console, done, systems)
        print_losses(console, done)


def _compiling(name: RowName, systems: Sequence[str], chosen: str) -> list[Command]:
    """Processes that compile a row and measure nothing: one for all that chooses nothing by measuring, one for the
    candidates of `max-autotune`, whose choices go to the folder `chosen` and are read by nobody."""
    peers = [system for system in systems if system not in (OUR_SYSTEM, *_MEASURING)] or [REFERENCE_SYSTEM]
    arguments = [__file__, "--rows", str(name), "--seconds", "0", "--no-check", "--peers"]
    commands: list[Command] = [([*arguments, ",".join(peers)], {})]
    if AUTOTUNED_SYSTEM in systems:
        scratch = str(Path(chosen, str(name).replace(":", "-")))
        commands.append(([*arguments, AUTOTUNED_SYSTEM], {"TORCHINDUCTOR_CACHE_DIR": scratch}))
    return commands


def _is_default(parameter: str) -> bool:
    """Whether the user has not named it."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.DEFAULT


def _measure_first_calls(
    console: Console,
    progress: Console,
    environment: dict[str, Any],
    rows: Sequence[RowName],
    limit: float,
    json_path: Path | None,
) -> None:
    calls: list[GpuFirstCall] = []
    for name, backend in itertools.product(rows, BACKENDS):
        try:
            with progress.status(f"{name}: first calls of {backend}"):
                found = measure_first_calls(str(name), limit, backend)
        except RuntimeError as error:
            console.print(f"- {name}: {error}", style="bold red", markup=False)
            continue
        print_first_calls(console, found)
        calls += found
        if json_path is not None:
            result = {**environment, "first_calls": [asdict(call) for call in calls]}
            json_path.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print_first_calls(console, calls)


def _print_merged(runs: dict[str, Any], json_path: Path | None) -> None:
    try:
        merged = merge_runs(runs)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    console = report_console()
    for name, data in runs.items():
        console.print(f"{name}: {data['device']['gpu']}, {data['date']}")
    print_rows(console, merged, [s for s in GPU_SYSTEMS if any(s in (*r.latencies, *r.reasons) for r in merged)])
    print_losses(console, merged)
    if json_path is not None:
        newest = max(runs.values(), key=lambda data: data["date"])
        json_path.write_text(json.dumps(rows_to_json(newest, merged), indent=1), encoding="utf-8")


class _Measurement:
    """One row: what is prepared of it, and what is found."""

    def __init__(self, name: RowName, check: bool, limit: float, tell: Callable[[str], None]) -> None:
        self.name = name
        self.limit = limit
        self.tell = tell
        tell(f"{name}: building")
        self.model, self.inputs = prepare_row(name)
        self.judge = _Judge(self.model, self.inputs) if check else None
        self.runs: dict[str, Callable[[], object]] = {}
        self.first_calls: dict[str, float] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.reasons: dict[str, str] = {}
        self.reports: list[CompileReport] = []

    def run(self, systems: Sequence[str], seconds: float) -> GpuRow:
        """Prepare and compare all systems, then measure them in turns."""
        for system in systems:
            self.tell(f"{self.name}: preparing {system}")
            try:
                with time_limit(self.limit):
                    self._prepare(system)
            except (Unavailable, TimeLimitExceeded) as error:
                self.reasons[system] = str(error)
            except Exception as error:  # noqa: BLE001 - whatever stops one system is a line below the table, not the end
                first_line = next(iter(str(error).strip().splitlines()), "")
                self.reasons[system] = f"{type(error).__name__}: {first_line[:300]}"
        self.tell(f"{self.name}: measuring")
        latencies = measure_alternately(dict(self.runs), seconds, _ROUNDS, time_turn=time_on_gpu) if seconds else {}
        return GpuRow(
            name=str(self.name),
            latencies=latencies,
            first_calls=self.first_calls,
            verdicts=self.verdicts,
            reasons=self.reasons,
            kernels=sum(report.kernels for report in self.reports),
            counts=sum_counts(self.reports),
            seconds=sum_phases(self.reports),
        )

    def _prepare(self, system: str) -> None:
        torch._dynamo.reset()
        start = time.perf_counter()
        with collected_reports(system == OUR_SYSTEM) as reports:
            run = GPU_SYSTEMS[system](self.model, self.inputs, GPU_MODELS[self.name.model].has_images)
            result = run()
            torch.cuda.synchronize()
            self.first_calls[system] = time.perf_counter() - start
            # The second call may be captured, and what is replayed from the third one on has to be right.
            for _ in range(2):
                result = run()
        self.reports += reports
        if self.judge is not None and system != REFERENCE_SYSTEM:
            self.verdicts[system] = self.judge(result)
        self.runs[system] = run


class _Judge:
    """Compares results with a float64 reference; eager's own error is the yardstick."""

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        with torch.no_grad():
            self._eager = to_numpy(model(**inputs))
            self._reference = to_numpy(run_reference(model, inputs))
        torch.cuda.empty_cache()

    def __call__(self, result: torch.Tensor) -> Verdict:
        return check_output("output", [Sample(to_numpy(result), self._eager, self._reference)])


if __name__ == "__main__":
    main()
