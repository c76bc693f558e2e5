"""Products of few rows with packed weights on a GPU, at sizes of language models. Run by `pytest -m gpu`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gpu_quantized import LayerName, compiled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("codes", ["u4:32", "u4:64", "u4:128", "i8:64", "i8:8192"])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_large_weights_are_multiplied_as_exactly_as_eager_does(rows: int, codes: str, dtype: str) -> None:
    name = LayerName.parse(f"{rows}x8192x8192:{codes}:{dtype}")
    torch.manual_seed(0)
    x, packed, scales = name.inputs()
    exact = x.double() @ name.weight(packed, scales, torch.float64).T
    eager = torch.nn.functional.linear(x, name.weight(packed, scales, x.dtype))
    (found,) = compiled(name, layers=1)(x, packed, scales)
    size = exact.square().mean().sqrt()
    errors = [((result.double() - exact).square().mean().sqrt() / size).item() for result in (found, eager)]
    assert errors[0] <= 2 * errors[1] + torch.finfo(x.dtype).eps
