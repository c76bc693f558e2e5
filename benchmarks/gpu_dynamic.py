"""Measure builds with symbolic sizes beside builds for each size, on a GPU: one artifact has to do what many do.

python benchmarks/gpu_dynamic.py                                     all sweeps, about five minutes
python benchmarks/gpu_dynamic.py --sweeps bert --sizes 20            twenty seeded sizes of one of them
python benchmarks/gpu_dynamic.py --sizes 20 --peer --ahead 8         Inductor's builds for each size as well
python benchmarks/gpu_dynamic.py --kernels                           kernels alone as well, without the host
python benchmarks/gpu_dynamic.py --layers 1.1                        kernels of both builds where the ratio is above 1.1

A symbolic build sees its sizes one after the other and must not compile again. Results are held against eager mode.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.ahead import run_ahead
from benchmarks.environment import describe_environment
from benchmarks.gpu_layers import print_kernels, profile_kernels
from benchmarks.gpu_rows import GPU_MODELS, build_on_gpu
from benchmarks.gpu_timing import time_on_gpu
from benchmarks.llama_layers import llama_inputs
from benchmarks.options import names_from, report_console
from benchmarks.results import geometric_mean
from hidet.cli.timing import measure_alternately
from hidet.runtime.compiled import CompileReport
from tests.models.compile_reports import collected_reports
from tests.models.entry import Inputs, seeded

Size = tuple[int, ...]
_SEED = 20
_ROUNDS = 3
_LIMIT = 300.0
"""Seconds until the builds for a size have to be made ahead."""
_FARTHEST = 0.02
"""Root mean square of what differs from eager mode, beside that of eager's results: halves of deep models differ so."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A model and sizes of its inputs. model: its name in `GPU_MODELS`. make: inputs by name for a size, on the host,
    floats in f32. axes: by the name of an input, those that are symbolic. first: sizes that are always measured; drawn:
    a size from a generator. dtype: of weights and floating inputs."""

    model: str
    make: Callable[[Size], Inputs]
    axes: Mapping[str, tuple[int, ...]]
    first: tuple[Size, ...]
    drawn: Callable[[random.Random], Size]
    dtype: torch.dtype = torch.float16

    def inputs(self, size: Size) -> Inputs:
        """Inputs on the GPU."""
        made = self.make(size)
        return {
            name: value.to("cuda", self.dtype if value.is_floating_point() else value.dtype)
            for name, value in made.items()
        }

    def symbolic_inputs(self, size: Size) -> Inputs:
        """Inputs on the GPU whose axes dynamo takes for symbolic."""
        made = self.inputs(size)
        for name, axes in self.axes.items():
            for axis in axes:
                torch._dynamo.mark_dynamic(made[name], axis)
        return made

    def sizes(self, count: int) -> list[Size]:
        """The first sizes, and as many drawn ones as are missing to `count`."""
        generator = random.Random(_SEED)
        return [*self.first, *(self.drawn(generator) for _ in range(count - len(self.first)))][:count]


def _images(size: Size) -> Inputs:
    batch, height, width = size
    return {"x": torch.randn(batch, 3, height, width, generator=seeded(0))}


def _tokens(size: Size) -> Inputs:
    return {"input_ids": torch.randint(3, 30522, size, generator=seeded(0))}


def _prompts(size: Size) -> Inputs:
    batch, length = size
    return llama_inputs(batch, length=length, past=0)


def _steps(size: Size) -> Inputs:
    batch, past = size
    return llama_inputs(batch, length=1, past=past)


SWEEPS: Mapping[str, Sweep] = MappingProxyType(
    {
        "resnet50": Sweep(
            "resnet50",
            _images,
            {"x": (0, 2, 3)},
            ((8, 224, 224), (2, 224, 224), (100, 224, 224), (5, 187, 251)),
            lambda g: (g.randint(2, 64), g.randint(128, 320), g.randint(128, 320)),
        ),
        "resnet50-batch": Sweep(
            "resnet50",
            _images,
            {"x": (0,)},
            ((8, 224, 224), (48, 224, 224)),
            lambda g: (g.randint(2, 128), 224, 224),
        ),
        "bert": Sweep(
            "bert-base",
            _tokens,
            {"input_ids": (0, 1)},
            ((8, 384), (2, 7), (5, 77), (16, 128), (32, 64)),
            lambda g: (g.randint(2, 32), g.randint(2, 512)),
        ),
        "llama-prefill": Sweep(
            "llama-prefill",
            _prompts,
            {"tokens": (1,), "cosine": (0,), "sine": (0,)},
            ((1, 777), (1, 33), (1, 2048)),
            lambda g: (1, g.randint(2, 4096)),
            torch.bfloat16,
        ),
        "llama-decode": Sweep(
            "llama-decode",
            _steps,
            {"tokens": (0,), "keys": (0, 2), "values": (0, 2)},
            ((8, 2000), (2, 100), (32, 1024)),
            lambda g: (g.randint(2, 64), g.randint(2, 4096)),
            torch.bfloat16,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class DynamicRow:
    """A size: seconds of the symbolic build and of the one for this size, and how far the first is from eager mode.
    graphs: how many the symbolic build had compiled so far. peer: seconds of Inductor's build for this size; kernels:
    of all kernels of the symbolic build and of the other; None where they were not asked for."""

    sweep: str
    size: Size
    symbolic: float
    known: float
    error: float
    graphs: int
    peer: float | None = None
    kernels: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        """Time of the symbolic build beside that of the other."""
        return self.symbolic / self.known

    @property
    def ratio_of_peer(self) -> float | None:
        """Time of the symbolic build beside that of the peer's."""
        return None if self.peer is None else self.symbolic / self.peer

    @property
    def ratio_of_kernels(self) -> float | None:
        """`ratio` of the kernels alone."""
        return None if self.kernels is None else self.kernels[0] / self.kernels[1]


