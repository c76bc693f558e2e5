"""How much work keeps a device busy."""

from __future__ import annotations

import math

from hidet.target import GpuTarget


def per_device(per_multiprocessor: int, target: GpuTarget) -> int:
    """About so much for every multiprocessor, as a power of two: what is cut into so many parts stays even."""
    return 1 << round(math.log2(per_multiprocessor * target.multiprocessors))
