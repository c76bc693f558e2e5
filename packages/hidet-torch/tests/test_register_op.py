"""Hidet Script kernels as operators of torch, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import hidet
import hidet.torch
from hidet.errors import DTypeError, LaunchError, ShapeError
from hidet.lang import attrs, boolean, f32, grid, i32, i64
from hidet.lang.cuda import blockIdx, threadIdx
from hidet.runtime.compiled import CompileReport

M, N, K = (hidet.dims.symbol(name) for name in "mnk")

pytestmark = pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")


@hidet.script
def matmul(a: f32[M, K], b: f32[K, N], c: f32[M, N]):
    for i, j in grid(M, N):
        c[i, j] = 0.0
        for k in range(K):
            c[i, j] += a[i, k] * b[k, j]


@hidet.script
def accumulate(total: f32[N], x: f32[N], factor: f32, is_negative: boolean):
    for i in range(N):
        total[i] += x[i] * factor * (-1.0 if is_negative else 1.0)


@hidet.script
def split(x: ~f32, low: ~f32, high: ~f32, count: i64, at: i64):
    for i in range(count):
        if i < at:
            low[i] = x[i]
        else:
            high[i - at] = x[i]


@hidet.script
def on_a_gpu(x: f32[N], y: f32[N]):
    attrs.cuda.grid_dim = (N + 127) // 128
    attrs.cuda.block_dim = 128
    i = blockIdx.x * 128 + threadIdx.x
    if i < N:
        y[i] = x[i] * 2.0


def keep_factors(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def matmul_backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = ctx.saved_tensors
    return gradient @ b.t(), a.t() @ gradient


@pytest.fixture
def operator() -> Callable[..., Any]:
    return hidet.torch.register_op("hidet_test::matmul", matmul, outputs=["c"])


@pytest.fixture
def in_place() -> Callable[..., Any]:
    return hidet.torch.register_op("hidet_test::accumulate", accumulate)


A, B = torch.randn(3, 4), torch.randn(4, 5)


def test_an_operator_makes_and_returns_its_outputs(operator: Callable[..., Any]) -> None:
    torch.testing.assert_close(operator(A, B), A @ B)
    assert str(operator._schema) == "hidet_test::matmul(Tensor a, Tensor b) -> Tensor"
    torch.testing.assert_close(torch.ops.hidet_test.matmul(B.t(), A.t()), B.t() @ A.t())


def test_an_operator_writes_the_arguments_that_its_kernel_writes(in_place: Callable[..., Any]) -> None:
    total = torch.ones(6)
    assert in_place(total, torch.arange(6.0), 0.5, True) is None
    assert total.tolist() == [1.0, 0.5, 0.0, -0.5, -1.0, -1.5]
    assert "Tensor(a!) total, Tensor x, float factor, bool is_negative" in str(in_place._schema)


def test_a_strided_argument_is_written_where_it_lies(in_place: Callable[..., Any]) -> None:
    memory = torch.zeros(4, 2)
    in_place(memory[:, 1], torch.ones(4), 2.0, False)
    assert memory.tolist() == [[0.0, 2.0]] * 4


def test_shapes_of_pointers_are_given_by_a_function() -> None:
    operator = hidet.torch.register_op(
        "hidet_test::split",
        split,
        outputs={"low": lambda x, count, at: (at,), "high": lambda x, count, at: (count - at,)},
    )
    low, high = operator(torch.arange(5.0), 5, 2)
    assert low.tolist() == [0, 1] and high.tolist() == [2, 3, 4]
    torch.library.opcheck(operator, (torch.arange(5.0), 5, 2))


def test_opcheck_passes(operator: Callable[..., Any], in_place: Callable[..., Any]) -> None:
    torch.library.opcheck(operator, (A, B))
    torch.library.opcheck(operator, (B.t(), A.t()))
    torch.library.opcheck(in_place, (torch.ones(4), torch.ones(4), 2.0, True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "hidet"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_every_compiler_calls_it(operator: Callable[..., Any], in_place: Any, backend: str, dynamic: bool) -> None:
    def function(a: torch.Tensor, b: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        product = operator(a.relu(), b) + 1
        in_place(total, product[0], 2.0, False)
        return product.sum(1) + total.sum()

    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for m in (3, 7):
            a, ours, theirs = torch.randn(m, 4), torch.ones(5), torch.ones(5)
            torch.testing.assert_close(compiled(a, B, ours), function(a, B, theirs))
            torch.testing.assert_close(ours, theirs)


def strictly(function: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> CompileReport:
    """The report of `function`, compiled with nothing of it left to torch, which gives what `function` gives."""
    compiled = torch.compile(function, backend="hidet", fullgraph=True, dynamic=dynamic, options={"strict": True})
    with torch.no_grad(), hidet.torch.collect_reports() as reports:
        torch.testing.assert_close(compiled(*inputs), function(*inputs))
    (report,) = reports
    return report


@pytest.mark.parametrize("dynamic", [False, True])
def test_hidet_compiles_a_script_with_the_graph_around_it(operator: Callable[..., Any], dynamic: bool) -> None:
    report = strictly(lambda a, b: operator(a.relu(), b.t()) + 1, A, B.t(), dynamic=dynamic)
    assert (report.nodes.eager, report.nodes.fallback, report.nodes.routine) == (0, 0, 0)
    assert "script" in {use.rule for use in report.uses}


def test_numbers_reach_a_compiled_script() -> None:
    @hidet.script
    def scale(x: f32[M, N], factor: f32, is_negative: boolean, y: f32[N, M], row: i32):
        for i, j in grid(M, N):
            y[j, i] = x[i, j] * factor * (-1.0 if is_negative else 1.0) if i == row else 0.0

    operator = hidet.torch.register_op("hidet_test::scale", scale, outputs=["y"])
    strictly(lambda x: operator(x.exp(), 2.5, True, 1).sum(0), A)
    strictly(lambda x: operator(x.exp(), 0.5, False, x.shape[0] - 2), A, dynamic=True)


def test_a_compiled_script_sees_images_row_major() -> None:
    @hidet.script
    def first_channel(x: f32[2, 4, 5, 5], y: f32[2, 4, 5, 5]):
        for n, c, i, j in grid(2, 4, 5, 5):
            y[n, c, i, j] = x[n, 0, i, j]

    operator = hidet.torch.register_op("hidet_test::first_channel", first_channel, outputs=["y"])
    weight = torch.randn(4, 4, 1, 1)
    strictly(lambda x: torch.conv2d(operator(torch.conv2d(x, weight)), weight), torch.randn(2, 4, 5, 5))


def test_a_script_that_arguments_do_not_fit_says_so_when_it_runs(operator: Callable[..., Any]) -> None:
    compiled = torch.compile(lambda a, b: operator(a, b), backend="hidet")
    with pytest.raises(hidet.HidetError, match="argument b of matmul has shape"):
        compiled(A, torch.randn(5, 4))


@hidet.script
def shift(x: f32[N], y: f32[N], offset: i32):
    for i in range(N):
        y[i] = x[i] + offset


@pytest.mark.parametrize("offset", [2**40, -(2**31) - 1])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_script_refuses_numbers_that_its_parameter_does_not_hold(offset: int, dynamic: bool) -> None:
    operator = hidet.torch.register_op("hidet_test::shift", shift, outputs=["y"])
    compiled = torch.compile(lambda x, k: operator(x, k - 1), backend="hidet", dynamic=dynamic)
    with torch.no_grad():
        for _ in range(2):
            assert compiled(torch.ones(3), 5).tolist() == [5.0] * 3
            with pytest.raises(DTypeError, match=f"offset of .*shift is {offset}, expected an integer of type i32"):
                compiled(torch.ones(3), offset + 1)


def test_a_compiled_script_refuses_a_constant_that_its_parameter_does_not_hold() -> None:
    operator = hidet.torch.register_op("hidet_test::shift", shift, outputs=["y"])
    compiled = torch.compile(lambda x: operator(x, 2**40), backend="hidet")
    with pytest.raises(DTypeError, match="argument offset of shift is 1099511627776"):
        compiled(torch.ones(3))


def test_inductor_calls_it(operator: Callable[..., Any]) -> None:
    compiled = torch.compile(lambda a, b: operator(a.sin(), b).cos(), fullgraph=True)
    torch.testing.assert_close(compiled(A, B), (A.sin() @ B).cos())


def test_gradients_are_those_of_the_formula() -> None:
    operator = hidet.torch.register_op(
        "hidet_test::matmul", matmul, outputs=["c"], backward=matmul_backward, setup_context=keep_factors
    )
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    operator(a, b).square().sum().backward()
    expected = 2 * (A @ B)
    torch.testing.assert_close(a.grad, expected @ B.t())
    torch.testing.assert_close(b.grad, A.t() @ expected)
    torch.library.opcheck(operator, (a, b))


def test_torch_warns_of_a_missing_gradient(operator: Callable[..., Any]) -> None:
    result = operator(A.clone().requires_grad_(), B)
    torch.testing.assert_close(result.detach(), A @ B)
    with pytest.warns(UserWarning, match="autograd kernel was not registered"):
        result.sum().backward()


def test_an_operator_in_place_takes_no_gradient_formula() -> None:
    with pytest.raises(LaunchError, match="changes an argument in place"):
        hidet.torch.register_op("hidet_test::wrong", accumulate, backward=matmul_backward)


def test_compiled_kernels_and_modules_are_taken(operator: Callable[..., Any]) -> None:
    with hidet.script_module() as module:
        module.add(matmul)
    built = module.build()
    for number, kernel in enumerate((module, built, built["matmul"])):
        operator = hidet.torch.register_op(f"hidet_test::matmul{number}", kernel, outputs=["c"])
        torch.testing.assert_close(operator(A, B), A @ B)


def test_an_operator_may_be_registered_again(operator: Callable[..., Any]) -> None:
    @hidet.script
    def zero(a: f32[M, K], b: f32[K, N], c: f32[M, N]):
        for i, j in grid(M, N):
            c[i, j] = 0.0

    again = hidet.torch.register_op("hidet_test::matmul", zero, outputs=["c"])
    assert not again(A, B).any() and not torch.ops.hidet_test.matmul(A, B).any()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((A.double(), B), "operator hidet_test::matmul: argument a of matmul has dtype float64, expected float32"),
        ((A, B.t()), "argument b of matmul has shape"),
        ((A[0], B), "argument a of matmul has 1 dims, expected 2"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    operator: Callable[..., Any], arguments: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(hidet.HidetError, match=problem):
        operator(*arguments)
    torch.testing.assert_close(operator(A, B), A @ B)


@hidet.script
def of_numbers(a: f32, b: i32) -> f32:
    return a + b


@pytest.mark.parametrize(
    ("name", "kernel", "outputs", "error", "problem"),
    [
        ("matmul", matmul, ["c"], LaunchError, "needs a name like 'mylib::add'"),
        ("hidet_test::wrong", matmul, ["d"], LaunchError, "no parameter 'd'"),
        ("hidet_test::wrong", matmul, ["a"], LaunchError, "does not write its parameter a"),
        ("hidet_test::wrong", split, ["low"], ShapeError, "the shape of output low does not follow"),
        ("hidet_test::wrong", of_numbers, [], LaunchError, "returns a number"),
        ("hidet_test::wrong", {"cuda": matmul}, ["c"], LaunchError, "kernel for 'cuda' runs on 'cpu'"),
        ("hidet_test::wrong", {"cpu": matmul, "cuda": on_a_gpu}, ["c"], LaunchError, "different parameters"),
        ("hidet_test::wrong", print, [], LaunchError, "is no kernel"),
        ("hidet_test::wrong", {}, ["c"], LaunchError, "operator hidet_test::wrong is given no kernel"),
        ("hidet_test::wrong", matmul, "c", LaunchError, "outputs of operator hidet_test::wrong are 'c', expected"),
        (
            "hidet_test::wrong",
            matmul,
            {"c": (3, 4)},
            LaunchError,
            r"the shape of output c is \(3, 4\), expected a function",
        ),
        ("hidet_test::wrong", matmul, {"c": lambda a: a.shape}, LaunchError, r"does not take the arguments \(a, b\)"),
    ],
)
def test_kernels_that_are_no_operators_are_refused(
    name: str, kernel: Any, outputs: Any, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        hidet.torch.register_op(name, kernel, outputs=outputs)


@pytest.mark.parametrize("shape", [None, 3, "abc", (3, 1.5), (3, -1)], ids=str)
def test_a_function_that_gives_no_shape_is_named_with_what_it_gave(shape: Any) -> None:
    operator = hidet.torch.register_op("hidet_test::matmul", matmul, outputs={"c": lambda a, b: shape})
    with pytest.raises(ShapeError, match="the function for output c of operator hidet_test::matmul returned") as caught:
        operator(A, B)
    assert repr(shape) in str(caught.value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGpu:
    def test_the_device_of_the_arguments_chooses_the_kernel(self) -> None:
        @hidet.script
        def on_a_cpu(x: f32[N], y: f32[N]):
            for i in range(N):
                y[i] = x[i] * 2.0

        operator = hidet.torch.register_op("hidet_test::twice", {"cpu": on_a_cpu, "cuda": on_a_gpu}, outputs=["y"])
        x = torch.randn(1000)
        for device in ("cpu", "cuda"):
            assert torch.equal(operator(x.to(device)).cpu(), x * 2)
            torch.library.opcheck(operator, (x.to(device),))
            for backend in ("inductor", "hidet"):
                compiled = torch.compile(lambda x: operator(x + 1) - 1, backend=backend, fullgraph=True)
                torch.testing.assert_close(compiled(x.to(device)).cpu(), x * 2 + 1)

    def test_a_script_is_captured_with_the_graph_around_it(self) -> None:
        operator = hidet.torch.register_op("hidet_test::twice_there", on_a_gpu, outputs=["y"])
        options: dict[str, Any] = {"mode": "reduce-overhead", "strict": True}
        compiled = torch.compile(lambda x: operator(x.sin()[::2] + 1) - 1, backend="hidet", options=options)
        for _ in range(4):
            x = torch.randn(3000, device="cuda")
            torch.testing.assert_close(compiled(x), (x.sin()[::2] + 1) * 2 - 1)