@click.command()
@click.option("--sweeps", callback=names_from(tuple(SWEEPS)), default=",".join(SWEEPS), show_default=True)
@click.option("--sizes", default=0, help="Sizes of each sweep; 0 is those that are always measured.")
@click.option("--seconds", default=0.15, show_default=True, help="Seconds of a turn; there are three turns.")
@click.option("--peer", is_flag=True, help="Measure Inductor's build for each size as well.")
@click.option("--ahead", default=0, help="Processes that make builds for sizes before they are measured; 0: none.")
@click.option("--only", default=-1, help="Make the builds for the size of this number, and measure nothing; -1: no.")
@click.option("--kernels", is_flag=True, help="Measure sums of kernels by torch's profiler as well.")
@click.option("--layers", default=0.0, help="Ratio above which the slowest kernels of both builds are printed.")
@click.option("--most", default=6, show_default=True, help="Kernels that --layers prints.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(
    sweeps: tuple[str, ...],
    sizes: int,
    seconds: float,
    peer: bool,
    ahead: int,
    only: int,
    kernels: bool,
    layers: float,
    most: int,
    json_path: Path | None,
) -> None:
    """Measure builds with symbolic sizes beside builds for each size."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = 1000
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}")
    chosen = {name: SWEEPS[name].sizes(sizes or len(SWEEPS[name].first)) for name in sweeps}
    if only >= min(map(len, chosen.values())):
        raise click.BadParameter(f"{only} is the number of no size", param_hint="--only")
    if only >= 0:
        for name, found in chosen.items():
            _compile(SWEEPS[name], found[only], only == 0, peer)
        return
    if ahead:
        fixed = [__file__, "--sizes", str(sizes), *(["--peer"] if peer else [])]
        alone = [
            ([*fixed, "--sweeps", name, "--only", str(number)], {})
            for name in sweeps
            for number in range(len(chosen[name]))
        ]
        run_ahead(console, alone, ahead, _LIMIT)
    rows: list[DynamicRow] = []
    asked = _Asked(seconds, peer, kernels, layers, most)
    for name, found in chosen.items():
        rows += _measure(console, name, found, asked)
        print_rows(console, rows)
        if json_path is not None:
            written = {**environment, "dynamic": [asdict(row) for row in rows]}
            json_path.write_text(json.dumps(written, indent=1), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is measured, by the names of the command's options."""

    seconds: float
    peer: bool
    kernels: bool
    layers: float
    most: int


