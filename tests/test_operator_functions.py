"""The functions of `hidet.ops` that hidet 0.6 had: what their documentation shows gives what torch gives."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import hidet
from hidet.errors import HidetError, ShapeError, UnsupportedOp
from tests.names_of_hidet import names

NAMES = [name.path.rpartition(".")[2] for name in names() if name.path.startswith("hidet.ops.")]

_IN_TORCH = (
    "relu sigmoid positive square floor ceil round trunc abs reciprocal exp expm1 erf isfinite isinf isnan sign sin "
    "cos tan sinh cosh tanh atan asinh logical_not argmin argmax"
)
_IN_FUNCTIONAL = (
    "hardsigmoid relu6 silu hardswish logsigmoid softsign tanhshrink celu hardshrink softplus softshrink hardtanh gelu "
    "leaky_relu"
)
_OF_TWO = (
    "add subtract multiply divide remainder maximum minimum atan2 logaddexp not_equal less greater less_equal "
    "greater_equal logical_and logical_or logical_xor"
)
_CONVOLUTION = {1: "conv1d(signal, taps", 2: "conv2d(image, filters", 3: "conv3d(volume, cubes"}
REFERENCES = {
    **{name: f"torch.{name}(x)" for name in _IN_TORCH.split()},
    **{name: f"F.{name}(x)" for name in _IN_FUNCTIONAL.split()},
    **{name: f"torch.{name}(x, y)" for name in _OF_TWO.split()},
    **{
        name: f"torch.{name}(u)" for name in ["sqrt", "rsqrt", "log", "log2", "log10", "log1p", "asin", "acos", "atanh"]
    },
    **{name: f"torch.{name}(x, 1, keepdim=True)" for name in ("sum", "mean", "prod")},
    **{name: f"torch.{name}(x, 1, keepdim=True, correction=0)" for name in ("var", "std")},
    **{name: f"torch.{name}(x, 1)" for name in ("any", "all")},
    **{name: f"torch.{name}(i, j)" for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]},
    **{name: f"torch.{name}(i, j)" for name in ("bitwise_left_shift", "bitwise_right_shift")},
    "negative": "-x",
    "min": "x.amin(1, keepdim=True)",
    "max": "x.amax(1, keepdim=True)",
    "mod": "torch.fmod(x, y)",
    "equal": "x == y",
    "acosh": "v.acosh()",
    "bitwise_invert": "~i",
    "pow": "x**2",
    "where": "torch.where(x.bool(), x, y)",
    "clip": "x.clamp(-1.0, 1.0)",
    "clamp": "torch.minimum(x.clamp(0.0), y)",
    "prelu": "F.prelu(x, torch.tensor([0.1]))",
    "softmax": "x.softmax(1)",
    "logsoftmax": "x.log_softmax(1)",
    "softmin": "(-x).softmax(1)",
    "layer_norm": "F.layer_norm(x, [3])",
    "lp_norm": "F.normalize(x)",
    **dict.fromkeys(("barrier", "wait_tensor", "transfer"), "x"),
    **dict.fromkeys(("matmul", "cuda_batch_matmul", "hip_batch_matmul", "matmul_x86", "einsum"), "a @ b"),
    **dict.fromkeys(("matmul_nt", "matmul_cublas"), "a @ a.mT"),
    "attention": "F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=1.0)",
    "einops_rearrange": "image.reshape(1, 2, 2, 64).permute(0, 3, 1, 2)",
    "conv1d": f"F.{_CONVOLUTION[1]}, stride=2)",
    "conv1d_gemm": f"F.{_CONVOLUTION[1]})",
    "conv1d_transpose": "F.conv_transpose1d(signal, taps, stride=2)",
    "conv2d": f"F.{_CONVOLUTION[2]}, padding=1)",
    "conv2d_gemm_fp16": f"F.{_CONVOLUTION[2]}, padding=1)",
    **dict.fromkeys(("conv2d_gemm", "conv2d_winograd"), f"F.{_CONVOLUTION[2]})"),
    "conv2d_channel_last": f"F.{_CONVOLUTION[2]}).permute(0, 2, 3, 1)",
    "conv2d_gemm_fp16_channel_last": f"F.{_CONVOLUTION[2]}, padding=1).permute(0, 2, 3, 1)",
    "conv2d_gemm_image_transform": "F.unfold(image, 3).reshape(1, 2, 18, 36).permute(1, 0, 3, 2).reshape(2, 36, 18)",
    "conv2d_transpose": "F.conv_transpose2d(image, filters, stride=2, padding=1, output_padding=1)",
    "conv2d_transpose_gemm": "F.conv_transpose2d(image, filters, stride=2, padding=1)",
    **dict.fromkeys(("conv3d", "conv3d_gemm"), f"F.{_CONVOLUTION[3]})"),
    "conv3d_transpose": "F.conv_transpose3d(volume, cubes)",
    "max_pool2d": "F.max_pool2d(image, 2, 2, 1)",
    "avg_pool2d": "F.avg_pool2d(image, 2)",
    "max_pool3d": "F.max_pool3d(volume, 2)",
    "avg_pool3d": "F.avg_pool3d(volume, 2)",
    **{f"adaptive_{kind}_pool1d": f"F.adaptive_{kind}_pool1d(signal, 3)" for kind in ("avg", "max")},
    **{f"adaptive_{kind}_pool2d": f"F.adaptive_{kind}_pool2d(image, (3, 2))" for kind in ("avg", "max")},
    **{f"adaptive_{kind}_pool3d": f"F.adaptive_{kind}_pool3d(volume, 2)" for kind in ("avg", "max")},
    "resize2d": "F.interpolate(image, (16, 12), mode='bilinear')",
    "batch_norm_infer": "F.batch_norm(image, torch.zeros(4), torch.ones(4))",
    "instance_norm": "F.instance_norm(image)",
    "group_norm": "F.group_norm(image, 2)",
    "real": "z.real",
    "imag": "z.imag",
    "conj": "z.conj().resolve_conj()",
    "make_complex": "torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0]))",
    "cumsum": "x.cumsum(1) - x",
    "squeeze": "torch.ones(3)",
    "unsqueeze": "x[None, ..., None]",
    "expand_dims": "x[:, None]",
    "flatten": "x.flatten()",
    "concat": "torch.cat([x, y], 1)",
    "cast": "x.double()",
    "take": "x[:, rows]",
    "index_select": "x[:, rows]",
    "rearrange": "a.permute(1, 0, 2).reshape(3, 8)",
    "strided_slice": "x[:, ::2]",
    "set_strided_slice": "torch.cat([x[:, :1], torch.full((2, 2), 9.0)], 1)",
    "reshape": "x.reshape(3, 2)",
    "im2col": "F.unfold(image, 3)",
    "as_strided": "v.as_strided([2, 2], [1, 1])",
    "flip": "x.flip(1)",
    "view": "x.view(torch.int32).reshape(6)",
    "transpose": "x.T",
    "permute_dims": "a.permute(2, 0, 1)",
    "broadcast": "v.expand(2, 3)",
    "pad": "F.pad(x, [1, 1, 0, 1])",
    "conv_pad": "F.pad(image, [1, 1, 1, 1])",
    "tile": "x.tile(2, 1)",
    "split": "x.split([1, 2], 1)",
    "gather": "x.gather(0, rows[None])",
    "triu": "x.triu()",
    "tril": "x.tril()",
    "meshgrid": "torch.meshgrid(v, torch.tensor([1.0, 2.0]), indexing='ij')",
    "repeat_interleave": "x.repeat_interleave(2, 1)",
    "roll": "x.roll(1, 1)",
    "full": "torch.full([2, 3], 1.5)",
    "arange": "torch.arange(0, 5, 2)",
    "linspace": "torch.linspace(0.0, 1.0, 5)",
    "tri": "torch.ones(3, 3).tril(1)",
    "scatter_": "x.scatter_add(1, rows[None], y)",
    "scatter_add_": "x.scatter_add(0, rows[None], y)",
    "embedding_bag": "F.embedding_bag(rows, x, torch.tensor([0, 2]))",
    "symmetric_quantize": (
        "torch.round(x / (x.abs().amax(1, keepdim=True) / 127)).to(torch.int8), x.abs().amax(1) / 127"
    ),
    "symmetric_dequantize": (
        "torch.round(x / (x.abs().amax(1, keepdim=True) / 127)) * (x.abs().amax(1, keepdim=True) / 127)"
    ),
}
"""What torch says to the same, by the same names of operands."""


def listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


def shown(name: str) -> list[str]:
    """The statements that the documentation of a function shows, the last one calls it."""
    lines = (inspect.getdoc(getattr(hidet.ops, name)) or "").splitlines()
    return [line.removeprefix(">>> ") for line in lines if line.startswith(">>> ")]


@pytest.mark.parametrize("name", REFERENCES)
def test_what_the_documentation_shows_gives_what_torch_gives(name):
    *operands, call = shown(name)
    assert call.startswith(f"hidet.ops.{name}(")
    np.random.seed(0)
    ours: dict[str, Any] = {"hidet": hidet}
    exec("\n".join(operands), ours)
    tensors = {key: value for key, value in ours.items() if isinstance(value, hidet.Tensor)}
    theirs = {key: torch.from_numpy(value.numpy().copy()) for key, value in tensors.items()}
    expected = listed(eval(REFERENCES[name], {**theirs, "torch": torch, "F": F}))
    found = listed(eval(call, ours))
    assert len(found) == len(expected)
    for result, right in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(result.numpy()), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["fused_operator", "all_reduce", "all_gather", "reduce_scatter"])
def test_what_is_no_operator_any_more_says_what_to_use(name):
    with pytest.raises(UnsupportedOp, match=f"hidet.ops.{name} is no operator any more") as refused:
        getattr(hidet.ops, name)(hidet.ones([2]))
    assert refused.value.hint


def test_every_function_has_an_example_and_a_signature():
    explained = [name for name in dir(hidet.ops) if shown(name)]
    assert sorted(explained) == sorted(REFERENCES)
    assert len({*NAMES} & {*explained}) >= 180
    for name in explained:
        function = getattr(hidet.ops, name)
        assert function.__name__ == name
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds or name == "einops_rearrange"


def test_einsum_sums_and_orders_several_operands():
    arrays = [np.random.default_rng(0).standard_normal(shape) for shape in ((2, 3, 4), (4, 5), (3, 6))]
    for equation in ("bij,jk,il->bkl", "bij, jk, il -> lb", "bij,jk,il", "bij,jk,il->"):
        found = hidet.ops.einsum(equation, [hidet.asarray(array) for array in arrays])
        np.testing.assert_allclose(found.numpy(), np.einsum(equation, *arrays), rtol=1e-6)
    with pytest.raises(ShapeError, match="einsum"):
        hidet.ops.einsum("ii->i", [hidet.ones([2, 2])])


def test_what_is_written_into_a_tensor_is_seen_by_all_that_share_its_memory():
    shared = torch.zeros(2, 3)
    hidet.ops.scatter_add_(hidet.from_torch(shared), 1, hidet.asarray([[0, 0]]), hidet.asarray([[1.0, 2.0]]))
    assert shared.tolist() == [[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_operators_promote_as_arithmetic_does():
    found = hidet.ops.add(hidet.asarray([1, 2]), hidet.asarray([0.5, 0.5]))
    assert (found.tolist(), found.dtype.name) == ([1.5, 2.5], "float32")


@pytest.mark.parametrize(
    "use",
    [
        lambda: hidet.ops.einops_rearrange(hidet.ones([6]), "(a b) -> a b"),
        lambda: hidet.ops.einops_rearrange(hidet.ones([6]), "(a b) -> b", a=2),
        lambda: hidet.ops.rearrange(hidet.ones([2, 3]), [[0]]),
        lambda: hidet.ops.resize2d(hidet.ones([1, 1, 2, 2])),
        lambda: hidet.ops.imag(hidet.ones([2])),
    ],
)
def test_what_makes_no_sense_is_an_error_of_hidet(use):
    with pytest.raises(HidetError):
        use()
