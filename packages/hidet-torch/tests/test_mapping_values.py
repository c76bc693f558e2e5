"""Every family of aten operators becomes core operators that give eager mode's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

Check = Callable[..., Any]

X = torch.linspace(-3, 3, 24).reshape(4, 6)
Y = torch.linspace(0.25, 4, 24).reshape(4, 6).flip(0)
N = torch.arange(-12, 12).reshape(4, 6)
B = N > 1
IMAGE = torch.sin(torch.arange(2 * 4 * 7 * 9, dtype=torch.float32)).reshape(2, 4, 7, 9)


def index() -> torch.Tensor:
    """Positions, one of them counted from the end; a constant of the graph that reads it."""
    return torch.tensor([[0, 3, 1], [2, -1, 0]])


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "round to one decimal": lambda x: torch.round(x, decimals=1),
    "relu": torch.relu,
    "isnan": torch.isnan,
    "nan_to_num": lambda x: torch.nan_to_num(x / 0, nan=1.0, posinf=2.0),
    "logical_not": torch.logical_not,
    "clamp from below": lambda x: x.clamp(min=-1),
    "clamp by tensors": lambda x: x.clamp(x - 1, x * 0),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "softplus": lambda x: F.softplus(x, 2, 3),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "prelu": lambda x: F.prelu(x, x[0, :1] * 0 + 0.3),
    "logsigmoid": F.logsigmoid,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.5, 9.0),
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "power 1.5": lambda x: x.abs() ** 1.5,
    "reciprocal square root": lambda x: x.abs() ** -0.5,
    "two to the x": lambda x: 2**x,
    "number minus tensor": lambda x: 1 - x,
    "scaled sum": lambda x: torch.add(x, x, alpha=0.5),
    "floor division": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
    "truncated division": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "remainder": lambda x: x % 0.7,
    "fmod": lambda x: torch.fmod(x, 0.7),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "to integers": lambda x: x.to(torch.int32),
    "to bool": lambda x: x.bool(),
    "to half and back": lambda x: x.half().float(),
}


@pytest.mark.parametrize("function", ELEMENTWISE.values(), ids=ELEMENTWISE.keys())
def test_an_elementwise_function_of_floats(check_import: Check, function: Callable[..., Any]) -> None:
    check_import(function, X)


BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": lambda a, b: torch.sub(a, b, alpha=3),
    "mul": torch.mul,
    "div": torch.div,
    "atan2": torch.atan2,
    "pow": lambda a, b: a.abs() ** b,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "xlogy": torch.xlogy,
    "logaddexp": torch.logaddexp,
    "equal": torch.eq,
    "less": torch.lt,
    "greater or equal": torch.ge,
    "logical and": torch.logical_and,
    "where": lambda a, b: torch.where(a > b, a, b),
    "masked fill": lambda a, b: a.masked_fill(b > 1, -1e9),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "a row broadcast": lambda a, b: a + b[0],
    "a column broadcast": lambda a, b: a * b[:, :1],
}


@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY.keys())
def test_an_elementwise_function_of_two_tensors(check_import: Check, function: Callable[..., Any]) -> None:
    check_import(function, X, Y)


INTEGERS: dict[str, Callable[..., Any]] = {
    "sums keep the type": lambda n: n + 2,
    "a float number makes floats": lambda n: n * 0.5,
    "true division makes floats": lambda n: n / 3,
    "floor division": lambda n: n // 3,
    "remainder": lambda n: n % 5,
    "power": lambda n: n**2,
    "bits": lambda n: (n & 3) | 8,
    "shifts": lambda n: (n << 2) >> 1,
    "common divisors": lambda n: torch.gcd(n, n + 6),
    "common multiples": lambda n: torch.lcm(n, n.new_tensor([4])),
    "a comparison with a float": lambda n: n > 0.5,
    "exponential of integers": torch.exp,
    "sum of integers": lambda n: n.int().sum(),
    "mean needs a float": lambda n: n.float().mean(1),
    "bool arithmetic": lambda n: (n > 0) + (n < -3),
    "mixed integer widths": lambda n: n.to(torch.int8) + n.to(torch.int16),
    "a tensor without axes is weak": lambda n: n.to(torch.int16) + torch.tensor(5),
    "numbers below a type": lambda n: (n.to(torch.uint8) + -1) * -3,
    "numbers above a type": lambda n: n.to(torch.int8) + 300,
    "comparison with numbers outside of a type": lambda n: (n.to(torch.uint8) > -1) | (n.to(torch.int8) == 300),
}


@pytest.mark.parametrize("function", INTEGERS.values(), ids=INTEGERS.keys())
def test_integers_follow_torchs_promotion(check_import: Check, function: Callable[..., Any]) -> None:
    check_import(function, N)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum,
    "sum of an axis": lambda x: x.sum(-1, keepdim=True),
    "sum in double": lambda x: x.sum(0, dtype=torch.float64),
    "mean": lambda x: x.mean((0, 1)),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax((0, 1)),
    "amin": lambda x: x.amin(0),
    "max": torch.max,
    "max with positions": lambda x: torch.max(x, 1),
    "min with positions": lambda x: torch.min(x, 0, keepdim=True),
    "argmax": torch.argmax,
    "argmin of an axis": lambda x: x.argmin(1),
    "any": lambda x: (x > 2).any(1),
    "all": lambda x: (x > -9).all(),
    "var": lambda x: x.var(1),
    "biased std": lambda x: x.std(0, correction=0),
    "var and mean": lambda x: torch.var_mean(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: torch.linalg.vector_norm(x, 3, 1),
    "largest absolute value": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "count_nonzero": lambda x: torch.count_nonzero(x > 0, 1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: torch.cummax(x, 1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "sort": lambda x: torch.sort(x, 1, descending=True),
    "topk": lambda x: torch.topk(x, 2, 1),
    "kthvalue": lambda x: torch.kthvalue(x, 2, 1),
    "median": lambda x: torch.median(x, 1),
    "argsort": lambda x: torch.argsort(x, dim=0, stable=True),
    "bucketize": lambda x: torch.bucketize(x, x.new_tensor([-1.0, 0.0, 2.0])),
    "cdist": lambda x: torch.cdist(x, x * 2),
}


@pytest.mark.parametrize("function", REDUCTIONS.values(), ids=REDUCTIONS.keys())
def test_a_reduction_along_axes(check_import: Check, function: Callable[..., Any]) -> None:
    """defects.md, left to torch: bucketize."""
    check_import(function, X.sin())


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "mm": (torch.mm, (3, 5), (5, 2)),
    "matrices in a batch": (torch.bmm, (2, 3, 5), (2, 5, 4)),
    "matmul broadcasts": (torch.matmul, (2, 1, 3, 5), (3, 5, 4)),
    "matrix and vector": (torch.matmul, (3, 5), (5,)),
    "dot": (torch.dot, (5,), (5,)),
    "linear": (F.linear, (2, 3, 5), (4, 5)),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (2, 3, 5), (2, 4, 5)),
    "outer": (torch.outer, (3,), (4,)),
    "baddbmm": (lambda a, b: torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2), (2, 3, 5), (2, 5, 4)),
    "addmm with a matrix": (lambda a, b: torch.addmm(a @ b, a, b, beta=2), (3, 5), (5, 2)),
    "addmv": (lambda a, b: torch.addmv(a[:, 0], a, b), (3, 5), (5,)),
}


@pytest.mark.parametrize(("function", "left", "right"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_a_product(check_import: Check, function: Callable[..., Any], left: Any, right: Any) -> None:
    check_import(function, torch.randn(left), torch.randn(right))


WINDOWS: dict[str, Callable[..., Any]] = {
    "conv": lambda x: F.conv2d(x, _weight(3, 4, 3, 2), _weight(3), stride=2, padding=(1, 0)),
    "grouped conv": lambda x: F.conv2d(x, _weight(8, 2, 3, 3), groups=2, dilation=2, padding=2),
    "depthwise conv": lambda x: F.conv2d(x, _weight(4, 1, 3, 3), groups=4),
    "conv along one axis": lambda x: F.conv1d(x[:, :, 0], _weight(3, 4, 3), padding="same"),
    "transposed conv": lambda x: F.conv_transpose2d(x, _weight(4, 3, 3, 3), stride=2, output_padding=1),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool with positions": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "avg_pool without batch": lambda x: F.avg_pool2d(x[0], 2),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive maximum": lambda x: F.adaptive_max_pool2d(x, (3, 4)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x: F.interpolate(x, size=(5, 11), mode="bilinear"),
    "bilinear between corners": lambda x: F.interpolate(x, size=(5, 11), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "antialiased bilinear": lambda x: F.interpolate(x, size=(3, 11), mode="bilinear", antialias=True),
    "antialiased bicubic": lambda x: F.interpolate(x, scale_factor=0.4, mode="bicubic", antialias=True),
    "grid_sample": lambda x: F.grid_sample(x, _grid(x), align_corners=False),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "unfold to columns": lambda x: F.unfold(x, 3, padding=1),
    "fold": lambda x: F.fold(F.unfold(x, 3), (7, 9), 3),
    "batch_norm": lambda x: F.batch_norm(x, _weight(4), _weight(4).abs() + 1, _weight(4), _weight(4)),
    "group_norm": lambda x: F.group_norm(x, 2, _weight(4), _weight(4)),
    "instance_norm": lambda x: F.instance_norm(x),
    "local response norm": lambda x: F.local_response_norm(x, 2),
}


def _weight(*shape: int) -> torch.Tensor:
    return torch.cos(torch.arange(math.prod(shape), dtype=torch.float32)).reshape(shape)


def _grid(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x[:, :2]).permute(0, 2, 3, 1) * 1.2


@pytest.mark.parametrize("function", WINDOWS.values(), ids=WINDOWS.keys())
def test_a_function_of_images(check_import: Check, function: Callable[..., Any]) -> None:
    check_import(function, IMAGE)


ROWS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of the first axis": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "softmax in f32": lambda x: F.softmax(x.half(), -1, dtype=torch.float32),
    "layer_norm": lambda x: F.layer_norm(x, (6,), x[0], x[1]),
    "layer_norm of two axes": lambda x: F.layer_norm(x, (4, 6)),
    "layer_norm of half with f32 weights": lambda x: F.layer_norm(x.bfloat16(), (6,), x[0].bfloat16()),
    "rms_norm": lambda x: F.rms_norm(x, (6,), x[0], 1e-5),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cosine similarity": lambda x: F.cosine_similarity(x[:2], x[2:], dim=1),
    "cross entropy": lambda x: F.cross_entropy(x, torch.tensor([1, 0, 5, 2], device=x.device)),
    "smooth loss": lambda x: F.smooth_l1_loss(x, x * 2),
}


@pytest.mark.parametrize("function", ROWS.values(), ids=ROWS.keys())
def test_a_function_of_rows(check_import: Check, function: Callable[..., Any]) -> None:
    half = "half" in next(name for name, f in ROWS.items() if f is function)
    check_import(function, X, atol=1e-2 if half else 2e-5, rtol=1e-2 if half else 2e-4)


def test_attention_becomes_one_operator(check_import: Check) -> None:
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    imported = check_import(F.scaled_dot_product_attention, q, k, v)
    assert [node.op.name for node in imported.graph.nodes] == ["attention"]


def test_causal_attention_with_shared_key_heads(check_import: Check) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    check_import(lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True), q, k, v)


def test_attention_that_torch_has_no_kernel_for_becomes_one_operator(check_import: Check) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 3)
    mask = torch.rand(2, 1, 5, 6) < 0.5
    mask[1, :, 2] = False
    imported = check_import(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.3), q, k, v, mask)
    assert [node.op.name for node in imported.graph.nodes] == ["attention"]


def test_attention_with_a_bool_mask(check_import: Check) -> None:
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    check_import(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, mask)


MOVES: dict[str, Callable[..., Any]] = {
    "view": lambda x: x.view(2, 12) + 0,
    "permute": lambda x: x.t() * 1,
    "reshape after permute": lambda x: x.t().reshape(-1) * 1,
    "expand": lambda x: x[:, None].expand(4, 3, 6) * 1,
    "slice": lambda x: x[1:, ::2] * 1,
    "negative slice": lambda x: x[-2:, :-1] * 1,
    "select": lambda x: x[-1] * 1,
    "diagonal": lambda x: x.diagonal(1) * 1,
    "unfold": lambda x: x.unfold(1, 3, 2) * 1,
    "as_strided": lambda x: (x * 1).as_strided((3, 2), (2, 5), 1) * 1,
    "split": lambda x: [part * 1 for part in x.split((1, 3))],
    "chunk": lambda x: [part * 1 for part in x.chunk(4, 1)],
    "unbind": lambda x: [part * 1 for part in x.unbind(0)],
    "cat": lambda x: torch.cat([x, x[:1].double()], 0),
    "stack": lambda x: torch.stack([x, x * 2], 1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=7.0),
    "pad by reflection": lambda x: F.pad(x[None], (1, 2, 1, 0), mode="reflect"),
    "pad by replication": lambda x: F.pad(x[None], (1, 2, 1, 0), mode="replicate"),
    "circular padding": lambda x: F.pad(x[None], (1, 2), mode="circular"),
    "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "roll of all elements": lambda x: x.roll(5),
    "repeat": lambda x: x.repeat(2, 1, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "diag_embed": torch.diag_embed,
    "gather": lambda x: x.gather(1, index().abs()),
    "index_select": lambda x: x.index_select(1, index()[0]),
    "advanced index": lambda x: x[index()],
    "index of two axes": lambda x: x[index(), index().abs()],
    "embedding": lambda x: F.embedding(index().abs(), x),
    "take_along_dim": lambda x: x.take_along_dim(index()[:1].abs(), 1),
    "scatter": lambda x: x.scatter(1, index().abs(), x * 2),
    "scatter of a number": lambda x: x.scatter(1, index().abs(), 5.0),
    "scatter_add": lambda x: x.scatter_add(0, index().abs(), x),
    "scatter_reduce": lambda x: x.scatter_reduce(0, index().abs(), x, "amax"),
    "index_put": lambda x: x.index_put((index()[0],), x[:3] * 2),
    "accumulating index_put": lambda x: x.index_put((index()[0] * 0,), x[:3], accumulate=True),
    "index_add": lambda x: x.index_add(0, index()[0], x[:3]),
    "masked assignment": lambda x: x.masked_fill(x > 1, 3.0),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flip(0)),
    "slice_scatter": lambda x: x.slice_scatter(x[:2] * 5, 0, 1, 3),
    "select_scatter": lambda x: x.select_scatter(x[0] * 5, 0, 2),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[0, :4] * 5),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[:, 0], indexing="ij"),
    "bits of floats": lambda x: x.view(torch.int32) + 0,
    "window and mask": lambda x: torch.where(torch.ones_like(x).tril().bool(), x, float("-inf")),
}


@pytest.mark.parametrize("function", MOVES.values(), ids=MOVES.keys())
def test_a_movement_of_data(check_import: Check, function: Callable[..., Any]) -> None:
    check_import(function, X)


CREATIONS: dict[str, Callable[..., Any]] = {
    "zeros": lambda x: torch.zeros(2, 3, dtype=torch.int32),
    "ones_like": torch.ones_like,
    "full": lambda x: torch.full((2,), 7),
    "new_full": lambda x: x.new_full((2, 2), 3),
    "full of a tensor's value": lambda x: torch.ones_like(x) * x.sum(),
    "arange": lambda x: torch.arange(3, 20, 4) + x[0, 0],
    "float arange": lambda x: torch.arange(0, 1, 0.125),
    "linspace": lambda x: torch.linspace(-1, 1, 7),
    "eye": lambda x: torch.eye(3, 4),
    "scalar": lambda x: x + torch.tensor(2.5),
    "constant tensor": lambda x: x[0] + torch.tensor([1.0, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("function", CREATIONS.values(), ids=CREATIONS.keys())
def test_a_new_tensor(check_import: Check, function: Callable[..., Any]) -> None:
    check_import(function, X)


HALF: dict[str, Callable[..., Any]] = {
    "a number that half cannot hold": lambda x: x * 0.1,
    "a sum": lambda x: x.sum(1),
    "a norm": lambda x: F.layer_norm(x, (6,)),
    "a product": lambda x: x @ x.t(),
    "a comparison": lambda x: x > 0.1,
    "an activation": F.gelu,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("function", HALF.values(), ids=HALF.keys())
def test_half_types_round_once(check_import: Check, function: Callable[..., Any], dtype: torch.dtype) -> None:
    unit = torch.finfo(dtype).eps
    check_import(function, X.to(dtype), rtol=2 * unit, atol=unit)


def test_tensors_without_elements_or_axes(check_import: Check) -> None:
    empty = torch.zeros(0, 4)
    check_import(lambda x: (x + 1, x.sum(), x.t() @ x, torch.cat([x, x])), empty)
    check_import(lambda x: (x * 2, x.sum(), x.cumsum(0), x.reshape(1, 1)), torch.tensor(3.0))


# Everything above whose operands are on one device, with the names of its inputs in this module.
TABLES: dict[str, tuple[dict[str, Callable[..., Any]], tuple[str, ...]]] = {
    "functions": (ELEMENTWISE, ("X",)),
    "functions of two tensors": (BINARY, ("X", "Y")),
    "integers": (INTEGERS, ("N",)),
    "folds": (REDUCTIONS, ("X",)),
    "images": (WINDOWS, ("IMAGE",)),
    "rows": (ROWS, ("X",)),
    "movements": (MOVES, ("X",)),
}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
@pytest.mark.parametrize(("functions", "inputs"), TABLES.values(), ids=TABLES.keys())
def test_a_gpu_computes_what_eager_mode_does_there(
    functions: dict[str, Callable[..., Any]], inputs: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Functions read some of their operands from this module.
    for name in ("X", "Y", "N", "B", "IMAGE"):
        monkeypatch.setitem(globals(), name, globals()[name].cuda())
    for name, make in (("index", index), ("_weight", _weight)):
        monkeypatch.setitem(globals(), name, lambda *shape, make=make: make(*shape).cuda())

    def everything(*given: torch.Tensor) -> list[Any]:
        return [function(*given) for function in functions.values()]

    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        given = [globals()[name] for name in inputs]
        results = torch.compile(everything, backend="hidet", fullgraph=True)(*given), everything(*given)
    wrong = {}
    for name, got, want in zip(functions, *results, strict=True):
        tolerance = 1e-2 if "half" in name else 2e-4
        try:
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
        except AssertionError as error:
            wrong[name] = str(error).splitlines()[0]
    assert not wrong


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]
)
def test_the_median_of_no_elements_is_torchs(dtype: torch.dtype) -> None:
    """Seed 101241 of tests.fuzz.torch_programs."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.median(), x.nanmedian()

    x = torch.zeros(2, 0, 3, dtype=dtype)
    for result, right in zip(torch.compile(function, backend="hidet")(x), function(x), strict=True):
        torch.testing.assert_close(result, right, equal_nan=True)
