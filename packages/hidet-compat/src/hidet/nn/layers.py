"""Layers by their names in hidet 0.6, over `hidet.ops`. Parameters are drawn at random, or are ones and zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hidet import ops
from hidet.api.tensors.create import ones, randn, zeros
from hidet.api.tensors.tensor import Tensor
from hidet.nn.module import Module


class Linear(Module):
    """x @ weight + bias; weight is [in_features, out_features], as the documents of hidet 0.6 have it."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = randn([in_features, out_features], stddev=1.0 / math.sqrt(in_features))
        self.bias = zeros([out_features]) if bias else None

    def extra_str(self) -> str:
        """Numbers of features."""
        return f"in_features={self.in_features}, out_features={self.out_features}"

    def forward(self, x: Tensor) -> Any:
        """Of the last axis."""
        product = ops.matmul(x, self.weight)
        return product if self.bias is None else product + self.bias


class LinearTransposed(Linear):
    """As `Linear`, with a weight [out_features, in_features]."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.weight = randn([out_features, in_features], stddev=1.0 / math.sqrt(in_features))

    def forward(self, x: Tensor) -> Any:
        """Of the last axis."""
        product = ops.matmul_nt(x, self.weight)
        return product if self.bias is None else product + self.bias


class Conv2d(Module):
    """A convolution of images [n, c, h, w]."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        kernel = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        self.in_channels, self.out_channels, self.kernel = in_channels, out_channels, kernel
        self.padding, self.stride, self.groups = padding, stride, groups
        taps = in_channels // groups * kernel[0] * kernel[1]
        self.weight = randn([out_channels, in_channels // groups, *kernel], stddev=1.0 / math.sqrt(taps))
        self.bias = zeros([out_channels]) if bias else None

    def extra_str(self) -> str:
        """Channels, sizes and steps."""
        return (
            f"in_channels={self.in_channels}, out_channels={self.out_channels}, kernel_size={self.kernel}, "
            f"stride={self.stride}, padding={self.padding}"
        )

    def forward(self, x: Tensor) -> Any:
        """Images of out_channels."""
        made = ops.conv2d(x, self.weight, stride=self.stride, groups=self.groups, padding=self.padding)
        return made if self.bias is None else made + ops.reshape(self.bias, [self.out_channels, 1, 1])


class BatchNorm2d(Module):
    """Channels of images by averages and variances that are known."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.running_mean, self.running_var = zeros([num_features]), ones([num_features])
        self.weight, self.bias = ones([num_features]), zeros([num_features])

    def forward(self, x: Tensor) -> Any:
        """Images of the same shape."""
        normal = ops.batch_norm_infer(x, self.running_mean, self.running_var, self.eps)
        weight, bias = (ops.reshape(each, [each.shape[0], 1, 1]) for each in (self.weight, self.bias))
        return normal * weight + bias


class LayerNorm(Module):
    """The last axes by their average and variance."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True
    ) -> None:
        super().__init__()
        self.normalized_shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        self.eps = eps
        self.weight = ones(self.normalized_shape) if elementwise_affine else None
        self.bias = zeros(self.normalized_shape) if elementwise_affine else None

    def forward(self, x: Tensor) -> Any:
        """A tensor of the same shape."""
        normal = ops.layer_norm(x, num_last_dims=len(self.normalized_shape), epsilon=self.eps)
        return normal if self.weight is None or self.bias is None else normal * self.weight + self.bias


class GroupNorm(Module):
    """Groups of channels by their average and variance."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = ones([num_channels]) if affine else None
        self.bias = zeros([num_channels]) if affine else None

    def forward(self, x: Tensor) -> Any:
        """A tensor of the same shape, with channels along axis 1."""
        normal = ops.group_norm(x, self.num_groups, epsilon=self.eps)
        if self.weight is None or self.bias is None:
            return normal
        shape = [self.num_channels] + [1] * (len(x.shape) - 2)
        return normal * ops.reshape(self.weight, shape) + ops.reshape(self.bias, shape)


class MaxPool2d(Module):
    """The largest of each window."""

    def __init__(self, kernel_size: Any, stride: Any = 1, padding: Any = 0) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor) -> Any:
        """Images of as many channels."""
        return ops.max_pool2d(x, self.kernel, self.stride, self.padding)


class AvgPool2d(MaxPool2d):
    """The average of each window."""

    def forward(self, x: Tensor) -> Any:
        """Images of as many channels."""
        return ops.avg_pool2d(x, self.kernel, self.stride, self.padding)


class AdaptiveAvgPool2d(Module):
    """Averages of as many windows as are asked for."""

    def __init__(self, output_size: int | Sequence[int]) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Any:
        """Images [n, c, *output_size]."""
        return ops.adaptive_avg_pool2d(x, self.output_size)


class Embedding(Module):
    """Rows of a table."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = randn([num_embeddings, embedding_dim])

    def forward(self, indices: Tensor) -> Any:
        """One row an index."""
        return ops.take(self.weight, indices, axis=0)


class Identity(Module):
    """What it is given."""

    def forward(self, x: Tensor) -> Any:
        """x"""
        return x


class Relu(Module):
    """`hidet.ops.relu`."""

    def forward(self, x: Tensor) -> Any:
        """A tensor of the same shape."""
        return ops.relu(x)


class Gelu(Module):
    """`hidet.ops.gelu`."""

    def forward(self, x: Tensor) -> Any:
        """A tensor of the same shape."""
        return ops.gelu(x)


class Tanh(Module):
    """`hidet.ops.tanh`."""

    def forward(self, x: Tensor) -> Any:
        """A tensor of the same shape."""
        return ops.tanh(x)


class Geglu(Module):
    """One half of features times the gelu of the other, after a layer that makes both."""

    def __init__(self, dim_in: int, dim_out: int, bias: bool = True) -> None:
        super().__init__()
        self.proj = LinearTransposed(dim_in, 2 * dim_out, bias)
        self.dim_out = dim_out

    def forward(self, x: Tensor) -> Any:
        """dim_out features along the last axis."""
        value, gate = ops.split(self.proj(x), [self.dim_out] * 2, axis=len(x.shape) - 1)
        return value * ops.gelu(gate)


class CrossAttention(Module):
    """Attention of [batch, length, query_dim] to another sequence, or to itself."""

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
    ) -> None:
        super().__init__()
        width, keys = heads * dim_head, query_dim if cross_attention_dim is None else cross_attention_dim
        self.heads, self.dim_head = heads, dim_head
        self.to_q = LinearTransposed(query_dim, width, bias)
        self.to_k, self.to_v = LinearTransposed(keys, width, bias), LinearTransposed(keys, width, bias)
        self.to_out = LinearTransposed(width, query_dim)

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None) -> Any:
        """A tensor of the shape of the first one."""
        other = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        q, k, v = self.to_q(hidden_states), self.to_k(other), self.to_v(other)
        turned = ops.transpose(self._by_heads(k), [0, 1, 3, 2]) * self.dim_head**-0.5
        found = ops.attention(self._by_heads(q), turned, self._by_heads(v))
        batch, length = hidden_states.shape[:2]
        return self.to_out(ops.reshape(ops.transpose(found, [0, 2, 1, 3]), [batch, length, self.heads * self.dim_head]))

    def _by_heads(self, x: Tensor) -> Any:
        batch, length = x.shape[:2]
        return ops.transpose(ops.reshape(x, [batch, length, self.heads, self.dim_head]), [0, 2, 1, 3])
