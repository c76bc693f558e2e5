"""Compile models of the zoo and say whether they are right.

python -m tests.models.check                                             every model in float32 on the CPU
python -m tests.models.check --device cuda --dtypes f16,bf16,f32 --models resnet18,bert
python -m tests.models.check --device cuda --dtypes f16,bf16,f32 --jobs 16 --json zoo.json

The last one is the whole zoo, in 16 processes at once.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from hidet.testing.numerics import Sample, Verdict, check_output

from .apart import Died, run_apart
from .compile_reports import NodeCounts, collected_reports, sum_counts
from .entry import Inputs, ZooModel
from .reference import run_reference
from .zoo import MODELS

SEEDS = (0, 1, 2)

DTYPES: Mapping[str, torch.dtype] = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What became of one model.

    device: where it ran. verdicts: one for each output tensor. counts: nodes by class, None for backends other than
    hidet. compile_seconds: the first call. run_seconds: the fastest later call, only a hint, not a measurement.
    graphs: into how many graphs dynamo cut the model, 0 for backends other than hidet. note: what the reader has to
    know of the model. failure: why there is no result, with everything else empty; None when there is one.
    """

    name: str
    dtype: str
    backend: str
    device: str = "cpu"
    verdicts: tuple[Verdict, ...] = ()
    counts: NodeCounts | None = None
    compile_seconds: float = 0.0
    run_seconds: float = 0.0
    graphs: int = 0
    note: str | None = None
    failure: str | None = None

    @property
    def numbers_correct(self) -> bool:
        """Whether every output is right, and there is one."""
        return bool(self.verdicts) and all(verdict.correct for verdict in self.verdicts)

    @property
    def complaint(self) -> str | None:
        """What is against the rules of where nodes may run, None when nothing is. A GPU runs none on the nest."""
        if self.counts is None:
            return None
        nest = self.counts.fallback_nest if torch.device(self.device).type != "cpu" else 0
        parts = [self.counts.complaint, f"{nest} nodes on the fallback nest" if nest else None]
        return "; ".join(part for part in parts if part) or None

    @property
    def worst(self) -> float:
        """The largest error as a part of what is allowed, over all outputs; 0 where all have to be equal."""
        pairs = [(v.rms, v.rms_limit) for v in self.verdicts] + [(v.peak, v.peak_limit) for v in self.verdicts]
        return max((error / limit for error, limit in pairs if limit), default=0.0)

    @property
    def correct(self) -> bool:
        """Whether every output is right and no node runs where it should not."""
        return self.numbers_correct and self.complaint is None

    def __str__(self) -> str:
        word = "correct" if self.correct else "WRONG" if self.failure is None else "FAILED"
        lines = [f"{self.name} {self.dtype} by {self.backend} on {self.device}: {word}"]
        if self.failure is not None:
            return f"{lines[0]}: {self.failure}"
        lines[0] += f" (first call {self.compile_seconds:.1f} s, then {self.run_seconds * 1e3:.1f} ms)"
        lines += [f"  {verdict}" for verdict in self.verdicts]
        if self.counts is not None:
            lines.append(f"  {self.counts}")
        lines += [f"  against the rules: {self.complaint}"] if self.complaint else []
        lines += [f"  note: {self.note}"] if self.note else []
        return "\n".join(lines)


def check_model(
    name: str, dtype: torch.dtype = torch.float32, backend: str = "hidet", device: str = "cpu"
) -> ModelReport:
    """Compile the zoo's model `name` and compare it with eager and with float64 over three seeds.

    dtype: of weights and floating inputs. backend: any that torch.compile knows. device: where model, eager and
    reference run. The model is compiled whole (`fullgraph=True`), unless its entry says that it cannot be, and once, on
    the first seed's inputs. Raises KeyError for an unknown name and what the backend raises.
    """
    return check_module(MODELS[name], dtype, backend, device)


def check_module(
    entry: ZooModel,
    dtype: torch.dtype,
    backend: str | Callable[..., Any],
    device: str = "cpu",
    options: dict[str, Any] | None = None,
) -> ModelReport:
    """Do what `check_model` does for an entry that need not be in the zoo; `backend` may be a function too.

    options: of torch.compile.
    """
    model = entry.build().to(device, dtype)
    batches = [_cast(entry.inputs(seed), dtype, device) for seed in SEEDS]
    # In float32 everything is compared in float32: torch lets convolutions on a GPU round to tf32 unless told not to.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        eager = [_run(model, inputs) for inputs in batches]
        references = [flatten(run_reference(model, inputs)) for inputs in batches]

        is_hidet = backend == "hidet"
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, fullgraph=dtype not in entry.breaks_in, options=options)
        ours, seconds = [], []
        with collected_reports(is_hidet) as reports:
            for inputs in batches:
                start = time.perf_counter()
                ours.append({name: value.cpu() for name, value in _run(compiled, inputs).items()})
                seconds.append(time.perf_counter() - start)
    return ModelReport(
        name=entry.name,
        dtype=str(dtype).removeprefix("torch."),
        backend=backend if isinstance(backend, str) else backend.__name__,
        verdicts=judge(ours, eager, references),
        counts=sum_counts(reports) if is_hidet else None,
        compile_seconds=seconds[0],
        run_seconds=min(seconds[1:]),
        device=device,
        graphs=len(reports),
        note=entry.note,
    )


def _cast(inputs: Inputs, dtype: torch.dtype, device: str) -> Inputs:
    moved = {name: value.to(device) for name, value in inputs.items()}
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in moved.items()}


def _run(model: Callable[..., Any] | nn.Module, inputs: Inputs) -> Mapping[str, torch.Tensor]:
    with torch.no_grad():
        return flatten(model(**inputs))


