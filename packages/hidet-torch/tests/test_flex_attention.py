"""flex_attention: scores and masks of the user's are compiled, and give what eager mode gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import hidet.torch

# Eager mode is the reference here; it warns that it is slow.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

ROWS, KEYS, HEADS = 24, 40, 4
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
DOCUMENTS = torch.arange(KEYS) // 7
BIAS = torch.randn(HEADS, ROWS, KEYS, generator=torch.Generator().manual_seed(2))
RELATIVE = torch.randn(ROWS + KEYS, HEADS, generator=torch.Generator().manual_seed(3))

Score = Callable[..., torch.Tensor]

SCORES: dict[str, Score | None] = {
    "none": None,
    "alibi": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "subtracted": lambda s, b, h, i, j: s - (i - j).abs() * 0.1,
    "added from the left": lambda s, b, h, i, j: b + (0.5 + s) + h,
    "table": lambda s, b, h, i, j: s + BIAS[h, i, j],
    "table of rows": lambda s, b, h, i, j: s + BIAS[h][i][j],
    "relative": lambda s, b, h, i, j: s + RELATIVE[i - j + KEYS, h],
    "hidden": lambda s, b, h, i, j: torch.where(i >= j, s + 1, -float("inf")),
    "soft cap": lambda s, b, h, i, j: 2 * torch.tanh(s / 2),
    "capped and moved": lambda s, b, h, i, j: torch.tanh(s) + SLOPES[h] * (j - i),
    "scaled": lambda s, b, h, i, j: s * SLOPES[h],
    "taken away": lambda s, b, h, i, j: i / 5 - s,
    "twice": lambda s, b, h, i, j: s + s,
    "constant": lambda s, b, h, i, j: torch.zeros_like(s) + j * 0.1,
    "chosen": lambda s, b, h, i, j: torch.where(i >= j, s, s * 0.5),
    "given a floor": lambda s, b, h, i, j: torch.where(i >= j, s, -2.0),
}
MASKS: dict[str, Score | None] = {
    "all": None,
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i - j).abs() <= 3,
    "documents": lambda b, h, i, j: (i >= j) & (DOCUMENTS[i] == DOCUMENTS[j]),
    "by head": lambda b, h, i, j: j <= i + 3 * h,
    "rows without keys": lambda b, h, i, j: (i % 3 != 0) & (j < 9),
    "nothing": lambda b, h, i, j: j < 0,
}


def _operands(
    dtype: torch.dtype, heads: int = HEADS, batch: int = 2
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    shapes = (2, HEADS, ROWS, 16), (batch, heads, KEYS, 16), (batch, heads, KEYS, 8)
    q, k, v = (torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes)
    return q, k, v


def _block_mask(mask: Score | None, heads: int | None = None) -> Any:
    return None if mask is None else create_block_mask(mask, None, heads, ROWS, KEYS, device="cpu", BLOCK_SIZE=8)


def _assert_as_eager(function: Callable[..., Any], *arguments: Any, dtype: torch.dtype = torch.float64) -> None:
    """What is compiled to the last node agrees with eager mode in values, sizes and strides."""
    torch.compiler.reset()
    want = function(*arguments)
    got = torch.compile(function, backend="hidet", fullgraph=True, options={"strict": True})(*arguments)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-2
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, check_stride=True)


def _assert_each_as_eager(settings: dict[str, dict[str, Any]], dtype: torch.dtype, **operands: int) -> None:
    """One graph with an attention for each of the settings: tracing a graph takes the most time."""
    torch.compiler.reset()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [flex_attention(q, k, v, **kwargs) for kwargs in settings.values()]

    arguments = _operands(dtype, **operands)
    found = torch.compile(attend, backend="hidet", fullgraph=True, options={"strict": True})(*arguments)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    for name, got, want in zip(settings, found, attend(*arguments), strict=True):
        torch.testing.assert_close(
            got, want, rtol=tolerance, atol=tolerance, check_stride=True, msg=lambda text, name=name: f"{name}: {text}"
        )
        if "nothing" in name:
            assert not got.any()


@pytest.mark.parametrize(("dtype", "names"), [(torch.float64, list(SCORES)), (torch.float32, ["alibi", "soft cap"])])
@pytest.mark.thorough(every=2)
def test_scores_are_changed_as_in_eager_mode(dtype: torch.dtype, names: list[str]) -> None:
    """defects.md C2."""
    mask = _block_mask(MASKS["window"])
    _assert_each_as_eager({name: {"score_mod": SCORES[name], "block_mask": mask} for name in names}, dtype)


@pytest.mark.parametrize("score", ["none", "soft cap"])
@pytest.mark.thorough(every=2)
def test_what_a_mask_hides_is_not_read_and_rows_without_keys_are_zero(score: str) -> None:
    """defects.md C2."""
    masks = {name: _block_mask(MASKS[name], HEADS if name == "by head" else None) for name in MASKS}
    settings = {name: {"score_mod": SCORES[score], "block_mask": masks[name]} for name in MASKS}
    _assert_each_as_eager(settings, torch.float64)


def test_heads_share_keys() -> None:
    """defects.md C2."""
    mask = _block_mask(MASKS["documents"])
    settings = {name: {"score_mod": SCORES[name], "block_mask": mask} for name in ("none", "alibi", "soft cap")}
    _assert_each_as_eager(
        {name: kwargs | {"enable_gqa": True} for name, kwargs in settings.items()}, torch.float64, heads=2
    )


def test_batches_share_keys() -> None:
    mask = create_block_mask(lambda b, h, i, j: i >= j - 4 * b, 2, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=8)
    settings = {name: {"score_mod": SCORES[name], "block_mask": mask} for name in ("none", "alibi", "soft cap")}
    _assert_each_as_eager(settings, torch.float64, batch=1)


@pytest.mark.parametrize("name", ["causal", "rows without keys"])
def test_the_logsumexp_is_returned(name: str) -> None:
    """defects.md C2."""
    mask = _block_mask(MASKS[name])

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        found, aux = flex_attention(
            q, k, v, score_mod=SCORES["alibi"], block_mask=mask, return_aux=AuxRequest(lse=True)
        )
        return found, aux.lse

    _assert_as_eager(attend, *_operands(torch.float64))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of torch's own tracing
def test_a_mask_may_be_made_inside() -> None:
    """defects.md C2."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        mask = create_block_mask(
            lambda b, h, i, j: documents[i] == documents[j], None, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=8
        )
        found: torch.Tensor = flex_attention(q, k, v, block_mask=mask)
        return found

    _assert_as_eager(attend, *_operands(torch.float64), DOCUMENTS)


