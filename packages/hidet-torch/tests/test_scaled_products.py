"""Products of 8-bit numbers with scales, as torch has them, beside float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import ScalingType, scaled_mm

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
STRICT = {"strict": True}


def drawn(m: int, n: int, k: int, types: tuple[torch.dtype, torch.dtype] = (E4M3, E4M3)) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(rows, k, generator=generator).to(dtype) for rows, dtype in zip((m, n), types, strict=True)]


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="hidet", fullgraph=True, options=STRICT)


def assert_near(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Within the rounding of the result."""
    unit = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double(), exact, rtol=unit, atol=1e-5)


@pytest.mark.parametrize("has_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("scales", ["numbers", "rows"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.thorough(every=2)
def test_products_of_f8_are_scaled_as_by_torch(dtype, scales, has_bias):
    a, b = drawn(48, 32, 64)
    left, right = ((), ()) if scales == "numbers" else ((48, 1), (1, 32))
    s, t = torch.rand(left) + 0.5, torch.rand(right) + 0.5
    bias = torch.randn(32).to(dtype) if has_bias else None

    def product(a, b, s, t, bias):
        return torch._scaled_mm(a, b.t(), s, t, bias=bias, out_dtype=dtype)

    exact = (a.double() @ b.double().t()) * s.double() * t.double()
    exact = exact if bias is None else exact + bias.double()
    found = compiled(product)(a, b, s, t, bias)
    assert found.dtype is dtype
    assert_near(found, exact)


def test_factors_of_two_types_are_multiplied():
    a, b = drawn(16, 32, 64, (E5M2, E4M3))
    one = torch.ones(())
    found = compiled(lambda a, b: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32))(a, b)
    assert_near(found, a.double() @ b.double().t())


def test_results_of_f8_saturate():
    a, b = (torch.full((16, 64), 16.0).to(E4M3) for _ in range(2))
    one = torch.ones(())
    found = compiled(lambda a, b: torch._scaled_mm(a, b.t(), one, one, out_dtype=E4M3))(a, b)
    assert found.dtype is E4M3
    assert torch.equal(found.float(), torch.full((16, 16), 448.0))


def test_scales_by_recipe():
    a, b = drawn(48, 32, 64)
    s, t = torch.rand(48, 1) + 0.5, torch.rand(1, 32) + 0.5

    def product(a, b, s, t):
        return scaled_mm(a, b.t(), s, ScalingType.RowWise, t, ScalingType.RowWise, output_dtype=torch.float32)

    assert_near(compiled(product)(a, b, s, t), (a.double() @ b.double().t()) * s.double() * t.double())


@pytest.mark.gpu
def test_scales_of_blocks_along_the_sum():
    a, b = (x.cuda() for x in drawn(48, 160, 256))
    s, t = torch.rand(2, 48, device="cuda").t() + 0.5, torch.rand(2, 2, device="cuda").t() + 0.5

    def product(a, b, s, t):
        return torch._scaled_mm(a, b.t(), s, t, out_dtype=torch.bfloat16)

    blocks = torch.arange(256) // 128, torch.arange(160) // 128
    left, right = a.double() * s.double()[:, blocks[0]], b.double() * t.double()[blocks[0]][:, blocks[1]].t()
    exact = left @ right.t()

    def error(found: torch.Tensor) -> float:
        """Matrix units add up 8-bit floats with few digits, ours and torch's: root mean square, beside the result's."""
        return ((found.double() - exact).square().mean() / exact.square().mean()).sqrt().item()

    assert error(compiled(product)(a, b, s, t)) <= 2 * error(product(a, b, s, t)) + torch.finfo(torch.bfloat16).eps


def test_products_of_integers_are_exact():
    a, b = (torch.randint(-128, 128, (32, 64), dtype=torch.int8) for _ in range(2))
    found = compiled(lambda a, b: torch._int_mm(a, b.t()))(a, b)
    assert torch.equal(found, torch._int_mm(a, b.t()))
    assert found.dtype is torch.int32
