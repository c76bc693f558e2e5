"""How long a product takes by the model of `tiling`, in seconds of a device.

The model counts clock cycles of an H100. Another device's clock, memory and second-level cache are put in by their
published numbers, and what was measured by its ratio to them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hidet.cuda.constants import published_constants
from hidet.cuda.schedules.product_tiles import GEMV_TILES
from hidet.cuda.schedules.tiling import Speed, cycles, streaming_cycles
from hidet.gpu.schedules.cost import simt_seconds
from hidet.gpu.schedules.matmul import extents_of
from hidet.gpu.schedules.product import Product
from hidet.gpu.schedules.tiling import Tiling
from hidet.target.constants import DeviceConstants

if TYPE_CHECKING:
    from hidet.target import GpuTarget

_H100, _H100_MULTIPROCESSORS = 90, 132


def product_seconds(
    product: Product, tiling: Tiling, target: GpuTarget, known: DeviceConstants, published: DeviceConstants
) -> float:
    """Seconds of a product by a tiling. known, published: constants of the device, and of its architecture."""
    if tiling.others:
        each = (replace(tiling, others=()), *tiling.others)
        return min(product_seconds(product, own, target, known, published) for own in each)
    extents = extents_of(product)
    factors = None if product.factors is None else product.factors.name
    speed = speed_of(known, published, factors)
    if not product.uses_matrix_units:
        return simt_seconds(extents, tiling, target, known, product.total.dtype)
    counted = streaming_cycles(extents, speed)
    if tiling.tiles != GEMV_TILES:
        # Blocks of few rows are done before memory is.
        counted = max(counted, cycles(extents, tiling, target, tiling.is_warp_specialized, speed))
    return known.launch + counted * known.cycle


def speed_of(known: DeviceConstants, published: DeviceConstants, factors: str | None) -> Speed:
    """A device beside the H100 of the model, cycle by cycle. factors: the type that matrix units multiply; None for
    none."""
    model = published_constants(_H100, _H100_MULTIPROCESSORS, 0)
    products = 1.0
    if factors is not None and factors in known.matrix and factors in published.matrix:
        # How much of its peak a kernel reaches is the model's: only what was measured of the peak is another matter.
        products = _per_cycle(known.matrix[factors], known) / _per_cycle(published.matrix[factors], published)
    return Speed(
        products,
        _cache_rate(known) / _cache_rate(model),
        _per_cycle(known.memory.device_bandwidth, known) / _per_cycle(model.memory.device_bandwidth, model),
    )


def _cache_rate(constants: DeviceConstants) -> float:
    """Bytes a cycle of a multiprocessor from the second-level cache, when all read."""
    return _per_cycle(constants.level("L2").device_bandwidth, constants) / constants.cores


def _per_cycle(rate: float, constants: DeviceConstants) -> float:
    return rate * constants.cycle