def test_captured_tensors_are_read_anew_at_every_call() -> None:
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Buffer(torch.zeros(HEADS, dtype=torch.float64))

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + self.bias[h] * j)
            return found

    model = Attend()
    compiled = torch.compile(model, backend="hidet", options={"strict": True})
    operands = _operands(torch.float64)
    for slope in (0.0, 0.1, -0.3):
        model.bias.fill_(slope)
        torch.testing.assert_close(compiled(*operands), model(*operands), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("score", ["alibi", "soft cap"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.thorough(every=2)
def test_half_precision_computes_scores_in_f32(score: str, dtype: torch.dtype) -> None:
    mask = _block_mask(MASKS["window"])
    operands = _operands(dtype)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = flex_attention(q, k, v, score_mod=SCORES[score], block_mask=mask)
        return found

    compiled = torch.compile(attend, backend="hidet", options={"strict": True})
    right = attend(*(tensor.double() for tensor in operands))
    error = (compiled(*operands).double() - right).square().mean()
    assert error.sqrt() <= 2 * (attend(*operands).double() - right).square().mean().sqrt() + torch.finfo(dtype).eps


def test_autocast_multiplies_in_its_type() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        _assert_as_eager(
            lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"]),
            *_operands(torch.float32),
            dtype=torch.bfloat16,
        )


def test_results_lie_in_memory_as_queries_do() -> None:
    q, k, v = _operands(torch.float64)
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    for score in ("none", "soft cap"):
        _assert_as_eager(lambda q, k, v, score=score: flex_attention(q, k, v, score_mod=SCORES[score]), turned, k, v)


def test_lengths_may_change() -> None:
    """One compilation serves all of them."""

    def attend(q: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -1e30))
        return found

    torch.compiler.reset()
    with hidet.torch.collect_reports() as reports:
        compiled = torch.compile(attend, backend="hidet", dynamic=True, options={"strict": True})
        for length in (5, 17, 32):
            q = torch.randn(1, 2, length, 8, dtype=torch.float64)
            torch.testing.assert_close(compiled(q), attend(q), rtol=1e-12, atol=1e-12)
    assert len(reports) == 1


def test_what_is_added_to_scores_is_a_mask_of_one_attention() -> None:
    mask = _block_mask(MASKS["window"])
    added = ("none", "alibi", "subtracted", "hidden", "table")
    torch.compiler.reset()
    with hidet.torch.collect_reports() as reports:
        compiled = torch.compile(
            lambda q, k, v: [flex_attention(q, k, v, score_mod=SCORES[name], block_mask=mask) for name in added],
            backend="hidet",
        )
        compiled(*_operands(torch.float32))
    (report,) = reports
    tasks = [task for use in report.uses for task in use.tasks]
    assert sum("attention" in task for task in tasks) == len(added), tasks
    assert not any("matmul" in task for task in tasks)


def test_gradients_reach_what_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has gradients of it for GPUs alone; its own formula runs on a CPU as well."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *tensors: None)
    bias = torch.randn(HEADS, dtype=torch.float64, requires_grad=True)
    mask = _block_mask(MASKS["window"])

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        score = lambda s, b, h, i, j: torch.tanh(s) * bias[h]  # noqa: E731
        found: torch.Tensor = flex_attention(q, k, v, score_mod=score, block_mask=mask)
        return found.sin().sum()

    leaves = [tensor.requires_grad_() for tensor in _operands(torch.float64)] + [bias]
    want = torch.autograd.grad(loss(*leaves), leaves)
    compiled = torch.compile(loss, backend="hidet", options={"strict": True})
    got = torch.autograd.grad(compiled(*leaves), leaves)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
