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

# Each with other tiles on an H100; edges inside of tiles; sums that are split; rows that are no multiples of 16 bytes;
# few rows; one row of few elements.
SIZES = [
    (2048, 2048, 256),
    (3136, 512, 128),
    (1000, 1032, 72),
    (2048, 512, 256),
    (128, 2304, 128),
    (200, 264, 328),
    (64, 64, 4096),
    (1025, 1027, 65),
    (515, 517, 519),
    (33, 77, 111),
    (1, 512, 2048),
    (2, 40, 264),
    (1, 64, 128),
]
ORDERS = [
    *((*size, order, dtype) for size in SIZES for order, dtype in (("NN", torch.bfloat16), ("NT", torch.float16))),
    *((200, 264, 328, order, torch.float16) for order in ("TN", "TT")),
    *((1000, 1032, 72, order, torch.bfloat16) for order in ("TN", "TT")),
    *((33, 77, 111, order, torch.float16) for order in ("TN", "TT")),
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


@pytest.mark.parametrize(("m", "n", "k", "orders", "dtype"), ORDERS)
def test_products_are_as_exact_as_eager(m: int, n: int, k: int, orders: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a = normal(m, k, dtype=dtype) if orders[0] == "N" else normal(k, m, dtype=dtype).T
    b = normal(k, n, dtype=dtype) if orders[1] == "N" else normal(n, k, dtype=dtype).T
    check(lambda x, y: x @ y, a, b)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_what_follows_a_product_is_computed_with_it(m: int, n: int, k: int) -> None:
    torch.manual_seed(0)
    x, w, bias, residual = (normal(*s, dtype=torch.float16) for s in ((m, k), (n, k), (n,), (m, n)))
    check(lambda x, w, b, r: torch.relu(torch.nn.functional.linear(x, w, b)) + r, x, w, bias, residual)


@pytest.mark.parametrize(("m", "n", "k"), [(512, 64, 512), (70, 136, 64), (64, 64, 4096), (1, 256, 256), (17, 33, 9)])
def test_products_of_batches_are_as_exact_as_eager(m: int, n: int, k: int) -> None:
    torch.manual_seed(0)
    check(lambda x, y: x @ y.mT, *(normal(3, 4, rows, k, dtype=torch.bfloat16) for rows in (m, n)))


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("orders", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(("m", "n", "k"), [(512, 520, 264), (130, 77, 111), (1, 512, 1024), (64, 64, 4096)])
def test_f32_is_rounded_to_tf32_exactly_where_torch_does(m: int, n: int, k: int, orders: str, allowed: bool) -> None:
    torch.manual_seed(0)
    a = normal(m, k, dtype=torch.float32) if orders[0] == "N" else normal(k, m, dtype=torch.float32).T
    b = normal(k, n, dtype=torch.float32) if orders[1] == "N" else normal(n, k, dtype=torch.float32).T
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        check(lambda x, y: x @ y, a, b)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


WITHOUT_MATRIX_UNITS = [(1100, 1032, 72), (1027, 1029, 67), (96, 200, 2048), (128, 64, 20)]


@pytest.mark.parametrize(("m", "n", "k"), WITHOUT_MATRIX_UNITS)
def test_products_without_matrix_units_are_as_exact_as_eager(m: int, n: int, k: int) -> None:
    torch.manual_seed(0)
    a, b, bias = (normal(*shape, dtype=torch.float32) for shape in ((m, k), (n, k), (n,)))
    check(lambda x, w, c: torch.relu(torch.nn.functional.linear(x, w, c)), a, b, bias)


@pytest.mark.parametrize(("m", "n", "k"), WITHOUT_MATRIX_UNITS)
def test_products_of_f64_differ_from_eager_by_the_order_of_sums(m: int, n: int, k: int) -> None:
    torch.manual_seed(0)
    a, b = normal(m, k, dtype=torch.float64), normal(k, n, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: x @ y, backend=compile_fx, dynamic=False)
    torch.testing.assert_close(compiled(a, b), a @ b, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("m", "n", "k"), [(300, 768, 1001), (257, 1003, 999), (128, 770, 768)])
def test_rows_of_odd_lengths_are_multiplied_and_written(m: int, n: int, k: int) -> None:
    torch.manual_seed(0)
    a, b, bias = (normal(*shape, dtype=torch.float16) for shape in ((m, k), (n, k), (n,)))
    check(lambda x, w, c: torch.relu(torch.nn.functional.linear(x, w, c)), a, b, bias)


@pytest.mark.parametrize("orders", ["NN", "NT", "TT"])
@pytest.mark.parametrize(("m", "n", "k"), [(1000, 1000, 1000), (2987, 1032, 3000), (300, 4104, 520), (129, 2056, 1016)])
def test_blocks_that_share_copies_multiply_right(m: int, n: int, k: int, orders: str) -> None:
    """Rows of 16-bit floats that begin within lines of the cache: pairs of blocks copy for each other."""
    torch.manual_seed(0)
    a = normal(m, k, dtype=torch.float16) if orders[0] == "N" else normal(k, m + -m % 8, dtype=torch.float16).T[:m]
    b = normal(k, n, dtype=torch.float16) if orders[1] == "N" else normal(n, k, dtype=torch.float16).T
    check(lambda x, y: torch.relu(x @ y), a, b)


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
