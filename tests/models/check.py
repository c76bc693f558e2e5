"""Compile models of the zoo and say whether they are right.

python -m tests.models.check                                             every model in float32 on the CPU
python -m tests.models.check --device cuda --dtypes f16,bf16,f32 --models resnet18,bert
"""

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import ml_dtypes
import numpy as np
import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from hidet.testing.numerics import Sample, Verdict, check_output

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
    """

    name: str
    dtype: str
    backend: str
    verdicts: tuple[Verdict, ...]
    counts: NodeCounts | None
    compile_seconds: float
    run_seconds: float
    device: str = "cpu"

    @property
    def numbers_correct(self) -> bool:
        """Whether every output is right."""
        return all(verdict.correct for verdict in self.verdicts)

    @property
    def correct(self) -> bool:
        """Whether every output is right and no node runs where it should not."""
        return self.numbers_correct and (self.counts is None or self.counts.complaint is None)

    def __str__(self) -> str:
        lines = [
            f"{self.name} {self.dtype} by {self.backend} on {self.device}: {'correct' if self.correct else 'WRONG'}"
            f" (first call {self.compile_seconds:.1f} s, then {self.run_seconds * 1e3:.1f} ms)"
        ]
        lines += [f"  {verdict}" for verdict in self.verdicts]
        if self.counts is not None:
            lines.append(f"  {self.counts}")
            if self.counts.complaint is not None:
                lines.append(f"  against the rules: {self.counts.complaint}")
        return "\n".join(lines)


def check_model(
    name: str, dtype: torch.dtype = torch.float32, backend: str = "hidet", device: str = "cpu"
) -> ModelReport:
    """Compile the zoo's model `name` and compare it with eager and with float64 over three seeds.

    dtype: of weights and floating inputs. backend: any that torch.compile knows. device: where model, eager and
    reference run. The model is compiled whole (`fullgraph=True`) and once, on the first seed's inputs. Raises KeyError
    for an unknown name and what the backend raises.
    """
    return check_module(MODELS[name], dtype, backend, device)


def check_module(
    entry: ZooModel, dtype: torch.dtype, backend: str | Callable[..., Any], device: str = "cpu"
) -> ModelReport:
    """Do what `check_model` does for an entry that need not be in the zoo; `backend` may be a function too."""
    model = entry.build().to(device, dtype)
    batches = [_cast(entry.inputs(seed), dtype, device) for seed in SEEDS]
    # The yardstick for float32 is eager in float32: by default torch lets convolutions on a GPU round to tf32.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        eager = [_run(model, inputs) for inputs in batches]
        references = [_flatten(run_reference(model, inputs)) for inputs in batches]

    is_hidet = backend == "hidet"
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
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
        verdicts=_judge(ours, eager, references),
        counts=sum_counts(reports) if is_hidet else None,
        compile_seconds=seconds[0],
        run_seconds=min(seconds[1:]),
        device=device,
    )


def _cast(inputs: Inputs, dtype: torch.dtype, device: str) -> Inputs:
    moved = {name: value.to(device) for name, value in inputs.items()}
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in moved.items()}


def _run(model: Callable[..., Any] | nn.Module, inputs: Inputs) -> Mapping[str, torch.Tensor]:
    with torch.no_grad():
        return _flatten(model(**inputs))


def _flatten(result: Any) -> Mapping[str, torch.Tensor]:
    """Name every tensor in a model's result by its path in it."""
    leaves, _ = tree_flatten_with_path(result)
    return {keystr(path) or "output": leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def _judge(
    ours: Sequence[Mapping[str, torch.Tensor]],
    eager: Sequence[Mapping[str, torch.Tensor]],
    references: Sequence[Mapping[str, torch.Tensor]],
) -> tuple[Verdict, ...]:
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


@click.command()
@click.option("--models", callback=_names(tuple(MODELS)), default=",".join(MODELS), help="Names, comma-separated.")
@click.option("--dtypes", callback=_names(tuple(DTYPES)), default="f32", show_default=True)
@click.option("--device", default="cpu", show_default=True, help="Where model, eager and reference run.")
@click.option("--backend", default="hidet", show_default=True)
def main(models: list[str], dtypes: list[str], device: str, backend: str) -> None:
    """Check models of the zoo, print a line each and the sum; the exit status is 1 when one is not right."""
    warnings.simplefilter("ignore")
    right, total = 0, 0
    for name in models:
        for dtype in dtypes:
            total += 1
            try:
                report = check_model(name, DTYPES[dtype], backend, device)
            except Exception as error:  # noqa: BLE001 - a model that fails is a line of the output, not its end
                first_line = next(iter(str(error).strip().splitlines()), "")
                click.echo(f"{name} {dtype} on {device}: FAILED: {type(error).__name__}: {first_line[:300]}")
                continue
            right += report.correct
            click.echo(str(report))
    click.echo(f"{right} of {total} right by {backend} on {device}")
    sys.exit(0 if right == total else 1)


if __name__ == "__main__":
    main()
