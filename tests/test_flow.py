"""Operators on tensors, one by one and as graphs of symbolic ones, as in the quick start of earlier versions."""

from __future__ import annotations

import functools
import inspect
import operator

import numpy as np
import pytest
import torch

import hidet
from hidet.errors import DTypeError, HidetError, LaunchError, OptionError, ShapeError, UnsupportedOp
from hidet.operators import FAMILIES, all_operators
from hidet.plugins.host import load_registry

CASES = {
    "sum of tensors": (lambda h, x, y: x + y, lambda x, y: x + y),
    "numbers on both sides": (lambda h, x, y: 2 - x * 3 / (y * y + 1.5), lambda x, y: 2 - x * 3 / (y * y + 1.5)),
    "signs and powers": (lambda h, x, y: -(x**2) % 3, lambda x, y: -(x**2) % 3),
    "comparison": (lambda h, x, y: h.ops.where(x > y, x, 0.0), lambda x, y: torch.where(x > y, x, 0.0)),
    "product": (lambda h, x, y: x @ h.ops.transpose(y), lambda x, y: x @ y.T),
    "product with a transposed matrix": (lambda h, x, y: h.ops.matmul_nt(x, y), lambda x, y: x @ y.T),
    "activations": (
        lambda h, x, y: h.ops.relu(x) + h.ops.gelu(y) + h.ops.clip(x, -0.5, 0.5),
        lambda x, y: torch.relu(x) + torch.nn.functional.gelu(y) + x.clamp(-0.5, 0.5),
    ),
    "gelu by tanh": (
        lambda h, x, y: h.ops.gelu(x, approximate=True),
        lambda x, y: torch.nn.functional.gelu(x, approximate="tanh"),
    ),
    "softmax": (lambda h, x, y: h.ops.softmax(x) + h.ops.softmax(y, axis=0), lambda x, y: x.softmax(1) + y.softmax(0)),
    "norm": (
        lambda h, x, y: h.ops.layer_norm(x, epsilon=1e-3),
        lambda x, y: torch.nn.functional.layer_norm(x, [6], eps=1e-3),
    ),
    "reductions": (
        lambda h, x, y: h.ops.sum(x, 0) + h.ops.max(y, [0]) + h.ops.mean(x, dims=0) + h.ops.var(y, 0),
        lambda x, y: x.sum(0) + y.amax(0) + x.mean(0) + y.var(0, correction=0),
    ),
    "kept dims": (lambda h, x, y: x - x.mean(1, keep_dim=True), lambda x, y: x - x.mean(1, keepdim=True)),
    "places": (lambda h, x, y: h.ops.argmax(x, 1), lambda x, y: x.argmax(1)),
    "movement": (
        lambda h, x, y: h.ops.concat([x, y], axis=1).reshape([2, -1]).unsqueeze(0).squeeze(0),
        lambda x, y: torch.cat([x, y], 1).reshape(2, -1),
    ),
    "exchanged dims": (lambda h, x, y: h.ops.cast(x.transpose(0, 1), "float64"), lambda x, y: x.T.double()),
    "flattened": (lambda h, x, y: h.ops.flatten(x), lambda x, y: x.flatten()),
    "parts": (
        lambda h, x, y: h.ops.split(x, 2, axis=1)[1] + h.ops.split(y, [1, 3, 2], 1)[1],
        lambda x, y: x[:, 3:] + y[:, 1:4],
    ),
    "a row": (lambda h, x, y: x[1], lambda x, y: x[1]),
    "a column from behind": (lambda h, x, y: x[..., -2], lambda x, y: x[..., -2]),
    "steps and new dims": (lambda h, x, y: x[None, 1:, ::2, None], lambda x, y: x[None, 1:, ::2, None]),
    "an element": (lambda h, x, y: x[2, 3] + y[0, None, 0], lambda x, y: x[2, 3] + y[0, None, 0]),
    "rows by numbers": (
        lambda h, x, y: x[h.asarray([2, 0], dtype="int64")],
        lambda x, y: x[torch.tensor([2, 0])],
    ),
}  # fmt: skip


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.thorough(every=2)
def test_operators_run_at_once_and_in_graphs(name):
    ours, right = CASES[name]
    arrays = drawn(4, 6), drawn(4, 6, seed=1)
    expected = right(*map(torch.from_numpy, arrays)).numpy()

    tensors = [hidet.asarray(array) for array in arrays]
    np.testing.assert_allclose(ours(hidet, *tensors).numpy(), expected, rtol=1e-4, atol=1e-5)

    symbols = [hidet.symbol_like(tensor) for tensor in tensors]
    output = ours(hidet, *symbols)
    graph = hidet.trace_from(output, inputs=symbols)
    assert (output.shape, output.dtype.name) == (expected.shape, str(expected.dtype))
    np.testing.assert_allclose(graph(*tensors).numpy(), expected, rtol=1e-4, atol=1e-5)


