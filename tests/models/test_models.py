"""Every model of the zoo is right through hidet, with no eager or host node and no anchor on the fallback nest."""

import pytest
import torch

from .check import check_model
from .zoo import MODELS


def _case(name: str, dtype: torch.dtype, smoke: bool) -> object:
    label = f"{name}-{str(dtype).removeprefix('torch.')}"
    return pytest.param(name, dtype, id=label, marks=() if smoke else pytest.mark.models)


_CASES = [
    *(_case(model.name, torch.float32, model.smoke) for model in MODELS.values()),
    *(_case(model.name, torch.bfloat16, False) for model in MODELS.values() if model.bf16),
]


@pytest.mark.parametrize(("name", "dtype"), _CASES)
@pytest.mark.thorough(every=4)
def test_model_is_correct(name: str, dtype: torch.dtype) -> None:
    report = check_model(name, dtype)
    assert report.correct, str(report)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("resnet18", torch.float16),
        ("mobilenet_v2", torch.bfloat16),
        ("gpt2", torch.float32),
        ("llama", torch.bfloat16),
        ("t5", torch.float16),
    ],
)
def test_model_is_correct_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    report = check_model(name, dtype, device="cuda")
    assert report.correct, str(report)


def test_the_zoo_has_the_promised_breadth() -> None:
    assert len(MODELS) >= 24
    assert sum(model.smoke for model in MODELS.values()) == 6
    assert sum(model.bf16 for model in MODELS.values()) * 2 >= len(MODELS)
