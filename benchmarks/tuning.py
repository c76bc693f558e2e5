"""What tuning within a budget gives for whole models: whether it ends in time, and how fast the model is then.

    python benchmarks/tuning.py                                     MiniLM and ResNet-18, 30 s each, two threads
    python benchmarks/tuning.py --models resnet50 --budget 60s --threads 1 --json tuned.json
    python benchmarks/tuning.py --models resnet50,bert-base,gpt2 --budget 60s --device cuda --dtype float16

Each model is tuned into a store of its own that is empty at first. What came out is then measured once more beside the
model as it is compiled without a store, in turns; a second call of the tuner shows that nothing is measured again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.table import Table

import hidet
from benchmarks.environment import describe_environment
from benchmarks.models import MODELS, BenchmarkModel
from benchmarks.options import names_from, report_console
from hidet.budget import Budget
from hidet.cli.timing import measure_alternately
from tests.models.vision import build_vision, image_inputs

RESNET18 = BenchmarkModel(
    name="resnet18",
    what="1x3x224x224",
    build=partial(build_vision, "resnet18"),
    inputs=partial(image_inputs, 224, 0),
)
CASES = {model.name: model for model in (RESNET18, *MODELS.values())}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is, and the type of its floats."""

    device: torch.device
    dtype: torch.dtype

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor there; integers stay as they are."""
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype)

    def finish(self, run: Callable[[], object]) -> None:
        """Run something, and wait until the device is done with it."""
        run()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True, slots=True)
class TunedRow:
    """A model before and after. Seconds: budget, of the whole call of the tuner, of a second one, and of a call of the
    model. tasks, changed: of the model, and those with other parameters than by default. load: of the machine, as the
    number of processes that wait for its CPUs, at the end."""

    model: str
    budget: float
    seconds: float
    again_seconds: float
    tasks: int
    changed: int
    stored_again: int
    default_seconds: float
    tuned_seconds: float
    load: float

    @property
    def gain(self) -> float:
        """How many times as fast as before."""
        return self.default_seconds / self.tuned_seconds


@click.command()
@click.option("--models", default="minilm,resnet18", show_default=True, callback=names_from(tuple(CASES)))
@click.option("--budget", default="30s", show_default=True, help="For each model.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(min=1))
@click.option("--device", default="cpu", show_default=True, help="Where models and inputs are, as torch names it.")
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(["float32", "float16", "bfloat16"]))
@click.option("--search-space", default=1, show_default=True, type=click.IntRange(1, 2))
@click.option("--seconds", default=1.0, show_default=True, help="Of a turn of a model; there are seven.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows there.")
def main(
    models: Sequence[str],
    budget: str,
    threads: int,
    device: str,
    dtype: str,
    search_space: int,
    seconds: float,
    json_path: Path | None,
) -> None:
    """Tune models and measure them before and after."""
    torch.set_num_threads(threads)
    console = report_console()
    rows = []
    for name in models:
        with tempfile.TemporaryDirectory(prefix="hidet-tuning-") as folder:
            options = {"threads": threads, "search_space": search_space}
            place = Place(torch.device(device), getattr(torch, dtype))
            rows.append(measure(CASES[name], budget, options, place, seconds, Path(folder) / "choices.sqlite"))
    table = Table()
    columns = ("model", "budget s", "took s", "again s", "changed", "stored", "default ms", "tuned ms", "gain", "load")
    for column in columns:
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        table.add_row(
            row.model,
            f"{row.budget:g}",
            f"{row.seconds:.1f}",
            f"{row.again_seconds:.1f}",
            f"{row.changed} of {row.tasks}",
            f"{row.stored_again} of {row.tasks}",
            f"{row.default_seconds * 1e3:.2f}",
            f"{row.tuned_seconds * 1e3:.2f}",
            f"{row.gain:.3f}",
            f"{row.load:.1f}",
        )
    console.print(table)
    if json_path is not None:
        results = [{**asdict(row), "gain": row.gain} for row in rows]
        json_path.write_text(json.dumps({**describe_environment(), "threads": threads, "rows": results}, indent=2))


def measure(
    case: BenchmarkModel, budget: str, options: Mapping[str, Any], place: Place, seconds: float, store: Path
) -> TunedRow:
    """Tune a model twice, then time it without and with what was found."""
    module = case.build().to(place.device, place.dtype)
    inputs = {name: place.put(tensor) for name, tensor in case.inputs().items()}
    took: list[float] = []
    reports = []
    for _ in range(2):
        start = time.monotonic()
        reports.append(hidet.tune(module, inputs, budget=budget, store=str(store), options=options))
        took.append(time.monotonic() - start)
        print(f"{case.name}\n{reports[-1]}", file=sys.stderr)
    runs: dict[str, Callable[[], object]] = {}
    for name, path in (("default", "off"), ("tuned", str(store))):
        given = {**options, "search_space": 0, "tune.store": path}
        compiled = hidet.compile(module, inputs, options=given)
        runs[name] = partial(place.finish, partial(compiled, **inputs))
    latencies = measure_alternately(runs, seconds, rounds=7)
    return TunedRow(
        model=case.name,
        budget=Budget.of(budget).seconds,
        seconds=took[0],
        again_seconds=took[1],
        tasks=len(reports[0].tasks),
        changed=0 if reports[0].is_dropped else sum(task.is_changed for task in reports[0].tasks),
        stored_again=sum(task.is_stored for task in reports[1].tasks),
        default_seconds=latencies["default"].median,
        tuned_seconds=latencies["tuned"].median,
        load=os.getloadavg()[0],
    )


if __name__ == "__main__":
    main()