def flatten(result: Any) -> Mapping[str, torch.Tensor]:
    """Name every tensor in a model's result by its path in it."""
    leaves, _ = tree_flatten_with_path(result)
    return {keystr(path) or "output": leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def judge(
    ours: Sequence[Mapping[str, torch.Tensor]],
    eager: Sequence[Mapping[str, torch.Tensor]],
    references: Sequence[Mapping[str, torch.Tensor]],
) -> tuple[Verdict, ...]:
    """A verdict on each output, by its name: results on several inputs, eager mode's, and those in float64."""
    names = list(eager[0])
    if list(ours[0]) != names:
        return (Verdict("outputs", "", correct=False, problem=f"are {list(ours[0])}, eager's are {names}"),)
    samples = {
        name: [
            Sample(to_numpy(mine[name]), to_numpy(theirs[name]), to_numpy(reference[name]))
            for mine, theirs, reference in zip(ours, eager, references, strict=True)
        ]
        for name in names
    }
    return tuple(check_output(name, samples[name]) for name in names)


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """Convert from any device without changing bits; numpy has no bfloat16 of its own, so those go through int16."""
    tensor = tensor.detach().contiguous().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _names(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def split(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
        names = value.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}", ctx, param)
        return names

    return split


def _check_row(backend: str, device: str, threads: int | None, row: tuple[str, str]) -> ModelReport:
    """The report of a model and a type; of a failure, too. threads: of torch; None leaves them as they are."""
    warnings.simplefilter("ignore")
    if threads is not None:
        torch.set_num_threads(threads)
    name, dtype = row
    try:
        return check_model(name, DTYPES[dtype], backend, device)
    except Exception as error:  # noqa: BLE001 - a model that fails is a line of the output, not its end
        first_line = next(iter(str(error).strip().splitlines()), "")
        failure = f"{type(error).__name__}: {first_line[:300]}"
        return ModelReport(name, str(DTYPES[dtype]).removeprefix("torch."), backend, device, failure=failure)


def check_rows(rows: Sequence[tuple[str, str]], backend: str, device: str, jobs: int) -> Iterator[ModelReport]:
    """The report of each (model, type) as it comes. jobs: processes at once; 1 works in this one."""
    if jobs == 1:
        yield from map(partial(_check_row, backend, device, None), rows)
        return
    work = partial(_check_row, backend, device, max(1, len(os.sched_getaffinity(0)) // jobs))
    for (name, dtype), result in run_apart(work, rows, jobs, seconds=_MOST_SECONDS, preload=_PRELOAD):
        if isinstance(result, Died):
            yield ModelReport(
                name, str(DTYPES[dtype]).removeprefix("torch."), backend, device, failure=f"no result: {result}"
            )
        else:
            yield result


_MOST_SECONDS = 600.0
_PRELOAD = (f"{__package__}.preload",)
_COLUMNS = ("model", "dtype", "", "error/limit", "nodes", "nest", "routine", "host", "eager", "graphs", "first s", "ms")
_LINE = "{:20} {:9} {:8} {:>11} {:>5} {:>5} {:>7} {:>5} {:>5} {:>6} {:>8} {:>8}"


def _line(report: ModelReport) -> str:
    """One row of the table, and below it what is wrong."""
    if report.failure is not None:
        return f"{report.name:20} {report.dtype:9} FAILED   {report.failure}"
    counts = report.counts or NodeCounts()
    nodes = (counts.scheduled, counts.fallback_nest, counts.routine, counts.host, counts.eager, report.graphs)
    seconds = (f"{report.compile_seconds:.1f}", f"{report.run_seconds * 1e3:.1f}")
    word = "correct" if report.correct else "WRONG"
    line = _LINE.format(report.name, report.dtype, word, f"{report.worst:.2f}", *nodes, *seconds)
    wrong = [f"    {verdict}" for verdict in report.verdicts if not verdict.correct]
    rules = [f"    against the rules: {report.complaint}; {counts}"] if report.complaint else []
    note = [f"    note: {report.note}"] if report.note else []
    return "\n".join([line, *wrong, *rules, *note])


def _as_json(reports: Iterable[ModelReport]) -> str:
    rows = [{**asdict(report), "correct": report.correct, "complaint": report.complaint} for report in reports]
    return json.dumps({"torch": torch.__version__, "rows": rows}, indent=1)


@click.command()
@click.option("--models", callback=_names(tuple(MODELS)), default=",".join(MODELS), help="Names, comma-separated.")
@click.option("--dtypes", callback=_names(tuple(DTYPES)), default="f32", show_default=True)
@click.option("--device", default="cpu", show_default=True, help="Where model, eager and reference run.")
@click.option("--backend", default="hidet", show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes at once; 1: this one.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Where all figures are written.")
def main(models: list[str], dtypes: list[str], device: str, backend: str, jobs: int, file: Path | None) -> None:
    """Check models of the zoo, print a line each and the sum; the exit status is 1 when one is not right."""
    rows = [(name, dtype) for name in models for dtype in dtypes]
    click.echo(_LINE.format(*_COLUMNS))
    reports: list[ModelReport] = []
    start = time.perf_counter()
    for report in check_rows(rows, backend, device, jobs):
        reports.append(report)
        click.echo(_line(report))
    right = sum(report.correct for report in reports)
    click.echo(f"{right} of {len(rows)} right by {backend} on {device} in {time.perf_counter() - start:.0f} s")
    if file is not None:
        file.write_text(_as_json(reports), encoding="utf-8")
    sys.exit(0 if right == len(rows) else 1)


if __name__ == "__main__":
    main()
