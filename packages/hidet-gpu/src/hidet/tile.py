"""Kernels in tiles: what a block computes, as loads, products, maps, reductions and stores of matrices of fixed size.

    @hidet.tile.kernel(warps=(2, 2))
    def matmul(a: f16[m, k], b: f16[k, n], c: f16[m, n]): ...

Layouts, barriers, copies in the background and which thread holds what are the compiler's business.
`docs/tile-kernels.md` goes from a naive product to the fastest one.
"""

from hidet.gpu.tile.language import (
    cdiv,
    computed,
    fetch,
    fill,
    grid,
    load,
    map,
    matrix,
    mma,
    pipeline,
    reduce,
    register,
    shared,
    store,
)
from hidet.gpu.tile.script import TileScript, kernel

__all__ = [
    "TileScript",
    "cdiv",
    "computed",
    "fetch",
    "fill",
    "grid",
    "kernel",
    "load",
    "map",
    "matrix",
    "mma",
    "pipeline",
    "reduce",
    "register",
    "shared",
    "store",
]
