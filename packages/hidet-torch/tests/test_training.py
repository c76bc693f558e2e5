"""Gradients are those of eager mode, whenever the backward is compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import hidet.torch

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(4))


class Model(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.dropout(self.norm(F.gelu(self.first(x))))
        return self.last(hidden), x > 0


def _gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _assert_trains_alike(compiled: Any, model: nn.Module, reference: nn.Module, steps: int = 3) -> None:
    for _ in range(steps):
        for call in (compiled, reference):
            result, _ = call(X)
            result.square().sum().backward()
        assert len(_gradients(model)) == len(_gradients(reference)) == len(list(model.parameters()))
        for got, want in zip(_gradients(model), _gradients(reference), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_a_forward_without_no_grad_compiles_no_backward() -> None:
    model = Model().eval()
    with hidet.torch.collect_reports() as reports:
        result, mask = torch.compile(model, backend="hidet")(X)
    assert result.requires_grad
    assert not mask.requires_grad
    torch.testing.assert_close(result, model(X)[0])
    assert len(reports) == 1


def test_the_first_backward_compiles_the_joint_graph() -> None:
    model = Model().eval()
    reference = copy.deepcopy(model)
    with hidet.torch.collect_reports() as reports:
        _assert_trains_alike(torch.compile(model, backend="hidet"), model, reference)
    assert len(reports) == 3


def test_in_training_mode_forward_and_backward_are_compiled_at_once() -> None:
    model = Model().train()
    reference = copy.deepcopy(model)
    with hidet.torch.collect_reports() as reports:
        _assert_trains_alike(torch.compile(model, backend="hidet"), model, reference)
    assert len(reports) == 2


def test_dropout_keeps_its_mask_for_the_backward() -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, requires_grad=True)
    result = torch.compile(lambda v: F.dropout(v, 0.25, training=True), backend="hidet")(x)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())  # type: ignore[arg-type]  # set by backward
    assert 0.7 < (result > 0).float().mean() < 0.8


def test_an_input_that_asks_for_a_gradient_gets_it() -> None:
    x = X.clone().requires_grad_()
    torch.compile(lambda v: (v * v.sin()).sum(), backend="hidet")(x).backward()
    torch.testing.assert_close(x.grad, X.sin() + X * X.cos())


def test_batch_norm_in_training_updates_its_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)).train()
    reference = copy.deepcopy(model)
    compiled = torch.compile(model, backend="hidet")
    image = torch.randn(2, 2, 9, 9)
    for _ in range(2):
        compiled(image).sum().backward()
        reference(image).sum().backward()
    for (name, got), (_, want) in zip(model.state_dict().items(), reference.state_dict().items(), strict=True):
        torch.testing.assert_close(got, want, msg=name)
    for got, want in zip(_gradients(model), _gradients(reference), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parameters", [torch.float32, None], ids=["f32 parameters", "parameters of its type"])
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.thorough(every=2)
def test_batch_norm_in_training_is_compiled_for_narrow_types(
    dtype: torch.dtype, parameters: torch.dtype | None, tracked: bool
) -> None:
    model = nn.BatchNorm2d(4, track_running_stats=tracked).to(parameters or dtype).train()
    reference = copy.deepcopy(model)
    compiled = torch.compile(model, backend="hidet", options={"strict": True})
    image = torch.randn(2, 4, 9, 9).to(dtype)
    torch.testing.assert_close(compiled(image), reference(image), rtol=0.02, atol=0.02)
    for (name, got), (_, want) in zip(model.state_dict().items(), reference.state_dict().items(), strict=True):
        torch.testing.assert_close(got, want, msg=name)


GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "strided conv": lambda x: F.conv2d(x, torch.ones(3, 4, 3, 3) * 0.1, stride=2, padding=1),
    "grouped conv": lambda x: F.conv2d(x, torch.ones(4, 2, 3, 3) * 0.1, groups=2),
    "transposed conv": lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 3, 3) * 0.1, stride=2),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "attention": lambda x: F.scaled_dot_product_attention(x, x * 2, x.sin(), is_causal=True),
    "attention in parts": lambda x: F.scaled_dot_product_attention(x, x * 2, x[..., :3].sin(), is_causal=True),
    "softmax": lambda x: F.softmax(x, -1).square(),
    "group_norm": lambda x: F.group_norm(x, 2).square(),
    "cross entropy": lambda x: F.cross_entropy(x, torch.zeros(2, 7, 7, dtype=torch.int64)),
    "embedding": lambda x: F.embedding(torch.tensor([1, 0, 1]), x[0, 0]).square(),
    "gather": lambda x: x[..., torch.tensor([0, 0, 2])].square(),
    "silu": F.silu,
    "cumsum": lambda x: x.cumsum(-1).square(),
}


@pytest.mark.parametrize("function", GRADIENTS.values(), ids=GRADIENTS.keys())
@pytest.mark.thorough(every=4)
def test_gradients_of(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    image = torch.randn(2, 4, 7, 7, generator=torch.Generator().manual_seed(5))
    ours, theirs = image.clone().requires_grad_(), image.clone().requires_grad_()
    torch.compile(function, backend="hidet")(ours).sum().backward()
    function(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_a_second_backward_through_waiting_graphs_is_refused() -> None:
    model = Model().eval()
    result, _ = torch.compile(model, backend="hidet")(X)
    (gradient,) = torch.autograd.grad(result.sum(), [model.first.weight], create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        gradient.sum().backward()


def test_frozen_parameters_get_no_gradient() -> None:
    model = Model().eval()
    model.first.requires_grad_(False)
    result, _ = torch.compile(model, backend="hidet")(X)
    result.sum().backward()
    assert model.first.weight.grad is None
    assert model.last.weight.grad is not None


def test_a_backward_pass_that_waited_is_traced_whole_also_under_autocast() -> None:
    """Seed 1510975 of tests.fuzz.torch_programs: torch 2.11 failed within the region."""
    linear = torch.nn.Linear(4, 5)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            product: torch.Tensor = linear(x)
            return product * 2

    x = torch.ones(3, 4)
    torch._dynamo.utils.counters.clear()
    torch.compile(function, backend="hidet")(x).sum().backward()
    assert not torch._dynamo.utils.counters["graph_break"]
    assert linear.bias.grad is not None
    assert torch.equal(linear.bias.grad, torch.full((5,), 6.0))


def test_autocast_is_on_again_in_the_recomputation() -> None:
    model, reference = Model().eval(), Model().eval()
    reference.load_state_dict(model.state_dict())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = torch.compile(model, backend="hidet")(X)[0], reference(X)[0]
    ours.float().sum().backward()
    theirs.float().sum().backward()
    for got, want in zip(_gradients(model), _gradients(reference), strict=True):
        torch.testing.assert_close(got, want, rtol=5e-2, atol=5e-2)


# dynamo makes an object of the class to trace it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_custom_autograd_function_keeps_its_own_backward() -> None:
    x, reference = X.clone().requires_grad_(), X.clone().requires_grad_()
    torch.compile(lambda v: _Doubled.apply(v.sin()).sum(), backend="hidet", fullgraph=True)(x).backward()
    _Doubled.apply(reference.sin()).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.grad, reference.grad)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradients[0] * x


def test_activation_checkpoints_give_the_same_gradients() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))
    reference = copy.deepcopy(model)
    function = torch.compile(
        lambda module, x: checkpoint(module, x, use_reentrant=False).sum(), backend="hidet", fullgraph=True
    )
    function(model, X).backward()
    reference(X).sum().backward()
    for got, want in zip(_gradients(model), _gradients(reference), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_no_gradient_flows_through_a_part_under_no_grad() -> None:
    model = nn.Linear(6, 6)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            hidden = model(x)
        result: torch.Tensor = model(hidden)
        return result

    torch.compile(function, backend="hidet", fullgraph=True)(X).sum().backward()
    gradient = model.weight.grad
    assert gradient is not None
    model.zero_grad()
    function(X).sum().backward()
    torch.testing.assert_close(gradient, model.weight.grad)


class _Experts(nn.Module):
    """Each row goes through the linear layer that its largest score names."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.scores(x).softmax(-1).max(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            result = result.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return result.sum()


