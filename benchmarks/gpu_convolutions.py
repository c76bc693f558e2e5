"""Measure convolutions of models on a GPU: hidet beside cuDNN, channels-last, in CUDA graphs.

python benchmarks/gpu_convolutions.py                                    ResNet-50's layers at batch 1, 8 and 128
python benchmarks/gpu_convolutions.py --models unet --batches 2,8        those of a diffusion U-Net
python benchmarks/gpu_convolutions.py --batches 1 --dtype bf16 --json layers.json
python benchmarks/gpu_convolutions.py --match "512x7"

Both compute a convolution with a bias; hidet, a relu as well, which cuDNN does not have in one call of torch. Each call
of a graph reads other tensors than the one before, more of them than the second-level cache holds. All layers are
compiled before the first one is measured, each by a thread of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
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
    """A convolution of square images of `channels`, `extent` wide, by `filters` filters of `taps` x `taps`."""

    channels: int
    extent: int
    filters: int
    taps: int
    step: int

    def __str__(self) -> str:
        return f"{self.channels}x{self.extent} -> {self.filters} k{self.taps}" + (" s2" if self.step == 2 else "")


def _layers(*numbers: tuple[int, int, int, int, int]) -> tuple[Layer, ...]:
    return tuple(Layer(*each) for each in numbers)


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
}
"""Square layers of models whose convolutions take most of their time; the U-Net is that of Stable Diffusion at 64 x 64
latent pixels."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Median seconds of a call, and the largest difference between both results over the largest result."""

    layer: str
    batch: int
    cudnn: float
    hidet: float
    difference: float


@click.command()
@click.option("--models", callback=names_from(tuple(MODELS)), default="resnet50", show_default=True)
@click.option("--batches", default="1,8,128", show_default=True, help="Images in a call, comma-separated.")
@click.option("--dtype", type=click.Choice(tuple(_DTYPES)), default="f16", show_default=True)
@click.option("--match", default="", help="Only layers whose name contains this.")
@click.option(
    "--seconds", default=0.01, show_default=True, help="Seconds a system's turn takes; there are three turns."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all results there.")
def main(models: tuple[str, ...], batches: str, dtype: str, match: str, seconds: float, json_path: Path | None) -> None:
    """Measure convolutions of models on a GPU: hidet beside cuDNN, in CUDA graphs."""
    if not torch.cuda.is_available():
        raise click.ClickException("torch finds no CUDA device")
    layers = [layer for model in models for layer in MODELS[model]]
    cases = [(layer, batch) for batch in map(int, batches.split(",")) for layer in layers if match in str(layer)]
    if not cases:
        raise click.UsageError(f"no layer has {match!r} in its name: {', '.join(map(str, layers))}")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    console, environment = report_console(), describe_environment()
    console.print(f"{environment['device']['gpu']}, {environment['date']}, {dtype}")
    table = Table()
    for title in ("layer", "batch", "cuDNN us", "hidet us", "cuDNN / hidet", "difference"):
        table.add_column(title, justify="left" if title == "layer" else "right")
    device = torch.device("cuda", torch.cuda.current_device())
    compiled = compile_layers(cases, dtype, device)
    rows: list[LayerTime] = []
    with torch.no_grad():
        for (layer, batch), ours in compiled.items():
            row = measure_layer(layer, batch, ours, _sets(layer, batch, _DTYPES[dtype], device), seconds)
            rows.append(row)
            times = f"{row.cudnn * 1e6:.1f}", f"{row.hidet * 1e6:.1f}", f"{row.cudnn / row.hidet:.2f}"
            table.add_row(row.layer, str(batch), *times, f"{row.difference:.1e}")
    console.print(table)
    mean = statistics.geometric_mean(row.cudnn / row.hidet for row in rows)
    console.print(f"geometric mean of cuDNN / hidet: {mean:.3f} over {len(rows)} layers")
    if json_path is not None:
        results = {"environment": environment, "layers": [asdict(row) for row in rows]}
        json_path.write_text(json.dumps(results, indent=1), encoding="utf-8")


def compile_layers(
    cases: Sequence[tuple[Layer, int]], dtype: str, device: torch.device
) -> Mapping[tuple[Layer, int], CompiledGraph]:
    """Every layer at its batch, compiled at once by as many threads as there are cores."""
    operators = load_registry().operators

    def compiled(case: tuple[Layer, int]) -> CompiledGraph:
        return hidet.compile(parse_graph(graph_text(*case, dtype, device), operators), target="cuda")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(cases, pool.map(compiled, cases), strict=True))


def measure_layer(
    layer: Layer, batch: int, compiled: CompiledGraph, sets: Sequence[tuple[torch.Tensor, ...]], seconds: float
) -> LayerTime:
    """Both systems in turns, on sets of (image, filters, bias)."""
    adapter = DeviceAdapter(sets[0][0].device)
    before = layer.taps // 2

    def peer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, b, stride=layer.step, padding=before)

    def ours(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return compiled.run([x, w, b], adapter)[0]

    expected, result = peer(*sets[0]).relu().double(), ours(*sets[0]).double()
    difference = ((result - expected).abs().max() / expected.abs().max()).item()
    runs = {"cudnn": _captured(peer, sets), "hidet": _captured(ours, sets)}
    times = measure_alternately(runs, seconds, _ROUNDS, pause=0.0, time_turn=time_on_gpu)
    medians = (times[system].median / len(sets) for system in ("cudnn", "hidet"))
    return LayerTime(str(layer), batch, *medians, difference)


def graph_text(layer: Layer, batch: int, dtype: str, device: torch.device) -> str:
    """The layer on channels-last tensors."""
    before = layer.taps // 2
    result = (layer.extent + 2 * before - layer.taps) // layer.step + 1

    def last(count: int, channels: int, extent: int) -> str:
        strides = [channels * extent * extent, 1, extent * channels, channels]
        return f"{dtype}[{count}, {channels}, {extent}, {extent}]{{{', '.join(map(str, strides))}}}@{device}"

    image, weight = last(batch, layer.channels, layer.extent), last(layer.filters, layer.channels, layer.taps)
    bias, out = f"{dtype}[{layer.filters}]@{device}", last(batch, layer.filters, result)
    attributes = f"stride={[layer.step] * 2}, padding={[before] * 2}, dilation=[1, 1], groups=1"
    return f"""graph g(%x: {image}, param %w: {weight}, param %b: {bias}):
  %0: {out} = conv(%x, %w, %b, {attributes})
  %1: {out} = relu(%0)
  return %1
"""


def _sets(layer: Layer, batch: int, dtype: torch.dtype, device: torch.device) -> list[tuple[torch.Tensor, ...]]:
    """Images, filters and biases, as many that all of them do not fit the second-level cache."""

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)

    made: list[tuple[torch.Tensor, ...]] = []
    nbytes = 0
    while len(made) < 2 or (nbytes < 2 * _CACHE_BYTES and len(made) < _MOST_SETS):
        x = random(batch, layer.channels, layer.extent, layer.extent)
        w = random(layer.filters, layer.channels, layer.taps, layer.taps) / (layer.channels * layer.taps**2) ** 0.5
        made.append((x, w, torch.randn(layer.filters, device=device, dtype=dtype)))
        nbytes += x.nbytes + w.nbytes
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
