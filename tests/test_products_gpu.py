"""Products of matrices on a GPU, against torch in f64, with every kind of kernel. Run by `pytest -m gpu`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hidet.torch.backend import compile_fx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DTYPES = [torch.float16, torch.bfloat16]
# Large tiles, small ones, sizes between multiples of tiles, rows that are no multiples of 16 bytes, and few rows.
SIZES = [
    (512, 1024, 512),
    (128, 768, 768),
    (200, 264, 328),
    (1000, 1032, 72),
    (33, 77, 111),
    (1, 512, 2048),
    (3, 40, 264),
]


def check(f: Callable[..., Tensor], *inputs: Tensor) -> None:
    """A compiled function is as exact as eager, and writes all of its result."""
    expected = f(*(x.double() for x in inputs))
    eager = f(*inputs)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=compile_fx, dynamic=False)
    compiled(*inputs)
    # The second call is given memory that holds NaN: torch's allocator gives what was freed last.
    torch.full_like(eager, float("nan"))
    result = compiled(*inputs)
    unit = torch.finfo(result.dtype).eps / 2
    spread = expected.square().mean().sqrt()

    def error(value: Tensor) -> float:
        return ((value.double() - expected).square().mean().sqrt() / spread).item()

    assert error(result) <= 2 * error(eager) + unit


def normal(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("orders", ["NN", "NT", "TN", "TT"])
def test_products_are_as_exact_as_eager(m: int, n: int, k: int, orders: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a = normal(m, k, dtype=dtype) if orders[0] == "N" else normal(k, m, dtype=dtype).T
    b = normal(k, n, dtype=dtype) if orders[1] == "N" else normal(n, k, dtype=dtype).T
    check(lambda x, y: x @ y, a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_what_follows_a_product_is_computed_with_it(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, w, bias, residual = (normal(*s, dtype=dtype) for s in ((m, k), (n, k), (n,), (m, n)))
    check(lambda x, w, b, r: torch.relu(torch.nn.functional.linear(x, w, b)) + r, x, w, bias, residual)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), [(512, 64, 512), (70, 136, 64), (1, 256, 256), (17, 33, 9)])
def test_products_of_batches_are_as_exact_as_eager(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(lambda x, y: x @ y.mT, normal(3, 4, m, k, dtype=dtype), normal(3, 4, n, k, dtype=dtype))


def test_views_that_start_anywhere_are_multiplied() -> None:
    torch.manual_seed(0)
    whole = normal(65, 264, dtype=torch.float16)
    w = normal(128, 256, dtype=torch.float16)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: x @ w.T, backend=compile_fx, dynamic=False)
    for first in (0, 1, 8):
        x = whole[:, first : first + 256]
        torch.testing.assert_close(compiled(x, w).double(), x.double() @ w.T.double(), rtol=2e-3, atol=5e-2)


def test_sums_over_nothing_are_zero() -> None:
    a, b = (torch.zeros(*shape, device="cuda", dtype=torch.float16) for shape in ((64, 0), (64, 0)))
    torch._dynamo.reset()
    assert (torch.compile(lambda x, y: x @ y.T, backend=compile_fx, dynamic=False)(a, b) == 0).all()
