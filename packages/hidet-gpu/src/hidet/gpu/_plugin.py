"""Plug-in module of hidet-gpu: the intrinsics of GPUs. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hidet.ir.intrinsic import IntrinsicFamily

HIDET_API = 1


def hidet_intrinsics() -> Iterable[IntrinsicFamily]:
    """Those of every GPU, those of NVIDIA's, and tensor maps."""
    from hidet.gpu.intrinsics.family import CUDA, GPU
    from hidet.gpu.tensor_map import TENSOR_MAPS

    return [GPU, CUDA, TENSOR_MAPS]
