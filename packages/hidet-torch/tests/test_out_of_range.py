"""Casts of floats that the integer type has no value for are those of eager mode on this machine, in every form."""

from __future__ import annotations

import math

import pytest
import torch

from hidet.torch.emitter import conversion_of

EDGES = [0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 127.0, 128.0, -129.0, 200.0, 255.0, 256.0, 300.0, -200.0, 32768.0, -32769.0]
EDGES += [65535.0, 65536.0, 70000.0, 2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 2.0**31 + 512, 3e9, 2.0**32]
EDGES += [5e9, -5e9, 2.0**40 + 12345678, 2.0**63, -(2.0**63), 1.5 * 2.0**63, 2.0**64, 1e19, 1.8e19, 1e20, -1e20]
EDGES += [1e30, -1e30, math.inf, -math.inf, math.nan]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.uint64, torch.bool]


def as_every_type(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.to(dtype) for dtype in INTEGERS]


@pytest.fixture(scope="module")
def compiled():
    return torch.compile(as_every_type, backend="hidet", dynamic=False)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("copies", [1, 23])
def test_every_float_to_every_integer(compiled, dtype, copies):
    """red-team.md finding 18."""
    x = torch.tensor(EDGES, dtype=torch.float64).to(dtype).repeat(copies)
    for got, expected in zip(compiled(x), as_every_type(x), strict=True):
        assert got.dtype == expected.dtype
        differing = [(v, a, b) for v, a, b in zip(x.tolist(), got.tolist(), expected.tolist(), strict=True) if a != b]
        assert not differing, (expected.dtype, differing)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uint32_is_that_of_eager_mode_for_one_element(dtype):
    """Eager mode's own result depends on the number of elements here: it differs between one and a vector of them."""
    x = torch.tensor(EDGES, dtype=torch.float64).to(dtype)
    got = torch.compile(lambda x: x.to(torch.uint32), backend="hidet", dynamic=False)(x)
    assert got.tolist() == [one.clone().to(torch.uint32).item() for one in x]


def test_casts_inside_of_other_operators():
    """red-team.md finding 18."""
    x = torch.tensor(EDGES)

    def f(x):
        filled = torch.zeros(len(EDGES), dtype=torch.int32)
        filled.copy_(x)
        return filled, (x * 2).int() + 1, x.double().long(), x.to(torch.int16).to(torch.int32)

    for got, expected in zip(torch.compile(f, backend="hidet")(x), f(x), strict=True):
        assert torch.equal(got, expected)


def test_another_device_takes_the_nearest_value():
    assert conversion_of("cuda") == "nearest"
