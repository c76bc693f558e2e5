"""A compiled model shows every change of its parameters and buffers, whatever way it was made.

defects.md W1, red-team.md finding 1. Each row of `CHANGES` is one way; each is tried on a CPU and, with the marker gpu,
on a device, for linear layers, convolutions with batch norm, and embeddings. A frozen model keeps its first weights.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

Change = Callable[[nn.Module], None]


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]


def _in_place(model: nn.Module) -> None:
    with torch.no_grad():
        for tensor in _tensors(model):
            tensor.mul_(1.5)


def _data(model: nn.Module) -> None:
    for tensor in _tensors(model):
        tensor.data.mul_(1.5)


def _data_item(model: nn.Module) -> None:
    for tensor in _tensors(model):
        tensor.data.view(-1)[0] = 7.0


def _new_data(model: nn.Module) -> None:
    for tensor in _tensors(model):
        tensor.data = tensor.data + 0.5


def _numpy_view(model: nn.Module) -> None:
    for tensor in _tensors(model):
        if tensor.device.type == "cpu":
            np.multiply(tensor.detach().numpy(), 1.5, out=tensor.detach().numpy())
        else:
            tensor.data.mul_(1.5)


def _storage(model: nn.Module) -> None:
    for tensor in _tensors(model):
        tensor.untyped_storage().copy_((tensor.detach() + 0.5).untyped_storage())


def _preserved_version(model: nn.Module) -> None:
    for tensor in _tensors(model):
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tensor):
            tensor.mul_(1.5)


def _moving_average(model: nn.Module) -> None:
    for tensor in _tensors(model):
        tensor.data.lerp_(torch.ones_like(tensor), 0.25)


def _merged_update(model: nn.Module) -> None:
    """What merging a low-rank adapter (LoRA) does."""
    for tensor in _tensors(model):
        if tensor.dim() == 2:
            rank = [torch.ones(extent, 1, device=tensor.device) for extent in tensor.shape]
            tensor.data.addmm_(rank[0], rank[1].T, alpha=0.1)
        else:
            tensor.data.add_(0.1)


def _loaded(model: nn.Module) -> None:
    model.load_state_dict({k: v + 0.25 if v.is_floating_point() else v for k, v in model.state_dict().items()})


def _assigned(model: nn.Module) -> None:
    state = {k: v + 0.25 if v.is_floating_point() else v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def _foreach(model: nn.Module) -> None:
    with torch.no_grad():
        torch._foreach_add_(_tensors(model), 0.5)


def _stepped(make: Callable[..., torch.optim.Optimizer], **options: Any) -> Change:
    def change(model: nn.Module) -> None:
        optimizer = make(model.parameters(), lr=0.1, **options)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.zero_grad()

    return change


CHANGES: dict[str, Change] = {
    "in place": _in_place,
    "data": _data,
    "an item of data": _data_item,
    "data replaced": _new_data,
    "a numpy view": _numpy_view,
    "untyped_storage": _storage,
    "a version that is preserved": _preserved_version,
    "moving average": _moving_average,
    "a low-rank update merged": _merged_update,
    "load_state_dict": _loaded,
    "load_state_dict(assign=True)": _assigned,
    "foreach": _foreach,
    "SGD": _stepped(torch.optim.SGD),
    "SGD, fused": _stepped(torch.optim.SGD, fused=True),
    "Adam, fused": _stepped(torch.optim.Adam, fused=True),
    "AdamW, fused": _stepped(torch.optim.AdamW, fused=True),
    "AdamW, foreach": _stepped(torch.optim.AdamW, foreach=True),
    "Adagrad, fused": _stepped(torch.optim.Adagrad, fused=True),
}


ON_A_CPU = ("SGD, fused", "Adagrad, fused")
"""torch 2.11 has no kernels of these for a device."""


class Convolutions(nn.Module):
    """Convolutions whose batch norms could be folded, one depthwise, and a linear layer at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.depthwise, self.last = nn.Conv2d(16, 16, 3, groups=16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        """Images to four numbers."""
        return self.last(self.depthwise(self.norm(self.first(x)).relu()).mean((2, 3)))


def _linear() -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 4)).eval()
    return model, torch.randn(33, 40)


