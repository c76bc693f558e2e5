"""Attention on a GPU, through torch.compile: its error against f64 beside that of torch's own kernels."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

import hidet.torch
from hidet.torch.backend import compile_fx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning"),
]

UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24, torch.float64: 2.0**-53}


@dataclass(frozen=True)
class Case:
    """Shapes of queries, keys and values. mask: its shape, or "" for none; `bools` or an added one. order: of memory:
    "heads", or "fused" for slices of one product, whose heads are neighbours."""

    dtype: torch.dtype
    q: tuple[int, ...]
    k: tuple[int, ...]
    width: int
    is_causal: bool = False
    mask: tuple[int, ...] | None = None
    is_added: bool = False
    is_grouped: bool = False
    order: str = "heads"

    def tensors(self) -> list[torch.Tensor]:
        shapes = (self.q, self.k, (*self.k[:-1], self.width))
        return [self._tensor(shape) for shape in shapes]

    def _tensor(self, shape: tuple[int, ...]) -> torch.Tensor:
        if self.order == "heads":
            return torch.randn(shape, device="cuda", dtype=self.dtype)
        b, h, s, d = shape
        return torch.randn(b, s, 3, h, d, device="cuda", dtype=self.dtype)[:, :, 1].transpose(1, 2)

    def masks(self) -> torch.Tensor | None:
        if self.mask is None:
            return None
        if self.is_added:
            return torch.randn(self.mask, device="cuda", dtype=self.dtype)
        seen = torch.rand(self.mask, device="cuda") < 0.7
        seen[..., 0] = True
        return seen


F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
CASES = {
    "causal, in parts of a tile": Case(F16, (2, 3, 300, 128), (2, 3, 300, 128), 128, is_causal=True),
    "slices of one product": Case(BF16, (2, 3, 197, 80), (2, 3, 197, 80), 80, order="fused"),
    "wide": Case(BF16, (1, 4, 257, 256), (1, 4, 300, 256), 256, is_causal=True),
    "values wider than keys": Case(F16, (1, 8, 333, 40), (1, 8, 517, 40), 72),
    "a mask for all rows": Case(F16, (2, 4, 77, 64), (2, 4, 200, 64), 64, mask=(2, 1, 1, 200)),
    "a mask that is added": Case(BF16, (2, 4, 300, 64), (2, 4, 301, 64), 64, mask=(1, 4, 300, 301), is_added=True),
    "grouped heads": Case(BF16, (2, 8, 130, 128), (2, 2, 130, 128), 128, is_causal=True, is_grouped=True),
    "one row, keys in parts": Case(BF16, (2, 32, 1, 128), (2, 8, 4097, 128), 128, is_grouped=True),
    "rows that cannot be copied in parts": Case(F16, (1, 2, 50, 33), (1, 2, 300, 33), 65),
    "f32": Case(F32, (2, 3, 130, 64), (2, 3, 200, 64), 64, is_causal=True),
    "f64": Case(torch.float64, (1, 2, 70, 256), (1, 2, 90, 256), 256),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_is_as_exact_as_torch(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(len(name))
    given, mask = case.tensors(), case.masks()

    def attend(*tensors: torch.Tensor) -> torch.Tensor:
        q, k, v, *more = tensors
        seen = more[0] if more else None
        return F.scaled_dot_product_attention(q, k, v, seen, is_causal=case.is_causal, enable_gqa=case.is_grouped)

    inputs = [*given, *([] if mask is None else [mask])]
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    expected, theirs = attend(*wide), attend(*inputs)
    # Memory that results are made in is not zero by chance.
    torch.full((1 << 22,), float("nan"), device="cuda")
    with torch.no_grad(), hidet.torch.collect_reports() as reports:
        ours = torch.compile(attend, backend=compile_fx, fullgraph=True)(*inputs)
    assert "cuda.attention" in [use.rule for report in reports for use in report.uses]
    size = expected.square().mean().sqrt()
    error, other = (((x.double() - expected).square().mean().sqrt() / size).item() for x in (ours, theirs))
    # Sums of a hundred numbers in f64 differ by more than its unit whatever their order; torch's own are the reference.
    slack = 16 if case.dtype is torch.float64 else 1
    assert error <= 2 * other + slack * UNIT[case.dtype]


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("past", [5000, 4097])
def test_a_step_reads_a_long_cache_where_it_lies(length: int, past: int) -> None:
    def attend(q: torch.Tensor, k1: torch.Tensor, k2: torch.Tensor, v1: torch.Tensor, v2: torch.Tensor) -> torch.Tensor:
        k, v = torch.cat((k1, k2), 2), torch.cat((v1, v2), 2)
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    torch.manual_seed(0)
    cache, new = (4, 4, past, 128), (4, 4, length, 128)
    inputs = [torch.randn(s, device="cuda", dtype=BF16) for s in ((4, 16, length, 128), cache, new, cache, new)]
    # What the step adds counts as much as what was there.
    inputs[2] *= 4
    expected, theirs = attend(*(x.double() for x in inputs)), attend(*inputs)
    torch.full((1 << 22,), float("nan"), device="cuda")
    with torch.no_grad(), hidet.torch.collect_reports() as reports:
        ours = torch.compile(attend, backend=compile_fx, fullgraph=True)(*inputs)
    assert [use.rule for report in reports for use in report.uses].count("cuda.attention") == 2
    size = expected.square().mean().sqrt()
    error, other = (((x.double() - expected).square().mean().sqrt() / size).item() for x in (ours, theirs))
    assert error <= 2 * other + UNIT[BF16]


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("has_mask", [False, True], ids=["whole", "masked"])
def test_training_draws_the_same_elements_backwards_as_forwards(
    dtype: torch.dtype, dropout: float, has_mask: bool
) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(64, 64, dtype=dtype, device="cuda") if has_mask else None
        return F.scaled_dot_product_attention(q * 2, k, v, mask, dropout_p=dropout)

    compiled = torch.compile(attend, backend=compile_fx, fullgraph=True)
    given = [torch.randn(2, 4, 64, 32, device="cuda", dtype=dtype) for _ in range(3)]
    for seed in range(3):
        found = []
        for run in (attend, compiled):
            tensors = [x.clone().requires_grad_() for x in given]
            torch.manual_seed(seed)
            result = run(*tensors)
            result.float().square().sum().backward()
            found.append([result, *(x.grad for x in tensors)])
        limit = {F32: 1e-4, F16: 1e-2, BF16: 5e-2}[dtype]
        torch.testing.assert_close(found[1], found[0], rtol=limit, atol=limit * 10)
