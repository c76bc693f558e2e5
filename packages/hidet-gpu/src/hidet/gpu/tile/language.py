"""The words of kernels in tiles, for imports and editors: `hidet.tile` has them.

A function under `@hidet.tile.kernel` is read, never executed; only there do the functions below mean something. Tiles
are matrices of fixed sizes, declared by their type: `f16[64, 32] @ shared` lies in shared memory, where products take
their operands from, `f32[64, 64] @ register` is spread over the registers of the block's threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

from hidet.errors import ScriptError

MOST_INDICES = 3
"""Indices of blocks that a grid has at most."""


class Space:
    """Where a tile lies: behind `@` in its declaration."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __rmatmul__(self, kind: Any) -> Any:
        return kind

    def __repr__(self) -> str:
        return self.name


shared = Space("shared")
"""Memory that the threads of a block share: tiles that `load` fills and `mma` multiplies."""
register = Space("register")
"""The registers of a block's threads: tiles that are summed up, mapped, reduced and stored."""


def grid(*extents: Any) -> Any:
    """`column, row = grid(columns, rows)`: the indices of this block, one to three, and how many blocks there are along
    each. The first line of a kernel.

    Of two and more, the first two count columns and rows of tiles: blocks that run at the same time get neighbours of
    both, so that they read what the second-level cache holds.
    """
    _refuse("grid")


def cdiv(a: Any, b: Any) -> Any:
    """a / b, rounded up: how many tiles of `b` elements cover `a`. Of numbers, symbolic sizes and values of kernels."""
    return (a + (b - 1)) // b


def matrix(pointer: Any, extents: Sequence[Any], *, stride: Any, align: int) -> Any:
    """`A = matrix(a, [rows, columns], stride=columns, align=16)`: a matrix behind a pointer.

    stride: elements from a row to the next; 0 is the same row again and again. align: bytes that the address and the
    rows are multiples of, which the caller promises. Tensors of the parameters are matrices without this.
    """
    _refuse("matrix")


def computed(dtype: Any, extents: Sequence[Any], value: Callable[[Any, Any], Any]) -> Any:
    """`A = computed(f16, [rows, columns], lambda row, column: ...)`: a matrix whose elements are computed where they
    are loaded."""
    _refuse("computed")


def load(matrix: Any, row: Any, column: Any) -> Any:
    """`tile = load(a, row, column)`: fill a shared tile with the box of a matrix that starts there, zero outside of it.

    At the beginning of a `pipeline`, it runs ahead of what follows.
    """
    _refuse("load")


def fetch(matrix: Any, row: Any, column: Any) -> Any:
    """`tile = fetch(bias, 0, column)`: fill a register tile with the box of a matrix that starts there, zero outside of
    it. A tile of one row, or column, is the same along that axis."""
    _refuse("fetch")


def fill(value: Any) -> Any:
    """`tile = fill(0.0)`: set all elements of a register tile to a number."""
    _refuse("fill")


def mma(a: Any, b: Any) -> Any:
    """`total += mma(a, b)`: add the product of a [m, k] and b [k, n] to a register tile [m, n].

    `a.T` and `b.T` are tiles that lie transposed: [k, m], [n, k]. b lies in shared memory, a there or in registers.
    """
    _refuse("mma")


def map(function: Callable[..., Any], *tiles: Any) -> Any:
    """`tile = map(lambda x, y: x * y, a, b)`: compute each element of a register tile from those of others.

    Tiles with one row or column are broadcast. A function of two more parameters is given the row and the column in the
    tile. An undeclared tile takes shape and type from the map; for a declared one the value is converted.
    """
    _refuse("map")


def reduce(op: Literal["add", "max", "min"], tile: Any, *, axis: int) -> Any:
    """`top = reduce("max", scores, axis=1)`: reduce a register tile along its rows (axis 1: one column is left) or
    columns (axis 0)."""
    _refuse("reduce")


def store(matrix: Any, tile: Any, row: Any, column: Any) -> Any:
    """`store(c, tile, row, column)`: write a register tile to the box of a matrix that starts there, nothing
    outside of it."""
    _refuse("store")


def pipeline(extent: Any, *, stages: int) -> Any:
    """`for step in pipeline(extent, stages=3)`: a loop whose loads, which stand at its beginning, run up to `stages`
    - 1 iterations ahead of what follows them. Shared memory holds each of their tiles `stages` times."""
    _refuse("pipeline")


def _refuse(name: str) -> NoReturn:
    raise ScriptError(f"{name} has a meaning only in a function under @hidet.tile.kernel")


__all__ = [
    "cdiv",
    "computed",
    "fetch",
    "fill",
    "grid",
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