def _measure(console: Console, name: str, sizes: Sequence[Size], asked: _Asked) -> list[DynamicRow]:
    sweep = SWEEPS[name]
    model = build_on_gpu(GPU_MODELS[sweep.model], sweep.dtype)
    rows: list[DynamicRow] = []
    with torch.no_grad(), collected_reports() as reports:
        symbolic = torch.compile(model, backend="hidet", mode="reduce-overhead")
        symbolic_reports: list[CompileReport] = []
        for size in sizes:
            inputs = sweep.symbolic_inputs(size)
            seen, start = len(reports), time.perf_counter()
            error = _distance(symbolic(**inputs), model(**inputs))
            symbolic_reports += reports[seen:]
            if seen < len(reports):
                console.print(f"{name} {size}: compiled in {time.perf_counter() - start:.1f} s")
            seen = len(reports)
            # A build of its own for the size: dynamo tells compiled functions of one module apart by their backends.
            plain = sweep.inputs(size)
            builds: dict[str, Callable[[], object]] = {"symbolic": partial(symbolic, **inputs)}
            builds |= _builds_for(model, plain, asked.peer)
            found = measure_alternately(builds, asked.seconds, _ROUNDS, time_turn=time_on_gpu)
            medians = {what: result.median for what, result in found.items()}
            line = ", ".join(f"{what} {median * 1e3:.3f}" for what, median in medians.items())
            console.print(f"{name} {size}: {line} ms")
            is_explained = bool(asked.layers) and medians["symbolic"] > asked.layers * medians["known"]
            used = {"symbolic": symbolic_reports, "known": reports[seen:]}
            kernels: dict[str, float] = {}
            for what in used if asked.kernels or is_explained else ():
                times = profile_kernels(builds[what], used[what])
                kernels[what] = sum(each.seconds for each in times)
                if is_explained:
                    print_kernels(console, f"{name} {size} {what}", times, asked.most)
            rows.append(
                DynamicRow(
                    name,
                    size,
                    medians["symbolic"],
                    medians["known"],
                    error,
                    len(symbolic_reports),
                    medians.get("inductor"),
                    (kernels["symbolic"], kernels["known"]) if kernels else None,
                )
            )
            del builds
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    return rows


def _builds_for(model: nn.Module, inputs: Inputs, peer: bool) -> dict[str, Callable[[], object]]:
    """Builds for the sizes of `inputs`, which have run: "known", and "inductor" where a peer is asked for."""
    backends = {"known": "hidet", **({"inductor": "inductor"} if peer else {})}
    builds: dict[str, Callable[[], object]] = {}
    for what, backend in backends.items():
        compiled = torch.compile(model, backend=backend, mode="reduce-overhead", dynamic=False)
        compiled(**inputs)
        builds[what] = partial(compiled, **inputs)
    return builds


def _compile(sweep: Sweep, size: Size, is_symbolic: bool, peer: bool) -> None:
    """Make the builds for a size, and the symbolic one where that is asked for: they are in the caches then."""
    model = build_on_gpu(GPU_MODELS[sweep.model], sweep.dtype)
    with torch.no_grad():
        if is_symbolic:
            torch.compile(model, backend="hidet", mode="reduce-overhead")(**sweep.symbolic_inputs(size))
        _builds_for(model, sweep.inputs(size), peer)


def _distance(found: torch.Tensor, right: torch.Tensor) -> float:
    """Root mean square of the difference, beside that of what is right."""
    difference = (found.double() - right.double()).square().mean().sqrt()
    return float(difference / right.double().square().mean().sqrt())


def print_rows(console: Console, rows: Sequence[DynamicRow]) -> None:
    """A line a size, and the geometric mean of the ratios of each sweep."""
    table = Table()
    headings = ("sweep", "size", "symbolic ms", "known ms", "ratio", "kernels us", "ratio", "inductor ms", "ratio")
    for heading in (*headings, "graphs", "beside eager"):
        table.add_column(heading, justify="left" if heading == "sweep" else "right")
    for row in rows:
        kernels = "-" if row.kernels is None else ", ".join(f"{seconds * 1e6:.0f}" for seconds in row.kernels)
        peer = "-" if row.peer is None else f"{row.peer * 1e3:.3f}"
        times = (f"{row.symbolic * 1e3:.3f}", f"{row.known * 1e3:.3f}", f"{row.ratio:.2f}")
        others = (kernels, _ratio(row.ratio_of_kernels), peer, _ratio(row.ratio_of_peer))
        error = f"{row.error:.1e}" if row.error <= _FARTHEST else f"WRONG {row.error:.1e}"
        table.add_row(row.sweep, "x".join(map(str, row.size)), *times, *others, str(row.graphs), error)
    console.print(table)
    for name in dict.fromkeys(row.sweep for row in rows):
        measured = [row for row in rows if row.sweep == name]
        _print_ratios(console, name, [row.ratio for row in measured])
        _print_ratios(console, f"kernels of {name}", [row.ratio_of_kernels for row in measured])
        _print_ratios(console, f"{name} beside Inductor", [row.ratio_of_peer for row in measured])


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _print_ratios(console: Console, what: str, ratios: Sequence[float | None]) -> None:
    """A line, unless none was measured."""
    found = [ratio for ratio in ratios if ratio is not None]
    if found:
        console.print(
            f"{what}: geometric mean {geometric_mean(found):.3f}, worst {max(found):.2f} of {len(found)} sizes"
        )


if __name__ == "__main__":
    main()
