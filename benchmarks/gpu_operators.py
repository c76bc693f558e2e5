"""The operators that are measured one by one on a GPU: those whose limit is memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.operators import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOperator:
    """One row: a module in f32 and eval mode, and its only input.

    group: what `--groups` selects. memory: the order of the input's axes.
    """

    name: str
    group: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dtype: torch.dtype
    memory: torch.memory_format = torch.contiguous_format

    def input(self, seed: int) -> Tensor:
        """Random elements on the device."""
        generator = torch.Generator(device="cuda").manual_seed(seed)
        drawn = torch.randn(self.shape, generator=generator, device="cuda").to(self.dtype)
        return drawn.contiguous(memory_format=self.memory)


def _function(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return partial(Function, function)


_ROWS: Mapping[str, Callable[[int], nn.Module]] = {
    # The yardstick: as many bytes, and nothing to wait for.
    "relu": lambda columns: nn.ReLU(),
    "softmax": lambda columns: nn.Softmax(-1),
    "layer_norm": nn.LayerNorm,
    "rms_norm": partial(nn.RMSNorm, eps=1e-6),
    "sum": lambda columns: Function(lambda x: x.sum(-1)),
}
_FOLDS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean of all": lambda x: x.mean(),
    "sum of columns": lambda x: x.sum(0),
    "variance of columns": lambda x: x.var(0),
}
_ORDERED: Mapping[str, Callable[[Tensor], Tensor]] = {
    "running sum": lambda x: x.cumsum(-1),
    "running sum of columns": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(-1)[0],
    "50 largest": lambda x: x.topk(50)[0],
}
_CHAINS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "row times row": lambda x: x * x[:1],
    "transpose": lambda x: x.t().contiguous(),
}
_POOLS: Mapping[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "max_pool 3 / 2": (lambda x: F.max_pool2d(x, 3, 2, 1), (8, 64, 112, 112)),
    "avg_pool 3": (lambda x: F.avg_pool2d(x, 3, 1, 1), (8, 192, 35, 35)),
    "average": (lambda x: F.adaptive_avg_pool2d(x, 1), (32, 1280, 7, 7)),
    "group_norm 32": (lambda x: F.group_norm(x, 32), (8, 320, 64, 64)),
}
_DEPTHWISE = ((32, 112, 1), (96, 112, 2), (144, 56, 1), (384, 14, 1), (960, 7, 1))


def _cases() -> Iterator[GpuOperator]:
    for shape in ((4096, 4096), (16384, 1024), (1024, 32768), (128, 768), (1, 128256)):
        for name, make in _ROWS.items():
            yield GpuOperator(
                name=f"{name} {shape[0]}x{shape[1]}",
                group="rows",
                build=partial(make, shape[1]),
                shape=shape,
                dtype=torch.bfloat16,
            )
    for shape in ((4096, 4096), (100352, 64)):
        for name, fold in _FOLDS.items():
            yield GpuOperator(
                name=f"{name} {shape[0]}x{shape[1]}",
                group="folds",
                build=_function(fold),
                shape=shape,
                dtype=torch.bfloat16,
            )
    for shape in ((4096, 4096), (64, 128256), (1, 1048576), (128, 768), (8192, 64)):
        for name, ordered in _ORDERED.items():
            yield GpuOperator(
                name=f"{name} {shape[0]}x{shape[1]}",
                group="ordered",
                build=_function(ordered),
                shape=shape,
                dtype=torch.float32,
            )
    for name, chain in _CHAINS.items():
        yield GpuOperator(
            name=f"{name} 4096x4096", group="chains", build=_function(chain), shape=(4096, 4096), dtype=torch.bfloat16
        )
    for name, (pool, shape) in _POOLS.items():
        yield GpuOperator(
            name=f"{name} {'x'.join(map(str, shape))}",
            group="images",
            build=_function(pool),
            shape=shape,
            dtype=torch.float16,
            memory=torch.channels_last,
        )
    for batch in (1, 32):
        for channels, size, stride in _DEPTHWISE:
            yield GpuOperator(
                name=f"depthwise 3 / {stride} {batch}x{channels}x{size}x{size}",
                group="depthwise",
                build=partial(nn.Conv2d, channels, channels, 3, stride, 1, groups=channels),
                shape=(batch, channels, size, size),
                dtype=torch.float16,
                memory=torch.channels_last,
            )


GPU_OPERATORS: Mapping[str, GpuOperator] = MappingProxyType({case.name: case for case in _cases()})
"""The operators by name."""

GROUPS = tuple(dict.fromkeys(case.group for case in GPU_OPERATORS.values()))
"""What `--groups` knows."""
