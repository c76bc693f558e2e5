"""Measure convolutions of models on a GPU: hidet beside cuDNN, in CUDA graphs, images with channels last.

python benchmarks/gpu_convolutions.py                                    ResNet-50's layers at batch 1, 8 and 128
python benchmarks/gpu_convolutions.py --models unet --batches 2,8        those of a diffusion U-Net
python benchmarks/gpu_convolutions.py --models efficientnet,audio        depthwise ones, and those along time
python benchmarks/gpu_convolutions.py --batches 1 --dtype bf16 --json layers.json
python benchmarks/gpu_convolutions.py --match "512x7"
python benchmarks/gpu_convolutions.py --models unet --batches 2 --epilogues relu,time,image,first

Both compute a convolution with a bias; hidet, what follows it as well (`EPILOGUES`), which cuDNN does not have in one
call of torch. Each call of a graph reads other tensors than the one before, more of them than the second-level cache
holds. All layers are compiled before the first one is measured, each by a thread of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import torch
import torch.nn.functional as F
from rich.table import Table

import hidet
from benchmarks.environment import describe_environment
from benchmarks.gpu_timing import time_on_gpu
from benchmarks.options import names_from, report_console
from hidet.cli.timing import measure_alternately
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.runtime.compiled import CompiledGraph
from hidet.torch.tensors import DeviceAdapter

_CACHE_BYTES = 64 << 20
_MOST_SETS = 40
_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of square images of `channels`, `extent` wide, by `filters` filters of `taps` x `taps`; of series
    of that length where `axes` is 1. groups: those that channels and filters are split into."""

    channels: int
    extent: int
    filters: int
    taps: int
    step: int
    groups: int = 1
    axes: int = 2

    def __str__(self) -> str:
        step = f" s{self.step}" if self.step > 1 else ""
        groups = f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.channels}x{self.extent} -> {self.filters} k{self.taps}{step}{groups}{' 1d' * (self.axes == 1)}"


EPILOGUES = {
    "relu": "a relu",
    "time": "a number added for each image and filter, as a diffusion model adds its time step",
    "image": "an image added, as residual networks do",
    "first": "a relu, and a result whose channels lie first",
}
"""What follows a convolution and its bias in hidet's kernels."""