TYPES = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")
PYTHON = {"+": operator.add, "*": operator.mul, "/": operator.truediv, "**": operator.pow, "<": operator.lt}


@pytest.mark.parametrize("symbol", PYTHON)
@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((2, 3), ()), ((), ()), ((), (3,))], ids=str)
@pytest.mark.thorough(every=6)
def test_arithmetic_of_several_types_is_in_the_type_of_torch(symbol, shapes):
    """user-walk.md section 6, row 1."""
    for left in TYPES:
        for right in TYPES[TYPES.index(left) + 1 :]:
            a, b = torch.full(shapes[0], 2).to(getattr(torch, left)), torch.full(shapes[1], 3).to(getattr(torch, right))
            found = PYTHON[symbol](hidet.from_torch(a), hidet.from_torch(b))
            torch.testing.assert_close(found.torch(), PYTHON[symbol](a, b))


@pytest.mark.parametrize("number", [True, 3, 0.5])
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_have_the_type_that_torch_gives_them(dtype, number):
    """user-walk.md section 6, row 1."""
    x = torch.tensor([1, 0, 1]).to(getattr(torch, dtype))
    for compute in (lambda t: t + number, lambda t: number + t, lambda t: t / number, lambda t: t < number):
        torch.testing.assert_close(compute(hidet.from_torch(x)).torch(), compute(x))


def test_products_and_symbolic_tensors_of_several_types():
    """user-walk.md section 6, row 1."""
    a, b = torch.ones(2, 3), torch.ones(3, 4, dtype=torch.float16)
    product = hidet.from_torch(a) @ hidet.from_torch(b)
    torch.testing.assert_close(product.torch(), a @ b.float())
    x, n = hidet.symbol([3]), hidet.symbol([3], dtype="int64")
    graph = hidet.trace_from(x ** hidet.asarray(3) + n, inputs=[x, n])
    assert graph(hidet.full([3], 2.0), hidet.asarray([1, 2, 3])).tolist() == [9.0, 10.0, 11.0]
    with pytest.raises(DTypeError, match="do not promote"):
        hidet.ones([2]) + hidet.symbol([2], dtype="float8_e4m3fn")


