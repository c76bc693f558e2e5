"""`hidet.Tensor`, and what makes tensors, by their place in hidet 0.6."""

from hidet.api.tensors.create import (
    asarray,
    empty,
    empty_like,
    from_dlpack,
    from_torch,
    full,
    full_like,
    ones,
    ones_like,
    randn,
    randn_like,
    symbol,
    symbol_like,
    zeros,
    zeros_like,
)
from hidet.api.tensors.tensor import Tensor

from_numpy = asarray

__all__ = [
    "Tensor",
    "asarray",
    "empty",
    "empty_like",
    "from_dlpack",
    "from_numpy",
    "from_torch",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "randn",
    "randn_like",
    "symbol",
    "symbol_like",
    "zeros",
    "zeros_like",
]
