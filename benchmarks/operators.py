"""The operators that are measured one by one: the shapes that the benchmark models spend their time in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCase:
    """One row: `build()` gives a module in eval mode and its positional inputs, all float32 unless they are indices.

    group: what `--groups` selects. flops: two for each multiply-add of the operator itself; 0 for operators whose limit
    is memory. moved: bytes of inputs, weights and outputs, each once.
    """

    name: str
    group: str
    build: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
    flops: int
    moved: int


class Function(nn.Module):
    """A function as a module, since that is what the compilers take."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(*inputs)


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _linear(m: int, n: int, k: int, activation: nn.Module | None = None) -> tuple[nn.Module, tuple[Tensor, ...]]:
    layer = nn.Linear(k, n)
    return nn.Sequential(layer, activation) if activation is not None else layer, (_random(m, k),)


def _linear_case(model: str, m: int, n: int, k: int, activation: nn.Module | None = None) -> OperatorCase:
    tail = f" {type(activation).__name__.lower()}" if activation is not None else ""
    return OperatorCase(
        name=f"linear {m}x{n}x{k}{tail} ({model})",
        group="linear",
        build=partial(_linear, m, n, k, activation),
        flops=2 * m * n * k,
        moved=4 * (m * k + n * k + n + m * n),
    )


def _function_case(
    name: str, group: str, function: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...], flops: int, out: int
) -> OperatorCase:
    def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
        return Function(function), tuple(_random(*shape) for shape in shapes)

    moved = 4 * (sum(torch.Size(shape).numel() for shape in shapes) + out)
    return OperatorCase(name=name, group=group, build=build, flops=flops, moved=moved)


def _matmul_case(batch: int, m: int, n: int, k: int) -> OperatorCase:
    name = f"matmul {f'{batch}x' if batch > 1 else ''}{m}x{n}x{k}"
    shapes = ((batch, m, k), (batch, k, n)) if batch > 1 else ((m, k), (k, n))
    return _function_case(name, "matmul", torch.matmul, shapes, 2 * batch * m * n * k, batch * m * n)


def _conv(
    channels: int, size: int, filters: int, kernel: int, stride: int, groups: int, activation: nn.Module
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    layer = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups)
    return nn.Sequential(layer, activation), (_random(1, channels, size, size),)