@dataclass(frozen=True, slots=True)
class Case:
    """A layer of `batch` images, and which of `EPILOGUES` follows it."""

    layer: Layer
    batch: int
    epilogue: str

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        layer = self.layer
        extent = (layer.extent + 2 * (layer.taps // 2) - layer.taps) // layer.step + 1
        return self.batch, layer.filters, *[extent] * layer.axes

    @property
    def added(self) -> tuple[int, ...] | None:
        """The shape of what is added to the result; None where nothing is."""
        return {"time": (*self.result[:2], *[1] * self.layer.axes), "image": self.result}.get(self.epilogue)


def _layers(*numbers: tuple[int, ...], axes: int = 2) -> tuple[Layer, ...]:
    return tuple(replace(Layer(*each), axes=axes) for each in numbers)


MODELS: Mapping[str, tuple[Layer, ...]] = {
    "resnet50": _layers(
        (3, 224, 64, 7, 2),
        *((c, e, c, 3, 1) for c, e in ((64, 56), (128, 28), (256, 14), (512, 7))),
        *((c, e, c, 3, 2) for c, e in ((128, 56), (256, 28), (512, 14))),
        *((c, e, 4 * c, 1, 1) for c, e in ((64, 56), (128, 28), (256, 14), (512, 7))),
        *((4 * c, e, c, 1, 1) for c, e in ((64, 56), (128, 28), (256, 14), (512, 7))),
        *((4 * c, e, 8 * c, 1, 2) for c, e in ((64, 56), (128, 28), (256, 14))),
    ),
    "unet": _layers(
        (4, 64, 320, 3, 1),
        *((c, e, c, 3, 1) for c, e in ((320, 64), (640, 32), (1280, 16), (1280, 8))),
        *((c, e, c, 3, 2) for c, e in ((320, 64), (640, 32), (1280, 16))),
        *((c, e, f, 3, 1) for c, e, f in ((320, 32, 640), (640, 16, 1280))),
        *((c, e, f, 3, 1) for c, e, f in ((2560, 8, 1280), (2560, 16, 1280), (1920, 32, 640), (960, 64, 320))),
        *((c, e, f, 1, 1) for c, e, f in ((2560, 16, 1280), (960, 64, 320))),
        (320, 64, 4, 3, 1),
    ),
    "efficientnet": _layers(
        (3, 224, 32, 3, 2),
        *((c, e, c, 3, 1, c) for c, e in ((32, 112), (144, 56), (480, 14))),
        *((c, e, c, 5, 1, c) for c, e in ((240, 28), (672, 14), (1152, 7))),
        *((c, e, c, t, 2, c) for c, e, t in ((96, 112, 3), (144, 56, 5), (672, 14, 5))),
        *((c, e, f, 1, 1) for c, e, f in ((16, 112, 96), (144, 56, 24), (40, 28, 240), (480, 14, 112), (1152, 7, 320))),
    ),
    "audio": _layers(
        (80, 3000, 512, 3, 1),
        (512, 3000, 512, 3, 2),
        (1, 16000, 64, 7, 1),
        (64, 16000, 64, 3, 1),
        (128, 4000, 256, 7, 2),
        (512, 500, 512, 3, 1),
        axes=1,
    ),
}
"""Layers of models whose convolutions take most of their time. The U-Net is that of Stable Diffusion at 64 x 64 latent
pixels; those of audio are of Whisper's encoder and of a codec like EnCodec, along time."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Median seconds of a call, and the largest difference between both results over the largest result."""

    layer: str
    batch: int
    epilogue: str
    cudnn: float
    hidet: float
    difference: float


@click.command()
@click.option("--models", callback=names_from(tuple(MODELS)), default="resnet50", show_default=True)
@click.option("--batches", default="1,8,128", show_default=True, help="Images in a call, comma-separated.")
@click.option("--epilogues", callback=names_from(tuple(EPILOGUES)), default="relu", show_default=True)
@click.option("--dtype", type=click.Choice(tuple(_DTYPES)), default="f16", show_default=True)
@click.option("--match", default="", help="Only layers whose name contains this.")
@click.option(
    "--seconds", default=0.01, show_default=True, help="Seconds a system's turn takes; there are three turns."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(
    models: tuple[str, ...],
    batches: str,
    epilogues: tuple[str, ...],
    dtype: str,
    match: str,
    seconds: float,
    json_path: Path | None,
) -> None:
    """Measure convolutions of models on a GPU: hidet beside cuDNN, in CUDA graphs."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    layers = [layer for model in models for layer in MODELS[model]]
    matching = [layer for layer in layers if match in str(layer)]
    numbers = [int(batch) for batch in batches.split(",")]
    cases = [Case(layer, batch, name) for batch in numbers for layer in matching for name in epilogues]
    if not cases:
        raise click.UsageError(f"no layer has {match!r} in its name: {', '.join(map(str, layers))}")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}, {dtype}")
    table = Table()
    for title in ("layer", "batch", "then", "cuDNN us", "hidet us", "cuDNN / hidet", "difference"):
        table.add_column(title, justify="left" if title in ("layer", "then") else "right")
    device = torch.device("cuda", torch.cuda.current_device())
    compiled = compile_layers(cases, dtype, device)
    rows: list[LayerTime] = []
    with torch.no_grad():
        for case, ours in compiled.items():
            row = measure_layer(case, ours, _sets(case, _DTYPES[dtype], device), seconds)
            rows.append(row)
            times = f"{row.cudnn * 1e6:.1f}", f"{row.hidet * 1e6:.1f}", f"{row.cudnn / row.hidet:.2f}"
            table.add_row(row.layer, str(row.batch), row.epilogue, *times, f"{row.difference:.1e}")
    console.print(table)
    mean = statistics.geometric_mean(row.cudnn / row.hidet for row in rows)
    console.print(f"geometric mean of cuDNN / hidet: {mean:.3f} over {len(rows)} layers")
    if json_path is not None:
        results = {"environment": environment, "layers": [asdict(row) for row in rows]}
        json_path.write_text(json.dumps(results, indent=1), encoding="utf-8")


def compile_layers(cases: Sequence[Case], dtype: str, device: torch.device) -> Mapping[Case, CompiledGraph]:
    """Every case, compiled at once by as many threads as there are cores."""
    operators = load_registry().operators

    def compiled(case: Case) -> CompiledGraph:
        return hidet.compile(parse_graph(graph_text(case, dtype, device), operators), target="cuda")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(cases, pool.map(compiled, cases), strict=True))


def measure_layer(
    case: Case, compiled: CompiledGraph, sets: Sequence[tuple[torch.Tensor, ...]], seconds: float
) -> LayerTime:
    """Both systems in turns, on sets of (image, filters, bias) and what is added."""
    adapter, layer = DeviceAdapter(sets[0][0].device), case.layer
    before = layer.taps // 2

    def peer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *added: torch.Tensor) -> torch.Tensor:
        convolve = F.conv1d if layer.axes == 1 else F.conv2d
        return convolve(x, w, b, stride=layer.step, padding=before, groups=layer.groups)

    def ours(*given: torch.Tensor) -> torch.Tensor:
        return compiled.run(list(given), adapter)[0]

    summed, result = peer(*sets[0]).double(), ours(*sets[0]).double()
    expected = summed.relu() if case.added is None else summed + sets[0][-1].double()
    difference = ((result - expected).abs().max() / expected.abs().max()).item()
    runs = {"cudnn": _captured(peer, sets), "hidet": _captured(ours, sets)}
    times = measure_alternately(runs, seconds, _ROUNDS, pause=0.0, time_turn=time_on_gpu)
    medians = (times[system].median / len(sets) for system in ("cudnn", "hidet"))
    return LayerTime(str(layer), case.batch, case.epilogue, *medians, difference)


def graph_text(case: Case, dtype: str, device: torch.device) -> str:
    """The layer, on images whose channels lie last and on series, and what follows it."""
    layer, before = case.layer, case.layer.taps // 2

    def last(count: int, channels: int, extent: int) -> str:
        if layer.axes == 1:
            return f"{dtype}[{count}, {channels}, {extent}]@{device}"
        strides = [channels * extent * extent, 1, extent * channels, channels]
        return f"{dtype}[{count}, {channels}, {extent}, {extent}]{{{', '.join(map(str, strides))}}}@{device}"

    image = last(case.batch, layer.channels, layer.extent)
    weight = last(layer.filters, layer.channels // layer.groups, layer.taps)
    bias, out = f"{dtype}[{layer.filters}]@{device}", last(*case.result[:3])
    if case.epilogue == "first":
        out = f"{dtype}{list(case.result)}@{device}"
    other = out if case.epilogue == "image" else f"{dtype}{list(case.added or ())}@{device}"
    added = "" if case.added is None else f", %a: {other}"
    follows = "relu(%0)" if case.added is None else "add(%0, %a)"
    stride, padding, dilation = ([number] * layer.axes for number in (layer.step, before, 1))
    attributes = f"stride={stride}, padding={padding}, dilation={dilation}, groups={layer.groups}"
    return f"""graph g(%x: {image}, param %w: {weight}, param %b: {bias}{added}):
  %0: {out} = conv(%x, %w, %b, {attributes})
  %1: {out} = {follows}
  return %1
"""


def _sets(case: Case, dtype: torch.dtype, device: torch.device) -> list[tuple[torch.Tensor, ...]]:
    """Images, filters, biases and what is added, as many that all of them do not fit the second-level cache."""
    layer = case.layer

    def random(*shape: int) -> torch.Tensor:
        order = torch.contiguous_format if layer.axes == 1 else torch.channels_last
        return torch.randn(shape, device=device, dtype=dtype).contiguous(memory_format=order)

    made: list[tuple[torch.Tensor, ...]] = []
    nbytes = 0
    while len(made) < 2 or (nbytes < 2 * _CACHE_BYTES and len(made) < _MOST_SETS):
        x = random(case.batch, layer.channels, *[layer.extent] * layer.axes)
        seen = layer.channels // layer.groups
        w = random(layer.filters, seen, *[layer.taps] * layer.axes) / (seen * layer.taps**layer.axes) ** 0.5
        added = () if case.added is None else (random(*case.added),)
        made.append((x, w, torch.randn(layer.filters, device=device, dtype=dtype), *added))
        nbytes += sum(tensor.nbytes for tensor in made[-1])
    return made


def _captured(run: Callable[..., torch.Tensor], sets: Sequence[tuple[torch.Tensor, ...]]) -> Callable[[], None]:
    """A CUDA graph that runs through all sets; what is prepared of filters is prepared before."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for tensors in sets:
            run(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for tensors in sets:
            run(*tensors)
    return graph.replay


if __name__ == "__main__":
    main()
