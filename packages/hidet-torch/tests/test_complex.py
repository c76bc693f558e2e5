"""Complex tensors: computed by kernels on their parts, with eager mode's values, layouts and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hidet.errors import FallbackWarning
from hidet.testing.numerics import Sample, check_output
from hidet.torch import collect_reports

Function = Callable[..., Any]
STRICT = {"strict": True}


def _complex(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64) if not _is_exact(value) else value


def _is_exact(value: torch.Tensor) -> bool:
    return not (value.is_complex() or value.is_floating_point())


def _assert_close(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """Types and layout of eager mode, and errors as near to the exact result as eager mode's. Nothing is more exact
    than double precision: its results are some units away from eager mode's."""
    assert (got.dtype, got.shape, got.stride()) == (eager.dtype, eager.shape, eager.stride())
    if eager.dtype in (torch.complex128, torch.float64):
        size = eager.abs().max().item() if eager.numel() else 0.0
        torch.testing.assert_close(got, eager, rtol=0, atol=16 * torch.finfo(torch.float64).eps * size)
        return
    verdict = check_output("result", [Sample(*(x.resolve_conj().numpy() for x in (got, eager, exact)))])
    assert verdict.correct, str(verdict)


def _check(function: Function, *inputs: torch.Tensor, **options: Any) -> None:
    compiled = torch.compile(function, backend="hidet", options=STRICT, **options)
    results = [
        each if isinstance(each, tuple) else (each,)
        for each in (compiled(*inputs), function(*inputs), function(*[_wide(x) for x in inputs]))
    ]
    for got, eager, exact in zip(*results, strict=True):
        _assert_close(got, eager, exact)


ONE_OPERAND: dict[str, Function] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("abs", "angle", "sgn", "neg", "square", "reciprocal", "sqrt", "rsqrt", "exp", "log", "log2", "log10"),
            *("sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid", "isnan", "isinf", "isfinite", "logical_not"),
            *("real", "imag", "view_as_real", "sum", "mean", "conj_physical"),
        )
    },
    "conj": lambda z: z.conj() + 1,
    "pow 2": lambda z: z**2,
    "pow -1": lambda z: z**-1,
    "pow 2.5": lambda z: z**2.5,
    "pow complex": lambda z: z ** (1 + 2j),
    "power of a number": lambda z: 2**z,
    "sum along an axis": lambda z: z.sum(0),
    "norm": torch.linalg.vector_norm,
    "view_as_complex": lambda z: torch.view_as_complex(torch.view_as_real(z) * 2),
    "casts": lambda z: (z.to(torch.complex128), z.real.to(torch.complex64)),
    "views": lambda z: (z.t(), z[1:, ::2], z.reshape(-1), z.unsqueeze(1).expand(3, 2, 4)),
    "views of what is computed": lambda z: ((z * 2).t(), (z * 2)[:, ::2], (z * 2).expand(2, 3, 4)),
    "moves": lambda z: (z.flip(0), z.roll(1, 1), F.pad(z, (1, 2), value=2.5), torch.cat([z, z.real]), z[[1, 2]]),
    "new tensors": lambda z: (torch.zeros_like(z), torch.ones_like(z), torch.full((2,), 1 + 2j) * z[0, 0]),
    "where": lambda z: (torch.where(z.real > 0, z, 0), z.masked_fill(z.imag > 0, 1j)),
}

TWO_OPERANDS: dict[str, Function] = {
    "add": lambda a, b: (a + b, a + 1, a + 2j, a + b.real, b.real + a),
    "sub": lambda a, b: (a - b, 1 - a, a - 2j, b.real - a),
    "mul": lambda a, b: (a * b, a * 2.5, a * 2j, a * b.real),
    "div": lambda a, b: (a / b, a / 3, 2 / a, a / b.real, b.real / a, a / (1 + 2j)),
    "equal": lambda a, b: (a == b, a != a, a == a.real),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "products of matrices": lambda a, b: (a @ b.mT, torch.addmm(a @ b.mT, a, b.mT, beta=2)),
    "polar": lambda a, b: (torch.polar(a.real.abs(), b.imag), torch.complex(a.real, b.imag)),
    "pow": lambda a, b: a**b,
}