class _Chosen(nn.Module):
    """A linear layer of the rows that begin with a positive number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x[x[:, 0] > 0]).relu().sum()


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
@pytest.mark.parametrize("model", [_Chosen, _Experts])
@pytest.mark.parametrize("has_gradient", [False, True], ids=["of weights", "of inputs too"])
@pytest.mark.thorough(every=2)
def test_gradients_flow_through_sizes_that_depend_on_data(model: type[nn.Module], has_gradient: bool) -> None:
    torch.manual_seed(3)
    eager = model()
    ours = copy.deepcopy(eager)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(ours, backend="hidet", fullgraph=True)
        for rows in (6, 6, 9):
            x = torch.randn(rows, 4)
            given = [x.clone().requires_grad_(has_gradient) for _ in range(2)]
            eager(given[0]).backward()
            compiled(given[1]).backward()
            if has_gradient:
                torch.testing.assert_close(given[1].grad, given[0].grad)
    for got, expected in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got.grad, expected.grad)


def _overwritten_mask(mask: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    rows = torch.nn.functional.embedding(mask.view(-1).long(), table)
    mask.masked_fill_(mask, 0)
    return rows


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_pass_reads_inputs_as_they_were_before_the_graph_overwrote_them(dynamic: bool) -> None:
    """Found by tests.fuzz.torch_programs, seed 421031."""
    gradients, masks = [], []
    for run in (_overwritten_mask, torch.compile(_overwritten_mask, backend="hidet", dynamic=dynamic)):
        mask = torch.tensor([[True, False, True]])
        table = torch.arange(4.0).reshape(4, 1).requires_grad_()
        run(mask, table).sum().backward()
        gradients.append(table.grad)
        masks.append(mask)
    torch.testing.assert_close(gradients[1], gradients[0])
    assert torch.equal(masks[1], masks[0]) and not masks[0].any()


def test_what_no_gradient_depends_on_may_change_before_one_is_asked_for() -> None:
    """Seed 1121314: the graph is broken where an argument is written that is read for a result without a gradient."""
    layer = torch.nn.Linear(3, 3)

    def run(x: torch.Tensor, spare: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return -layer(x), x @ spare

    compiled = torch.compile(run, backend="hidet")
    spare = torch.ones(3, 3)
    result, _ = compiled(torch.ones(3), spare)
    spare.fill_(2)
    result.sum().backward()
    assert torch.equal(layer.weight.grad, -torch.ones(3, 3))


def test_what_gradients_depend_on_must_not_change_before_they_are_asked_for() -> None:
    layer = torch.nn.Linear(3, 3)
    compiled, x = torch.compile(lambda x: layer(x), backend="hidet"), torch.ones(3)
    result = compiled(x)
    x.fill_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