def _images() -> tuple[nn.Module, torch.Tensor]:
    return Convolutions().eval(), torch.randn(2, 3, 8, 8)


def _tokens() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Embedding(10, 32), nn.LayerNorm(32), nn.Linear(32, 8)).eval(), torch.randint(0, 10, (2, 5))


MODELS = {"linear": _linear, "images": _images, "tokens": _tokens}


def _assert_no_change_is_missed(device: str, make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
    torch.manual_seed(0)
    original, x = make()
    original, x = original.to(device), x.to(device)
    model = copy.deepcopy(original)
    compiled = torch.compile(model, backend="hidet")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    stale = []
    for name, change in CHANGES.items():
        if device != "cpu" and name in ON_A_CPU:
            continue
        with torch.no_grad():
            for _ in range(4):  # so that calls on a device are captured
                before = compiled(x)
        change(model)
        with torch.no_grad():
            expected = model(x)
            assert not torch.allclose(before, expected, rtol=1e-3), f"{name} changes nothing"
            if not torch.allclose(compiled(x), expected, rtol=1e-3, atol=1e-3):
                stale.append(name)
        model.load_state_dict(original.state_dict())
    assert stale == []


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_no_way_to_change_a_weight_is_missed(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
    """defects.md W1."""
    _assert_no_change_is_missed("cpu", make)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_no_way_to_change_a_weight_is_missed_on_a_device(make: Callable[[], tuple[nn.Module, torch.Tensor]]) -> None:
    """defects.md W1."""
    _assert_no_change_is_missed("cuda", make)


def test_a_training_loop_with_a_fused_optimiser_evaluates_its_weights_of_today() -> None:
    """red-team.md finding 1: a model that is trained by a fused optimiser and evaluated compiled."""
    torch.manual_seed(0)
    model, x, target = nn.Linear(32, 4), torch.randn(16, 32), torch.randn(16, 4)
    compiled = torch.compile(model, backend="hidet")
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)
    for _ in range(4):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
        (model(x) - target).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_weights_made_in_inference_mode_are_not_stale_either() -> None:
    model, x = _linear()
    with torch.inference_mode():
        fresh = copy.deepcopy(model)
        for parameter in fresh.parameters():
            parameter.data = parameter.data.clone()
        compiled = torch.compile(fresh, backend="hidet")
        torch.testing.assert_close(compiled(x), fresh(x))
        fresh[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), fresh(x))


WRITER = """
import sys, torch
size, path = int(sys.argv[1]), sys.argv[2]
torch.from_file(path, shared=True, size=size).mul_(2)
"""


def test_another_process_that_writes_to_shared_weights_is_seen(tmp_path: Any) -> None:
    """defects.md W1: Hogwild."""
    path = str(tmp_path / "weights")
    weight = torch.from_file(path, shared=True, size=40 * 8)
    model, x = nn.Linear(40, 8), torch.randn(20, 40)
    weight.copy_(model.weight.detach().view(-1))
    model.weight = nn.Parameter(weight.view(8, 40))
    compiled = torch.compile(model, backend="hidet")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        before = model.weight.clone()
        subprocess.run([sys.executable, "-c", WRITER, str(40 * 8), path], check=True, timeout=120)
        torch.testing.assert_close(model.weight, before * 2)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_frozen_model_keeps_the_weights_it_was_compiled_with() -> None:
    model, x = _linear()
    compiled = torch.compile(model, backend="hidet", options={"freeze": True})
    with torch.no_grad():
        before = compiled(x)
        _data(model)
        assert torch.equal(compiled(x), before)