def _conv_case(
    model: str,
    channels: int,
    size: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    *,
    depthwise: bool = False,
    activation: nn.Module,
) -> OperatorCase:
    groups = channels if depthwise else 1
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    weights = filters * (channels // groups) * kernel * kernel
    kind = "depthwise" if depthwise else "conv"
    tail = "" if isinstance(activation, nn.Identity) else f" {type(activation).__name__.lower()}"
    return OperatorCase(
        name=f"{kind} {channels}x{size} -> {filters} k{kernel}s{stride}{tail} ({model})",
        group=kind,
        build=partial(_conv, channels, size, filters, kernel, stride, groups, activation),
        flops=2 * out * out * weights,
        moved=4 * (channels * size * size + weights + filters + filters * out * out),
    )


def _attention_case(model: str, heads: int, length: int, width: int, causal: bool = False) -> OperatorCase:
    shape = (1, heads, length, width)
    flops = 4 * heads * length * length * width // (2 if causal else 1)
    function = partial(functional.scaled_dot_product_attention, is_causal=causal)
    name = f"attention {heads}x{length}x{width}{' causal' if causal else ''} ({model})"
    return _function_case(name, "attention", function, (shape, shape, shape), flops, heads * length * width)


def _layer_norm_case(rows: int, columns: int) -> OperatorCase:
    def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
        return nn.LayerNorm(columns), (_random(rows, columns),)

    moved = 4 * (2 * rows * columns + 2 * columns)
    return OperatorCase(name=f"layer_norm {rows}x{columns}", group="row", build=build, flops=0, moved=moved)


def _add_layer_norm(x: Tensor, y: Tensor) -> Tensor:
    return functional.layer_norm(x + y, x.shape[-1:])


def _rows() -> Iterator[OperatorCase]:
    for rows, columns in ((1536, 128), (128, 768), (1024, 1024), (1, 50257)):
        softmax = partial(torch.softmax, dim=-1)
        size = rows * columns
        yield _function_case(f"softmax {rows}x{columns}", "row", softmax, ((rows, columns),), 0, size)
    yield _layer_norm_case(128, 768)
    yield _layer_norm_case(128, 384)
    yield _function_case("add, layer_norm 128x768", "row", _add_layer_norm, ((128, 768), (128, 768)), 0, 128 * 768)
    mean = partial(torch.mean, dim=(2, 3))
    yield _function_case("mean 2048x7x7 (resnet50)", "row", mean, ((1, 2048, 7, 7),), 0, 2048)


def _element_wise() -> Iterator[OperatorCase]:
    shape = (128, 3072)
    size = 128 * 3072
    tanh_gelu = partial(functional.gelu, approximate="tanh")
    yield _function_case("gelu 128x3072", "element-wise", functional.gelu, (shape,), 0, size)
    yield _function_case("gelu tanh 128x3072", "element-wise", tanh_gelu, (shape,), 0, size)
    yield _function_case("silu 128x3072", "element-wise", functional.silu, (shape,), 0, size)
    yield _function_case("add 128x3072", "element-wise", torch.add, (shape, shape), 0, size)
    image = (1, 256, 56, 56)
    pixels = 256 * 56 * 56
    yield _function_case("add, relu 256x56x56", "element-wise", _add_relu, (image, image), 0, pixels)
    yield _function_case("transpose 768x3072", "element-wise", _transposed, ((768, 3072),), 0, 768 * 3072)


def _add_relu(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x + y)


def _transposed(x: Tensor) -> Tensor:
    return x.t().contiguous()


def _pools() -> Iterator[OperatorCase]:
    pool = partial(functional.max_pool2d, kernel_size=3, stride=2, padding=1)
    stem = (1, 64, 112, 112)
    yield _function_case("max_pool 64x112 k3s2 (resnet50)", "pool", pool, (stem,), 0, 64 * 56 * 56)
    average = partial(functional.avg_pool2d, kernel_size=2)
    yield _function_case("avg_pool 128x56 k2", "pool", average, ((1, 128, 56, 56),), 0, 128 * 28 * 28)


def _cases() -> Iterator[OperatorCase]:
    for model, width in (("minilm", 384), ("bert, gpt2", 768)):
        yield _linear_case(model, 128, width, width)
        yield _linear_case(model, 128, 4 * width, width, nn.GELU())
        yield _linear_case(model, 128, width, 4 * width)
    yield _linear_case("gpt2", 128, 2304, 768)
    yield _linear_case("gpt2", 128, 50257, 768)
    yield _linear_case("gpt2 decode", 1, 2304, 768)
    yield _linear_case("gpt2 decode", 1, 768, 3072)
    yield _linear_case("resnet50", 1, 1000, 2048)
    yield _linear_case("16 rows", 16, 768, 768)
    yield from (_matmul_case(*sizes) for sizes in ((1, 512, 512, 512), (1, 1024, 1024, 1024), (1, 333, 777, 555)))
    yield from (_matmul_case(*sizes) for sizes in ((12, 128, 128, 64), (12, 128, 64, 128)))
    relu, relu6, no_activation = nn.ReLU(), nn.ReLU6(), nn.Identity()
    yield _conv_case("resnet50", 3, 224, 64, 7, 2, activation=relu)
    for channels, size, filters, kernel, stride in (
        (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (256, 56, 512, 1, 2),
        (128, 56, 128, 3, 2), (128, 28, 128, 3, 1), (128, 28, 512, 1, 1), (256, 14, 256, 3, 1), (1024, 14, 256, 1, 1),
        (512, 7, 512, 3, 1), (512, 7, 2048, 1, 1),
    ):  # fmt: skip
        yield _conv_case("resnet50", channels, size, filters, kernel, stride, activation=relu)
    for channels, size, filters in (
        (32, 112, 16),
        (16, 112, 96),
        (144, 28, 32),
        (96, 14, 576),
        (960, 7, 320),
        (320, 7, 1280),
    ):
        yield _conv_case("mobilenet_v2", channels, size, filters, 1, activation=no_activation)
    for channels, size, stride in (
        (32, 112, 1),
        (96, 112, 2),
        (144, 56, 1),
        (192, 28, 1),
        (384, 14, 1),
        (576, 14, 2),
        (960, 7, 1),
    ):
        yield _conv_case("mobilenet_v2", channels, size, channels, 3, stride, depthwise=True, activation=relu6)
    yield _attention_case("minilm", 12, 128, 32)
    yield _attention_case("bert", 12, 128, 64)
    yield _attention_case("gpt2", 12, 128, 64, causal=True)
    yield _attention_case("long", 12, 1024, 64)
    yield from _rows()
    yield from _element_wise()
    yield from _pools()


OPERATORS: Mapping[str, OperatorCase] = MappingProxyType({case.name: case for case in _cases()})
"""All rows by name, in the order in which they are printed."""

GROUPS = tuple(dict.fromkeys(case.group for case in OPERATORS.values()))
"""What `--groups` can name."""
