"""Models on an OpenCL device, from torch, ONNX and files: right, with nothing on the host or the fallback nest.

Whole models are the zoo's (`nox -s models`); those of this page are parts of them, small enough for every commit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import hidet
import hidet.torch
from benchmarks.unet_block import build_unet_block, unet_inputs
from hidet.opencl.devices import devices
from tests.models.check import check_module, flatten, judge
from tests.models.entry import Inputs, ZooModel, seeded
from tests.models.onnx_export import exported_model
from tests.models.onnx_models import CachedDecoder
from tests.models.reference import run_reference
from tests.models.vision import build_vision, image_inputs
from tests.models.zoo import MODELS

pytestmark = pytest.mark.skipif(not devices(), reason="there is no OpenCL platform")


class Residual(nn.Module):
    """A residual block and an inverted one, as ResNet and MobileNet have them, and a classifier."""

    def __init__(self) -> None:
        super().__init__()

        def conv(inputs: int, outputs: int, **options: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inputs, outputs, bias=False, **options), nn.BatchNorm2d(outputs))

        self.stem = nn.Sequential(conv(3, 16, kernel_size=7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.plain = nn.Sequential(conv(16, 16, kernel_size=3, padding=1), nn.ReLU(), conv(16, 16, kernel_size=1))
        self.inverted = nn.Sequential(
            conv(16, 48, kernel_size=1), nn.ReLU6(), conv(48, 48, kernel_size=3, padding=1, groups=48), nn.ReLU6()
        )
        self.narrow, self.head = conv(48, 16, kernel_size=1), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[n, 3, h, w]"""
        x = self.stem(x)
        x = functional.relu(x + self.plain(x))
        x = x + self.narrow(self.inverted(x))
        logits: torch.Tensor = self.head(x.mean((2, 3)))
        return logits


class Encoder(nn.Module):
    """A layer of a transformer with a padding mask, on embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """ids[n, length], mask[n, length]"""
        x = self.norm(self.tokens(ids))
        hidden: torch.Tensor = self.layer(x, src_key_padding_mask=mask == 0)
        return hidden


def _built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return make().eval()


def _tokens(seed: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 13, dtype=torch.int64)
    mask[1, 9:] = 0
    return {"ids": torch.randint(0, 50, (2, 13), generator=seeded(seed)), "mask": mask}


def _decoder_inputs(seed: int) -> dict[str, torch.Tensor]:
    generator = seeded(seed)
    shape = (CachedDecoder.LAYERS, 1, CachedDecoder.CACHE_HEADS, 6, CachedDecoder.HEAD_WIDTH)
    keys, values = (torch.randn(shape, generator=generator) for _ in range(2))
    return {"tokens": torch.randint(0, 50, (1, 3), generator=generator), "keys": keys, "values": values}


PARTS = (
    ZooModel(name="residual blocks", build=partial(_built, Residual), inputs=partial(image_inputs, 37)),
    ZooModel(name="encoder", build=partial(_built, Encoder), inputs=_tokens),
    ZooModel(name="decoder with a cache", build=partial(_built, CachedDecoder), inputs=_decoder_inputs),
)
WHOLE = (
    *(
        ZooModel(name=name, build=partial(build_vision, name, 64), inputs=partial(image_inputs, 64))
        for name in ("resnet18", "mobilenet_v2")
    ),
    *(MODELS[name] for name in ("minilm", "gpt2", "llama", "vit")),
    ZooModel(name="U-Net", build=build_unet_block, inputs=lambda seed: unet_inputs(1, 8)),
)


def _case(entry: ZooModel, *marks: Any) -> Any:
    return pytest.param(entry, id=entry.name, marks=marks)


# The first two parts are those of the tests below.
@pytest.mark.parametrize(
    "entry",
    [
        *(_case(entry, pytest.mark.thorough) for entry in PARTS[:2]),
        _case(PARTS[2]),
        *(_case(entry, pytest.mark.models) for entry in WHOLE),
    ],
)
@pytest.mark.thorough
def test_a_model_is_right_through_torch(entry: ZooModel) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", hidet.errors.FallbackWarning)
        report = check_module(entry, torch.float32, "hidet", options={"target": "opencl"})
    assert report.correct, str(report)
    counts = report.counts
    assert counts is not None and (counts.fallback_nest, counts.host, counts.eager) == (0, 0, 0), str(report)


def _require_right(entry: ZooModel, model: nn.Module, batches: Sequence[Inputs], results: Sequence[Any]) -> None:
    """results: of the model compiled, on each of its inputs, in any structure that holds them in order."""
    with torch.no_grad():
        eager = [flatten(model(**inputs)) for inputs in batches]
    right = [flatten(run_reference(model, inputs)) for inputs in batches]
    found = []
    for result in results:
        leaves = [torch.as_tensor(leaf) for leaf in tree_leaves(result)]
        assert len(leaves) == len(eager[0]), f"{entry.name} has {len(eager[0])} results, {len(leaves)} came"
        found.append(dict(zip(eager[0], leaves, strict=True)))
    for verdict in judge(found, eager, right):
        assert verdict.correct, str(verdict)


def _require_on_device(compiled: Any) -> None:
    counts = compiled.report().nodes
    assert (counts.fallback, counts.host, counts.eager) == (0, 0, 0), str(compiled.report())


@pytest.mark.parametrize(
    "entry", [_case(PARTS[1]), *(_case(entry, pytest.mark.models) for entry in (PARTS[2], *WHOLE))]
)
def test_a_model_is_right_compiled_by_hidet_and_loaded_from_a_file(entry: ZooModel, tmp_path: Path) -> None:
    model, batches = entry.build(), [entry.inputs(seed) for seed in (0, 1)]
    compiled = hidet.compile(model, batches[0], target="opencl")
    _require_on_device(compiled)
    compiled.save(tmp_path / "model.hidet")
    loaded = hidet.load(tmp_path / "model.hidet")
    for call in (compiled, loaded):
        _require_right(entry, model, batches, [call(**inputs) for inputs in batches])


@pytest.mark.parametrize(
    "entry", [_case(PARTS[0]), *(_case(entry, pytest.mark.models) for entry in (PARTS[2], *WHOLE))]
)
@pytest.mark.thorough
def test_a_model_in_an_onnx_file_is_right(entry: ZooModel) -> None:
    model, batches = entry.build(), [entry.inputs(seed) for seed in (0, 1)]
    compiled = hidet.compile(str(exported_model(entry.name, model, batches[0])), target="opencl")
    _require_on_device(compiled)
    results = [compiled(**{name: value.numpy() for name, value in inputs.items()}) for inputs in batches]
    _require_right(entry, model, batches, results)


class Step(nn.Module):
    """Attention of a token over a cache, whose new row is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(24, 32) for _ in range(3))

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        """x[1, 1, 24]; keys and values [1, 2, length, 16]"""
        q, k, v = (project(x).view(1, 1, 2, 16).transpose(1, 2) for project in self.projections)
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        seen = (torch.arange(keys.shape[2]) <= position)[None, None, None]
        return functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)


def test_a_step_updates_its_cache_in_place() -> None:
    model, x, position = _built(Step), torch.randn(1, 1, 24), torch.tensor([5])
    caches = [torch.randn(1, 2, 9, 16) for _ in range(2)]
    ours = [cache.clone() for cache in caches]
    compiled = torch.compile(model, backend="hidet", fullgraph=True, options={"target": "opencl", "strict": True})
    with torch.no_grad():
        result, right = compiled(x, *ours, position), model(x, *caches, position)
    torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-5)
    for found, expected in zip(ours, caches, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