@pytest.mark.parametrize("name", ONE_OPERAND)
@pytest.mark.thorough(every=4)
def test_functions_of_a_complex_tensor_are_compiled(name: str) -> None:
    """defects.md, left to torch: view_as_real, view_as_complex."""
    _check(ONE_OPERAND[name], _complex(3, 4))


@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_functions_of_two_complex_tensors_are_compiled(name: str) -> None:
    """defects.md, left to torch: complex add, complex mul."""
    _check(TWO_OPERANDS[name], _complex(3, 4), _complex(3, 4))


@pytest.mark.parametrize("shape", [(), (0, 3), (5,)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_tensors_of_any_size(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _check(lambda z: (z * z + 1j, z.abs(), z.sum()), _complex(*shape, dtype=dtype))


def test_complex_inputs_of_other_layouts_and_pending_conjugates() -> None:
    z = _complex(4, 6)
    for given in (z.t(), z[1:, ::2], z.conj(), z.expand(2, 4, 6)):
        torch._dynamo.reset()
        _check(lambda x: (x * 2j, x.abs()), given)


def test_complex_tensors_of_symbolic_sizes() -> None:
    compiled = torch.compile(lambda z: (z * 2j + 1).abs().sum(0), backend="hidet", options=STRICT, dynamic=True)
    for rows in (3, 5, 8):
        z = _complex(rows, 4)
        torch.testing.assert_close(compiled(z), (z * 2j + 1).abs().sum(0))


def test_a_complex_input_is_overwritten_and_views_of_it_share_its_memory() -> None:
    def function(z: torch.Tensor) -> torch.Tensor:
        z.mul_(2j)
        z[0].add_(1)
        return z.t()

    z, expected = _complex(3, 4), torch.empty(0)
    expected = z.clone()
    got, want = torch.compile(function, backend="hidet", options=STRICT)(z), function(expected)
    torch.testing.assert_close(z, expected)
    torch.testing.assert_close(got, want)
    assert got.data_ptr() == z.data_ptr() and got.stride() == want.stride()


@pytest.mark.parametrize(
    "function",
    [
        lambda z: (z * z.conj()).real + z.abs() + z.exp().imag + (z / (z + 3)).real,
        lambda z: (z @ z.mT).abs().sum() + torch.view_as_real(z).pow(2).sum() + z.sgn().angle().sum(),
        lambda z: torch.view_as_real(torch.polar(z.abs(), z.angle() * 2)).sin(),
        lambda z: torch.fft.fft(z).abs() + torch.fft.fft2(z).imag,
        lambda z: torch.fft.rfft(z.real).abs().pow(2).sum() + torch.fft.irfft(z).pow(2).sum(),
    ],
)
@pytest.mark.thorough(every=2)
def test_gradients_of_complex_tensors(function: Function) -> None:
    leaves = [_complex(3, 4).requires_grad_()]
    leaves.append(leaves[0].detach().clone().requires_grad_())
    torch.compile(function, backend="hidet", options=STRICT)(leaves[0]).sum().backward()
    function(leaves[1]).sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


FOURIER: dict[str, Function] = {
    "complex": lambda z: (torch.fft.fft(z), torch.fft.ifft(z), torch.fft.fft(z, dim=0, norm="ortho")),
    "other lengths": lambda z: (torch.fft.fft(z, n=6), torch.fft.fft(z, n=11), torch.fft.irfft(z, n=13)),
    "real": lambda z: (torch.fft.rfft(z.real), torch.fft.irfft(z), torch.fft.fft(z.real), torch.fft.hfft(z)),
    "several axes": lambda z: (torch.fft.fft2(z), torch.fft.rfft2(z.real, norm="ortho"), torch.fft.irfft2(z)),
    "norms": lambda z: tuple(torch.fft.ifftn(z, norm=norm) for norm in ("forward", "backward", "ortho")),
    "shifted": lambda z: torch.fft.fftshift(torch.fft.ihfft(z.real)),
}


@pytest.mark.parametrize("name", FOURIER)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.thorough(every=5)
def test_fourier_transforms_are_compiled(name: str, dtype: torch.dtype) -> None:
    """Each along an axis that is short, and one that is made of two. defects.md, left to torch: fft."""
    _check(FOURIER[name], _complex(5, 8, dtype=dtype))
    torch._dynamo.reset()
    _check(FOURIER[name], _complex(2, 72, dtype=dtype))


def test_short_time_transforms_there_and_back() -> None:
    window = torch.hann_window(32)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.stft(x, 32, 8, window=window.to(x.dtype), return_complex=True)
        return found, found.abs(), torch.istft(found, 32, 8, window=window.to(x.dtype))

    _check(function, torch.randn(3, 128))


def test_transforms_of_a_symbolic_number_of_signals() -> None:
    compiled = torch.compile(lambda x: torch.fft.rfft(x).abs(), backend="hidet", options=STRICT, dynamic=True)
    for count in (2, 5, 7):
        x = torch.randn(count, 16)
        torch._dynamo.mark_static(x, 1)
        torch.testing.assert_close(compiled(x), torch.fft.rfft(x).abs())


def test_an_operator_without_a_function_of_parts_runs_in_torch_on_complex_tensors() -> None:
    def function(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, vectors = torch.linalg.eig(z * 2)
        return (z + 1).asin() * 2, values + 1, vectors.abs()

    z = _complex(3, 3)
    with pytest.warns(FallbackWarning, match="aten.asin.*no function of real and imaginary parts"):
        got = torch.compile(function, backend="hidet")(z)
    for result, want in zip(got, function(z), strict=True):
        torch.testing.assert_close(result, want)


def _rotate(q: torch.Tensor, k: torch.Tensor, turns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary embeddings as LLaMA's first code writes them."""
    rotated = []
    for heads in (q, k):
        pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
        factors = turns.view(1, pairs.shape[1], 1, pairs.shape[-1])
        rotated.append(torch.view_as_real(pairs * factors).flatten(3).type_as(heads))
    return rotated[0], rotated[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_embeddings_by_view_as_complex(dtype: torch.dtype) -> None:
    angles = torch.outer(torch.arange(10.0), 10000.0 ** -torch.arange(0, 1, 1 / 8))
    turns = torch.polar(torch.ones_like(angles), angles)
    q, k = torch.randn(2, 10, 4, 16, dtype=dtype), torch.randn(2, 10, 2, 16, dtype=dtype)
    got = torch.compile(_rotate, backend="hidet", options=STRICT)(q, k, turns)
    for result, want in zip(got, _rotate(q, k, turns), strict=True):
        torch.testing.assert_close(result, want)


def test_rotary_embeddings_are_one_kernel_a_tensor() -> None:
    q, k, turns = torch.randn(2, 10, 4, 16), torch.randn(2, 10, 2, 16), _complex(10, 8)
    with collect_reports() as reports:
        torch.compile(_rotate, backend="hidet", options=STRICT)(q, k, turns)
    (report,) = reports
    assert report.tasks == 2, str(report)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex_numbers_of_half_precision_are_left_to_torch() -> None:
    z = _complex(3, 4).to(torch.complex32)
    with pytest.warns(FallbackWarning, match="complex32 beside other complex types"):
        got = torch.compile(lambda z: z.to(torch.complex64) * 2, backend="hidet")(z)
    assert torch.equal(got, z.to(torch.complex64) * 2)
