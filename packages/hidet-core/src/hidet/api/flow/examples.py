"""A call of each function of `hidet.ops`, for its documentation; tests run them."""

from __future__ import annotations

import re

OPERANDS = {
    "x": "hidet.asarray([[0.25, -0.5, 0.75], [1.5, 2.0, -2.5]])",
    "y": "hidet.asarray([[1.0, 2.0, -0.5], [0.5, -1.0, 3.0]])",
    "i": "hidet.asarray([[1, 2, 3], [4, 5, 6]])",
    "j": "hidet.asarray([[1, 0, 2], [3, 1, 0]])",
    "u": "hidet.asarray([[0.1, 0.5, 0.9], [0.2, 0.4, 0.6]])",
    "v": "hidet.asarray([1.5, 2.0, 3.5])",
    "rows": "hidet.asarray([1, 0, 1])",
    "signal": "hidet.randn([1, 4, 9])",
    "image": "hidet.randn([1, 4, 8, 8])",
    "volume": "hidet.randn([1, 4, 6, 6, 6])",
    "taps": "hidet.randn([4, 4, 3])",
    "filters": "hidet.randn([4, 4, 3, 3])",
    "cubes": "hidet.randn([4, 4, 3, 3, 3])",
    "a": "hidet.randn([2, 3, 4])",
    "b": "hidet.randn([2, 4, 5])",
    "q": "hidet.randn([1, 2, 3, 8])",
    "z": "hidet.ops.make_complex(hidet.asarray([1.0, 2.0]), hidet.asarray([0.5, -1.0]))",
}

_WITH_ONE = (
    "relu sigmoid hardsigmoid relu6 silu hardswish logsigmoid softsign tanhshrink negative positive square floor ceil "
    "round trunc abs reciprocal exp expm1 erf isfinite isinf isnan sign sin cos tan sinh cosh tanh atan asinh "
    "logical_not celu hardshrink softplus softshrink hardtanh softmax logsoftmax gelu leaky_relu layer_norm "
    "flatten transpose triu tril argmin argmax"
)
_WITH_TWO = (
    "add subtract multiply divide mod remainder maximum minimum atan2 logaddexp equal not_equal less greater "
    "less_equal greater_equal logical_and logical_or logical_xor"
)
_CALLS = {
    **{name: f"{name}(x)" for name in _WITH_ONE.split()},
    **{name: f"{name}(x, y)" for name in _WITH_TWO.split()},
    **{name: f"{name}(u)" for name in ["sqrt", "rsqrt", "log", "log2", "log10", "log1p", "asin", "acos", "atanh"]},
    **{name: f"{name}(x, dims=1, keep_dim=True)" for name in ["sum", "mean", "prod", "min", "max", "var", "std"]},
    **{name: f"{name}(x, axis=1)" for name in ("any", "all")},
    **{name: f"{name}(i, j)" for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]},
    **{name: f"{name}(i, j)" for name in ("bitwise_left_shift", "bitwise_right_shift")},
    "acosh": "acosh(v)",
    "bitwise_invert": "bitwise_invert(i)",
    "pow": "pow(x, 2)",
    "where": "where(x, x, y)",
    "clip": "clip(x, -1.0, 1.0)",
    "clamp": "clamp(x, 0.0, y)",
    "prelu": "prelu(x, hidet.asarray([0.1]))",
    "matmul": "matmul(a, b)",
    "matmul_nt": "matmul_nt(a, a)",
    "attention": "attention(q, q.transpose(2, 3), q, is_causal=True)",
    "einsum": 'einsum("bij,bjk->bik", [a, b])',
    "conv1d": "conv1d(signal, taps, stride=2)",
    "conv1d_transpose": "conv1d_transpose(signal, taps, stride=2)",
    "conv2d": "conv2d(image, filters, padding=(1, 1))",
    "conv2d_transpose": "conv2d_transpose(image, filters, 2, 1, output_padding=1)",
    "conv3d": "conv3d(volume, cubes)",
    "conv3d_transpose": "conv3d_transpose(volume, cubes)",
    "max_pool2d": "max_pool2d(image, (2, 2), (2, 2), (1, 1))",
    "avg_pool2d": "avg_pool2d(image, 2, 2, 0)",
    "max_pool3d": "max_pool3d(volume, 2, 2, 0)",
    "avg_pool3d": "avg_pool3d(volume, 2, 2, 0)",
    "adaptive_avg_pool1d": "adaptive_avg_pool1d(signal, 3)",
    "adaptive_avg_pool2d": "adaptive_avg_pool2d(image, (3, 2))",
    "adaptive_avg_pool3d": "adaptive_avg_pool3d(volume, 2)",
    "adaptive_max_pool1d": "adaptive_max_pool1d(signal, 3)",
    "adaptive_max_pool2d": "adaptive_max_pool2d(image, (3, 2))",
    "adaptive_max_pool3d": "adaptive_max_pool3d(volume, 2)",
    "instance_norm": "instance_norm(image)",
    "group_norm": "group_norm(image, 2)",
    "cumsum": "cumsum(x, 1, exclusive=True)",
    "squeeze": "squeeze(hidet.ones([1, 3]), 0)",
    "unsqueeze": "unsqueeze(x, [0, 3])",
    "expand_dims": "expand_dims(x, axis=1)",
    "concat": "concat([x, y], axis=1)",
    "cast": 'cast(x, "float64")',
    "take": "take(x, rows, axis=1)",
    "rearrange": "rearrange(a, [[1], [0, 2]])",
    "strided_slice": "strided_slice(x, starts=[0], ends=[None], axes=[1], strides=[2])",
    "reshape": "reshape(x, [3, -1])",
    "im2col": "im2col(image, kernel_size=3)",
    "as_strided": "as_strided(v, [2, 2], [1, 1])",
    "flip": "flip(x, [1])",
    "view": 'view(x, dtype="int32", shape=[6])',
    "permute_dims": "permute_dims(a, [2, 0, 1])",
    "broadcast": "broadcast(v, [2, 3])",
    "pad": "pad(x, [0, 1, 1, 1])",
    "tile": "tile(x, [2, 1])",
    "split": "split(x, [1, 2], axis=1)",
    "gather": "gather(x, rows.reshape([1, 3]), axis=0)",
    "index_select": "index_select(x, rows, 1)",
    "repeat_interleave": "repeat_interleave(x, 2, dim=1)",
    "roll": "roll(x, 1, dims=1)",
    "full": "full([2, 3], 1.5)",
    "arange": "arange(0, 5, 2)",
    "linspace": "linspace(0.0, 1.0, 5)",
    "tri": "tri(3, k=1)",
}


def example(name: str) -> str:
    """The part of a documentation that shows a call; "" where there is none."""
    call = _CALLS.get(name)
    return "" if call is None else shown(call)


def shown(call: str) -> str:
    """A call of `hidet.ops` with what it is of, as the end of a documentation."""
    operands = [f">>> {each} = {made}" for each, made in OPERANDS.items() if re.search(rf"\b{each}\b(?!=)", call)]
    return "\n".join(["", "", *operands, f">>> hidet.ops.{call}"])
