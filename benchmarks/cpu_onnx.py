"""Measure ONNX models on the CPU: hidet beside ONNX Runtime, on the same files and inputs, batch 1.

python benchmarks/cpu_onnx.py                     all models, 1 and 2 threads
python benchmarks/cpu_onnx.py --models llama --threads 1 --json result.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
from rich.console import Console
from rich.table import Table

from benchmarks.environment import describe_environment
from benchmarks.models import MODELS as TORCH_MODELS
from benchmarks.options import names_from, report_console, thread_counts
from benchmarks.results import geometric_mean
from hidet.cli.timing import Latency, measure_alternately
from hidet.onnx.bench import onnxruntime_run
from hidet.onnx.runner import OnnxRunner
from hidet.report.bench_command import largest_difference
from tests.models.onnx_export import exported_model
from tests.models.onnx_models import LANGUAGE_SIZES, ONNX_MODELS, Arrays, MaskedModel, masked_tokens


@dataclass(frozen=True, slots=True)
class Case:
    """A file and the inputs it is measured on."""

    what: str
    path: Callable[[], Path]
    inputs: Callable[[], Arrays]


@dataclass(frozen=True, slots=True)
class Row:
    """What one model takes. difference: the largest of any output, relative to that output's largest value."""

    model: str
    what: str
    threads: int
    latencies: Mapping[str, Latency]
    difference: float

    @property
    def ratio(self) -> float:
        """hidet's median over ONNX Runtime's."""
        return self.latencies["hidet"].median / self.latencies["onnxruntime"].median


def _of_zoo(name: str, size: tuple[int, ...], what: str) -> Case:
    model = ONNX_MODELS[name]
    return Case(what, model.path, partial(model.inputs, size, 0))


def _language(name: str, output: str) -> Case:
    """A model in full size, its lengths left open."""
    length = 128

    def path() -> Path:
        model = MaskedModel(TORCH_MODELS[name].build().model, output).eval()
        inputs = masked_tokens((1, length), 0)
        return exported_model(name, model, inputs, LANGUAGE_SIZES)

    def arrays() -> Arrays:
        return {key: value.numpy() for key, value in masked_tokens((1, length), 0).items()}

    return Case(f"{length} tokens", path, arrays)


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "resnet50": _of_zoo("resnet50", (1,), "1x3x224x224"),
        "mobilenet_v2": _of_zoo("mobilenet_v2", (1,), "1x3x224x224"),
        "bert-base": _language("bert-base", "last_hidden_state"),
        "gpt2": _language("gpt2", "logits"),
        "silero-vad": _of_zoo("silero-vad", (1, 16000), "36 ms of sound"),
        "llama": _of_zoo("llama", (63, 1), "small, 1 token after 63"),
    }
)


@click.command()
@click.option("--models", callback=names_from(tuple(CASES)), default=",".join(CASES), show_default=True)
@click.option("--threads", callback=thread_counts, default="1,2", show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="Seconds a system's turn takes; there are three turns.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(models: tuple[str, ...], threads: tuple[int, ...], seconds: float, json_path: Path | None) -> None:
    """Measure ONNX models on the CPU: hidet beside ONNX Runtime."""
    console, progress = report_console(), Console(stderr=True)
    environment = describe_environment()
    console.print(f"{environment['device']['cpu']}, {environment['device']['cores']} cores, {environment['date']}")
    console.print(", ".join(f"{name} {version}" for name, version in environment["versions"].items() if version))
    rows: list[Row] = []
    for count in threads:
        group = []
        for name in models:
            with progress.status(f"{name}, {count} threads"):
                group.append(_measure(name, CASES[name], count, seconds))
        _print(console, group)
        rows += group
    if json_path is not None:
        text = json.dumps({"environment": environment, "rows": [asdict(row) for row in rows]}, indent=1)
        json_path.write_text(text, encoding="utf-8")
        console.print(f"written: {json_path}")


def _measure(name: str, case: Case, threads: int, seconds: float) -> Row:
    path, arrays = case.path(), case.inputs()
    runner = OnnxRunner(path, options={"threads": threads})
    peer = onnxruntime_run(path, arrays, threads)
    difference = largest_difference(runner(arrays), peer())
    latencies = measure_alternately({"onnxruntime": peer, "hidet": lambda: runner(arrays)}, seconds, rounds=3)
    return Row(name, case.what, threads, latencies, difference)


def _print(console: Console, rows: list[Row]) -> None:
    threads = rows[0].threads
    console.print(f"{threads} thread{'s' if threads > 1 else ''}, float32: median ms", style="bold")
    table = Table()
    for column in ("model", "onnxruntime", "hidet", "hidet / onnxruntime", "largest difference"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        cells = [f"{row.latencies[system].median * 1e3:.3f}" for system in ("onnxruntime", "hidet")]
        table.add_row(f"{row.model} ({row.what})", *cells, f"{row.ratio:.2f}", f"{row.difference:.1e}")
    table.add_section()
    table.add_row("geometric mean", "", "", f"{geometric_mean([row.ratio for row in rows]):.2f}", "")
    console.print(table)


if __name__ == "__main__":
    main()