def test_convolution_and_pooling_have_their_old_names():
    x, weight = drawn(2, 3, 9, 9), drawn(4, 3, 3, 3)
    found = hidet.ops.max_pool2d(
        hidet.ops.conv2d(hidet.asarray(x), hidet.asarray(weight), stride=2, padding=(1, 1)),
        kernel=(2, 2),
        stride=(2, 2),
    )
    right = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), stride=2, padding=1)
    expected = torch.nn.functional.max_pool2d(right, 2, 2)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_attention_takes_transposed_keys_that_are_scaled_already():
    q, k, v = (torch.from_numpy(drawn(1, 2, 5, 8, seed=seed)) for seed in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    keys = (k.transpose(2, 3) / 8**0.5).contiguous()
    found = hidet.ops.attention(*map(hidet.from_torch, (q, keys, v)), is_causal=True)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def quick_start(device: str) -> tuple[hidet.FlowGraph, hidet.Tensor, np.ndarray]:
    """The part of the quick start about tensors and graphs: the optimised graph, its argument and what is right."""
    a = hidet.randn([2, 3], device=device)
    b = hidet.randn([3, 2], device=device)
    c = hidet.randn([2], device=device)
    d = hidet.ops.matmul(a, b)
    d = d + c

    def linear_bias(x, b, c):
        return hidet.ops.matmul(x, b) + c

    x = hidet.symbol_like(a)
    y = linear_bias(x, b, c)
    assert x.trace is None
    assert y.trace is not None
    assert str(x).startswith("Tensor(shape=(2, 3), dtype='float32'")
    operation, number = y.trace
    assert (operation.name, number) == ("add", 0)
    assert f"from {y.trace}" in str(y)

    graph: hidet.FlowGraph = hidet.trace_from(y)
    assert str(graph).splitlines() == [
        f"Graph(x: float32[2, 3][{device}]){{",
        f"  c = Constant(float32[3, 2][{device}])",
        f"  c_1 = Constant(float32[2][{device}])",
        f"  x_1: float32[2, 2][{device}] = "
        "Matmul(x, c, trans_a=False, trans_b=False, fp32_precision='ieee', fast_accum=False)",
        f"  x_2: float32[2, 2][{device}] = Add(x_1, c_1, alpha=1)",
        "  return x_2",
        "}",
    ]
    assert [node.name for node in graph.nodes] == ["matmul", "add"]
    opt_graph: hidet.FlowGraph = hidet.graph.optimize(graph)
    (kernel,) = [line for line in str(opt_graph).splitlines() if ": float32[2, 2]" in line]
    assert " = Fused" in kernel and ", Add), anchor=0)" in kernel, "the product and the sum are one kernel"
    right = a.numpy() @ b.numpy() + c.numpy()
    np.testing.assert_allclose(d.numpy(), right, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(opt_graph(a).numpy(), right, rtol=1e-5, atol=1e-6)
    return opt_graph, a, right


def test_the_quick_start_on_the_cpu():
    graph, a, right = quick_start("cpu")
    torch.testing.assert_close(graph(a.torch()), torch.from_numpy(right))
    assert graph.latency(warmup=1, repeat=3) > 0
    with pytest.raises(LaunchError, match="this graph is on cpu"):
        graph.cuda_graph()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_quick_start_on_a_gpu():
    graph, a, right = quick_start("cuda")
    cuda_graph = graph.cuda_graph()
    for _ in range(4):  # captured, then replayed
        (found,) = cuda_graph.run([a])
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=1e-6)
    other = hidet.randn([2, 3], device="cuda")
    np.testing.assert_allclose(cuda_graph.run([other])[0].numpy(), graph(other).numpy(), rtol=1e-5, atol=1e-6)


def test_sizes_may_be_symbols():
    x = hidet.symbol(["rows", 4])
    graph = hidet.trace_from(hidet.ops.softmax(x * 2.0))
    assert str(x) == "Tensor(shape=(rows, 4), dtype='float32', device='cpu')"
    for rows in (1, 5):
        given = drawn(rows, 4)
        expected = torch.from_numpy(given * 2).softmax(1).numpy()
        np.testing.assert_allclose(graph(hidet.asarray(given)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_several_inputs_and_outputs_are_in_the_order_that_is_asked_for():
    x, y = hidet.symbol([3]), hidet.symbol([3])
    graph = hidet.trace_from([x - y, x], inputs=[y, x])
    difference, same = graph(hidet.ones([3]), hidet.full([3], 5.0))
    assert (difference.tolist(), same.tolist()) == ([4, 4, 4], [5, 5, 5])
    with pytest.raises(ShapeError, match="2 inputs, and nothing says their order"):
        hidet.trace_from(x - y)
    with pytest.raises(ShapeError, match=r"reads a symbolic tensor that is no input: Tensor\(shape=\(3,\)"):
        hidet.trace_from(x - y, inputs=[x])


def test_what_does_not_fit_is_an_error():
    x = hidet.symbol([3])
    with pytest.raises(LaunchError, match="a symbolic tensor has no elements"):
        x.numpy()
    with pytest.raises(ShapeError, match="takes symbolic tensors"):
        hidet.trace_from(hidet.ones([3]))
    with pytest.raises(AttributeError, match=r"hidet\.ops has no operator 'mathmul'"):
        hidet.ops.mathmul(x, x)
    with pytest.raises(UnsupportedOp, match="operator 'mathmul' is unknown"):
        hidet.api.flow.apply("mathmul", [x])
    with pytest.raises(DTypeError, match="an operator got a ndarray"):
        hidet.ops.add(x, np.ones(3))
    with pytest.raises(HidetError, match="matmul"):
        hidet.ops.matmul(hidet.ones([2, 3]), hidet.ones([2, 3]))
    with pytest.raises(IndexError, match="index 5 of dim 0 is outside of its 3 elements"):
        hidet.ones([3])[5]
    with pytest.raises(TypeError):
        hidet.ones([3]) + "text"


def test_equal_calls_are_compiled_once(monkeypatch):
    from hidet.api.flow import operation

    x = hidet.asarray(drawn(5, 7))
    hidet.ops.tanh(x)
    monkeypatch.setattr(operation, "compile_graph", None)
    np.testing.assert_allclose(hidet.ops.tanh(x).numpy(), np.tanh(x.numpy()), rtol=1e-5)


def test_operators_named_as_the_family_that_defines_them_are_functions():
    names = {spec.name for spec in all_operators()}
    shared = [family for family in FAMILIES if family in names]
    assert "matmul" in shared
    for name in shared:
        assert inspect.isfunction(getattr(hidet.ops, name)) or isinstance(getattr(hidet.ops, name), functools.partial)


def test_tensors_stay_keys_and_have_a_truth_of_one_element():
    x = hidet.ones([2])
    assert x in {x: 1}
    assert bool(hidet.ones([1])) and float(hidet.full([], 2.5)) == 2.5
    assert [float(element) for element in hidet.arange(3, dtype="float32")] == [0, 1, 2]


def test_functions_of_operators_say_what_they_take():
    """plugin-friction.md bug 9, user-walk.md section 6, row 10."""
    for name in dir(hidet.ops):
        if name in load_registry().operators:
            function = getattr(hidet.ops, name)
            assert inspect.signature(function) is not None
            assert inspect.getdoc(function) != inspect.getdoc(functools.partial)
    assert hidet.ops.rms_norm.__doc__.startswith(load_registry().operators["rms_norm"].doc)
    assert hidet.ops.rms_norm.__name__ == "rms_norm"
    assert str(inspect.signature(hidet.ops.rms_norm)).startswith("(x, weight=None, /, *, ")
    assert {"matmul", "softmax", "rms_norm", "relu", "conv2d"} <= set(dir(hidet.ops))


@pytest.mark.parametrize(
    ("holder", "name", "near"),
    [(hidet.ops, "matmull", "matmul"), (hidet, "radn", "randn"), (hidet.option, "cachedir", "cache_dir")],
)
def test_a_misspelt_name_error_suggests_the_right_one(holder, name, near):
    """user-walk.md section 6, row 10."""
    with pytest.raises(AttributeError, match=f"did you mean '{near}'"):
        getattr(holder, name)


def test_a_tensor_on_a_device_called_gpu_is_refused_with_the_right_name():
    """user-walk.md section 6, row 9."""
    with pytest.raises(OptionError, match="'gpu'") as caught:
        hidet.zeros([2], device="gpu")
    assert caught.value.hint == "did you mean 'cuda'?"


def test_a_graph_of_symbolic_tensors_is_compiled_as_others_are():
    """user-walk.md section 6, row 5: `hidet.compile` refused an object of hidet's own."""
    x = hidet.symbol([2, 3])
    graph = hidet.trace_from(hidet.ops.relu(x * 2.0))
    compiled = hidet.compile(graph)
    given = np.array([[1, -1, 2], [3, -4, 5]], np.float32)
    assert np.array_equal(compiled(given), np.maximum(given * 2, 0))
    assert repr(graph) == "<FlowGraph: 1 inputs, 2 operators, 1 outputs; print it to see them>"
    assert "f32[2, 3]" in repr(compiled) and "kernels for cpu" in repr(compiled)
    with pytest.raises(HidetError, match="it has inputs"):
        hidet.compile(graph, (given,))
