"""Models of f32 compute in 16 bits where scripts ask for it, as near to f32 as the tutorial of hidet 0.6 says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hidet
from hidet.torch import dynamo_config


class Block(nn.Module):
    """A residual block of ResNet."""

    def __init__(self, channels: int, results: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, results, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(results, results, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(results) for _ in range(3)])
        self.short = nn.Conv2d(channels, results, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        return (y + self.norms[2](self.short(x))).relu()


def resnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Images to classes; its batch norms have seen images."""
    layers = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1)]
    model = nn.Sequential(*layers, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(8, 3, 64, 64))
    return model, (torch.randn(2, 3, 64, 64),)


class Bert(nn.Module):
    """Tokens and a mask to two classes."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(100, width), nn.Embedding(32, width)
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(6 * layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers)])
        self.classes = nn.Linear(width, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))
        lowered = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for number in range(len(self.norms) // 2):
            q, k, v, out, up, down = self.layers[6 * number : 6 * number + 6]
            q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
            scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + lowered
            x = self.norms[2 * number](x + out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)))
            x = self.norms[2 * number + 1](x + down(nn.functional.gelu(up(x))))
        return self.classes(x.mean(1)).log_softmax(-1)


def bert() -> tuple[nn.Module, tuple[Tensor, ...]]:
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    return Bert(), (torch.randint(100, (2, 16)), mask)


MODELS = {"resnet": resnet, "bert": bert}


@pytest.fixture(autouse=True)
def _own_settings():
    torch._dynamo.reset()
    dynamo_config.reset()
    torch.manual_seed(0)
    with hidet.option.context():
        yield
    dynamo_config.reset()


def types_of_products(folder: Path) -> set[str]:
    """The types of the results of all products, convolutions and attention, after the passes."""
    (text,) = [path.read_text() for path in folder.rglob("*_compat-convert-precision.hir")]
    names = (" = linear(", " = matmul(", " = conv(", " = attention(")
    return {line.split(": ")[1].partition("[")[0] for line in text.splitlines() if any(map(line.__contains__, names))}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.thorough(every=2)
def test_models_are_within_a_hundredth_where_sums_are_of_f32(name: str, frozen: bool, tmp_path: Path) -> None:
    make: Any = MODELS[name]
    model, inputs = make()
    model.eval()
    dynamo_config.use_fp16().steal_weights(frozen).dump_graph_ir(tmp_path)
    with torch.no_grad():
        expected, given = model(*inputs), torch.compile(model, backend="hidet")(*inputs)
    assert given.dtype == torch.float32
    assert types_of_products(tmp_path) == {"f16"}
    torch.testing.assert_close(given, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_within_two_hundredths_whatever_is_asked_for(name: str) -> None:
    make: Any = MODELS[name]
    model, inputs = make()
    model.eval()
    dynamo_config.use_fp16().use_fp16_reduction().use_attention(False).parallel_k("disabled")
    with torch.no_grad():
        expected, given = model(*inputs), torch.compile(model, backend="hidet")(*inputs)
    torch.testing.assert_close(given, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.thorough(every=2)
def test_bfloat16_is_another_choice(frozen: bool, tmp_path: Path) -> None:
    model, inputs = resnet()
    model.eval()
    options = {"compat.precision": "bfloat16", "freeze": frozen, "dump": tmp_path}
    with torch.no_grad():
        expected, given = model(*inputs), torch.compile(model, backend="hidet", options=options)(*inputs)
    assert types_of_products(tmp_path) == {"bf16"}
    torch.testing.assert_close(given, expected, rtol=5e-2, atol=5e-2)


def test_flow_graphs_are_converted_in_the_block_of_a_context() -> None:
    x, w = hidet.randn([4, 16]), hidet.randn([16, 16])
    symbol = hidet.symbol_like(x)
    graph = hidet.trace_from(hidet.ops.softmax(hidet.ops.matmul(symbol, w), 1))
    with hidet.graph.PassContext() as context:
        context.set_precision("float16").set_reduce_precision("float16")
        converted = hidet.graph.optimize(graph)
    assert "x_2: float16[4, 16][cpu] = CpuLinearPacked(x_1, c" in str(converted)
    assert "float16" not in str(hidet.graph.optimize(graph)), "behind the block nothing is converted"
    torch.testing.assert_close(converted(x).torch(), graph(x).torch(), rtol=1e-2, atol=1e-2)


def test_a_context_takes_its_settings_before_its_block_and_forgets_them_behind_it() -> None:
    context = hidet.graph.PassContext().set_precision("bfloat16")
    assert hidet.option.get_option("compat.precision") is None
    with context:
        assert hidet.option.get_option("compat.precision") == "bfloat16"
    assert hidet.option.get_option("compat.precision") is None


def test_operators_on_tensors_are_computed_as_they_are_written() -> None:
    hidet.option.set_option("compat.precision", "float16")
    x = hidet.randn([8, 8])
    torch.testing.assert_close((x @ x).torch(), x.torch() @ x.torch(), rtol=1e-5, atol=1e-5)
