"""Names of `hidet.ops` that say how something is computed, which the compiler chooses, or that nothing is done; and
functions that are made of several operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hidet.api.flow import movement, products
from hidet.api.flow.examples import shown
from hidet.api.flow.functions import named
from hidet.api.flow.operation import apply_one
from hidet.api.tensors.tensor import Tensor
from hidet.compat import layers
from hidet.compat import movement as moving
from hidet.errors import UnsupportedOp


def product_of(a: Tensor, b: Tensor, transpose_b: bool = False) -> Tensor:
    """`matmul`, or `matmul_nt`, by kernels of hidet: it calls no library."""
    return products.matmul_nt(a, b) if transpose_b else products.matmul(a, b)


def batch_matmul(a: Tensor, b: Tensor, mma: str = "mma") -> Tensor:
    """`matmul` of [b, m, k] and [b, k, n]. mma: the compiler chooses the instructions, and this is not read."""
    return products.matmul(a, b)


def conv_gemm(data: Tensor, weight: Tensor, stride: Any, dilations: Any = 1, groups: int = 1) -> Tensor:
    """A convolution without padding; the compiler chooses how it is computed."""
    return products.conv(data, weight, stride, dilations, groups)


def conv_channel_last(
    data: Tensor, weight: Tensor, stride: Any = 1, dilations: Any = 1, groups: int = 1, padding: Any = 0
) -> Tensor:
    """A convolution of images [n, h, w, c] with filters [o, c / groups, kh, kw]; gives [n, h, w, o]."""
    result = products.conv(movement.transpose(data, [0, 3, 1, 2]), weight, stride, dilations, groups, padding)
    return movement.transpose(result, [0, 2, 3, 1])


def conv_gemm_f16(
    img: Tensor,
    weight: Tensor,
    padding: Any = 0,
    stride: Any = 1,
    dilations: Any = 1,
    groups: int = 1,
    parallel_k_parts: int = 1,
    disable_cp_async: bool = False,
) -> Tensor:
    """`conv2d` with another order of arguments. The last two: the compiler decides, and they are not read."""
    return products.conv(img, weight, stride, dilations, groups, padding)


def conv_gemm_f16_channel_last(
    img: Tensor,
    weight: Tensor,
    padding: Any,
    stride: Any,
    dilations: Any,
    groups: int,
    parallel_k_parts: int = 1,
    disable_cp_async: bool = False,
) -> Tensor:
    """`conv2d_channel_last` with another order of arguments. The last two are not read."""
    return conv_channel_last(img, weight, stride, dilations, groups, padding)


def conv_winograd(x: Tensor, w: Tensor) -> Tensor:
    """`conv2d` with stride 1 and without padding; the compiler chooses how it is computed."""
    return products.conv(x, w)


def image_transform(x: Tensor, kernel: Any, stride: Any, dilations: Any, groups: int = 1) -> Tensor:
    """Patches of images [n, c, h, w] as rows of a matrix a group: [groups, n * windows, c / groups * taps]."""
    columns = apply_one("im2col", x, kernel=kernel, stride=stride, dilation=dilations)
    count, depth, windows = columns.shape
    turned = movement.transpose(movement.reshape(columns, [count, groups, depth // groups, windows]), [1, 0, 3, 2])
    return movement.reshape(turned, [groups, count * windows, depth // groups])


def kept(x: Tensor) -> Tensor:
    """x: the compiler needs none, since it fuses what is right to fuse."""
    return x


def ready(x: Tensor, comm_id: int = 0) -> Tensor:
    """x: its elements are there when an operator has run."""
    return x


def _refused(name: str, hint: str) -> Callable[..., Tensor]:
    def refuse(*inputs: Any, **attributes: Any) -> Tensor:
        raise UnsupportedOp(f"hidet.ops.{name} is no operator any more", hint=hint)

    refuse.__doc__ = f"No operator any more: {hint}."
    return refuse


_REFUSED = {
    "fused_operator": "graphs are fused when they are compiled: hidet.graph.optimize",
    **{
        name: f"hidet computes on one device: torch.distributed.{name} on results"
        for name in ("all_reduce", "all_gather", "reduce_scatter")
    },
}
_FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "cuda_batch_matmul": (batch_matmul, "cuda_batch_matmul(a, b)"),
    "hip_batch_matmul": (batch_matmul, "hip_batch_matmul(a, b)"),
    "matmul_x86": (products.matmul, "matmul_x86(a, b)"),
    "matmul_cublas": (product_of, "matmul_cublas(a, a, transpose_b=True)"),
    "conv1d_gemm": (conv_gemm, "conv1d_gemm(signal, taps, 1)"),
    "conv2d_gemm": (conv_gemm, "conv2d_gemm(image, filters, (1, 1), (1, 1))"),
    "conv3d_gemm": (conv_gemm, "conv3d_gemm(volume, cubes, (1, 1, 1), (1, 1, 1))"),
    "conv2d_channel_last": (
        conv_channel_last,
        "conv2d_channel_last(hidet.ops.transpose(image, [0, 2, 3, 1]), filters)",
    ),
    "conv2d_winograd": (conv_winograd, "conv2d_winograd(image, filters)"),
    "conv2d_gemm_fp16": (conv_gemm_f16, "conv2d_gemm_fp16(image, filters, padding=1)"),
    "conv2d_gemm_fp16_channel_last": (
        conv_gemm_f16_channel_last,
        "conv2d_gemm_fp16_channel_last(hidet.ops.transpose(image, [0, 2, 3, 1]), filters, [1, 1], [1, 1], [1, 1], 1)",
    ),
    "conv2d_gemm_image_transform": (
        image_transform,
        "conv2d_gemm_image_transform(image, (3, 3), (1, 1), (1, 1), groups=2)",
    ),
    "conv2d_transpose_gemm": (products.conv_transpose, "conv2d_transpose_gemm(image, filters, 2, 1)"),
    "softmin": (layers.softmin, "softmin(x)"),
    "batch_norm_infer": (layers.batch_norm_infer, "batch_norm_infer(image, hidet.zeros([4]), hidet.ones([4]))"),
    "lp_norm": (layers.lp_norm, "lp_norm(x)"),
    "resize2d": (layers.resize2d, 'resize2d(image, size=(16, 12), method="linear")'),
    "embedding_bag": (layers.embedding_bag, "embedding_bag(rows, x, hidet.asarray([0, 2]))"),
    "symmetric_quantize": (layers.symmetric_quantize, "symmetric_quantize(x)"),
    "symmetric_dequantize": (layers.symmetric_dequantize, "symmetric_dequantize(*hidet.ops.symmetric_quantize(x))"),
    "real": (layers.real, "real(z)"),
    "imag": (layers.imag, "imag(z)"),
    "conj": (layers.conj, "conj(z)"),
    "make_complex": (layers.make_complex, "make_complex(hidet.asarray([1.0, 2.0]), hidet.asarray([0.5, -1.0]))"),
    "einops_rearrange": (moving.einops_rearrange, 'einops_rearrange(image, "n (g c) h w -> n (h w) g c", g=2)'),
    "meshgrid": (moving.meshgrid, "meshgrid(v, hidet.asarray([1.0, 2.0]))"),
    "set_strided_slice": (moving.set_strided_slice, "set_strided_slice(x, 9.0, starts=[0, 1], ends=[2, 3])"),
    "conv_pad": (moving.conv_pad, "conv_pad(image, 1)"),
    "scatter_": (moving.scatter_, 'scatter_(x, 1, rows.reshape([1, 3]), y, reduce="sum")'),
    "scatter_add_": (moving.scatter_add_, "scatter_add_(x, 0, rows.reshape([1, 3]), y)"),
    "transfer": (moving.transfer, 'transfer(x, "cpu")'),
    "barrier": (kept, "barrier(x)"),
    "wait_tensor": (ready, "wait_tensor(x)"),
}
"""Functions, and a call of each for its documentation."""


def __getattr__(name: str) -> Any:
    if name in _REFUSED:
        return _refused(name, _REFUSED[name])
    if name in _FUNCTIONS:
        given, call = _FUNCTIONS[name]
        return named(name, given, shown(call))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
