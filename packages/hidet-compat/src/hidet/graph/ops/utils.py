"""What operators of users are made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hidet.api.tensors.tensor import Tensor
from hidet.ir.compute import TensorNode, tensor_input


def input_like(tensor: Tensor, name: str) -> TensorNode:
    """The input of a task that takes a tensor like this one."""
    return tensor_input(name, tensor.dtype, tensor.shape)


def normalize_stride(stride: int | Sequence[int], dim: int = 2) -> list[int]:
    """A number for each of `dim` axes: the same one, or those given."""
    return normalize_kernel(stride, dim)


def normalize_dilations(dilations: int | Sequence[int], dim: int = 2) -> list[int]:
    """As `normalize_stride`."""
    return normalize_kernel(dilations, dim)


def normalize_kernel(kernel: int | Sequence[int], dim: int = 2) -> list[int]:
    """As `normalize_stride`. ValueError for another number of them."""
    given = [kernel] if isinstance(kernel, int) else list(kernel)
    if len(given) not in (1, dim):
        raise ValueError(f"expected a number, or {dim} of them, got {given}")
    return given * dim if len(given) == 1 else given


def normalize_padding(padding: int | Sequence[int], dim: int = 2) -> list[int]:
    """Padding before each of `dim` axes, and then that behind each. ValueError for another number of them."""
    given = [padding] if isinstance(padding, int) else list(padding)
    return given if len(given) == 2 * dim else normalize_kernel(given, dim) * 2


def normalize_dim(dim: Any, rank: int) -> Any:
    """Axes from 0 on for those that may count from the end; None for all."""
    if isinstance(dim, int):
        return dim % rank if -rank <= dim < rank else _refuse(dim, rank)
    return list(range(rank)) if dim is None else [normalize_dim(each, rank) for each in dim]


def _refuse(dim: int, rank: int) -> int:
    raise ValueError(f"axis {dim} of a tensor with {rank} axes")
