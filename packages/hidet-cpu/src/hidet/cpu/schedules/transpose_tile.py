"""Transposing a square of SIMD vectors in registers.

Elements are exchanged inside 128-bit chunks first, by interleaving pairs of vectors, then whole chunks between vectors.
Every step is one shuffle that x86 and aarch64 have an instruction for (`vunpcklps`, `vshuff32x4`, `zip1`, …).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import APART, Function
from hidet.ir.types import PointerType
from hidet.schedule.shared_functions import share_functions

_CHUNK_BITS = 128


def sum_lanes(k: IRBuilder, rows: Sequence[Expr]) -> Expr:
    """The vector of the sums of the lanes of n vectors of n lanes each; n is a power of two.

    The steps of a transposition, with the two vectors of each pair added: n - 1 additions for n sums.
    """
    vectors = list(rows)
    for _, (low, high) in _steps(len(rows), rows[0].dtype.bits):
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [k.let("partial", build.shuffle(a, b, low) + build.shuffle(a, b, high)) for a, b in pairs]
    return vectors[0]


def reduce_lanes(k: IRBuilder, vector: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """The scalar that an associative `combine` of two vectors makes of all lanes of one."""
    n = vector.lanes
    distance = n // 2
    while distance:
        moved = build.shuffle(vector, vector, [(lane + distance) % n for lane in range(n)])
        vector, distance = k.let("reduced", combine(vector, moved)), distance // 2
    return build.extract(vector, 0)


def transpose_tile(k: IRBuilder, rows: Sequence[Expr]) -> list[Expr]:
    """The columns of n vectors of n lanes each; n is a power of two."""
    n = len(rows)
    vectors = [k.let("mixed", row) for row in rows]
    contents = [[(row, column) for column in range(n)] for row in range(n)]
    for distance, patterns in _steps(n, rows[0].dtype.bits):
        for first in range(n):
            if first & distance:
                continue
            second = first + distance
            a, b, together = vectors[first], vectors[second], contents[first] + contents[second]
            vectors[first], vectors[second] = (k.let("mixed", build.shuffle(a, b, lanes)) for lanes in patterns)
            contents[first], contents[second] = ([together[lane] for lane in lanes] for lanes in patterns)
    columns: list[Expr] = [vectors[0]] * n
    for vector, content in zip(vectors, contents, strict=True):
        columns[content[0][1]] = vector
    return columns


@functools.cache
def square_function(lanes: int, source: DType, target: DType) -> Function:
    """target[c, r] = source[r, c], converted, for a square of `lanes` rows and columns, all read before any is written.

    Its parameters are the square's first element and the elements between rows, of the source and of the target.
    Programs share it, because it is a hundred instructions that most of them would repeat.
    """
    places = Var("source", PointerType(source)), Var("target", PointerType(target))
    strides = tuple(Var(f"{place.name}_stride", build.INDEX) for place in places)
    rows = [build.load(places[0], strides[0] * row, lanes=lanes) for row in range(lanes)]
    k = IRBuilder()
    for n, column in enumerate(transpose_tile(k, rows)):
        k.store(places[1], strides[1] * n, build.cast(column, target))
    k.return_(build.index(0))
    parameters = (places[0], strides[0], places[1], strides[1])
    name = f"turn_{source.short}_{target.short}_{lanes}"
    (shared,) = share_functions([Function(name, parameters, k.body, "device", result=build.INDEX, attributes=APART)])
    return shared


@functools.cache
def panel_square_function(lanes: int, source: DType, target: DType, *, is_scattered: bool) -> Function:
    """target[place(c) + r] = source[min(r, last), c], converted, for a square of `lanes` rows and columns.

    Its parameters are the square's first element, the elements between rows, the number of the last row that is there,
    the target's first element, which is the caller's own memory, and the place: elements between columns in the target,
    or, where it is_scattered, a pointer to a number of elements for each column. Programs share it.
    """
    read, written = Var("source", PointerType(source)), Var("target", PointerType(target, "local"))
    stride, last = Var("source_stride", build.INDEX), Var("last", build.INDEX)
    place = Var("place", PointerType(build.INDEX, "local") if is_scattered else build.INDEX)
    offsets = [build.minimum(build.index(row), last) * stride for row in range(lanes)]
    k = IRBuilder()
    columns = transpose_tile(k, [build.load(read, offset, lanes=lanes) for offset in offsets])
    for n, column in enumerate(columns):
        k.store(written, build.load(place, n) if is_scattered else place * n, build.cast(column, target))
    k.return_(build.index(0))
    name = f"pack_{source.short}_{target.short}_{lanes}{'_apart' if is_scattered else ''}"
    parameters = (read, stride, last, written, place)
    function = Function(name, parameters, k.body, "device", result=build.INDEX, attributes=(("inline", False),))
    (shared,) = share_functions([function])
    return shared


def _steps(n: int, bits: int) -> list[tuple[int, tuple[list[int], list[int]]]]:
    """(distance between the vectors of a pair, lanes of the two vectors that replace them) of each step."""
    chunk = min(n, _CHUNK_BITS // bits)
    steps = []
    width = 1
    while width < chunk:
        low, high = _interleaved(n, chunk, width, 0), _interleaved(n, chunk, width, chunk // 2)
        steps.append((width, (low, high)))
        width *= 2
    while width < n:
        even, odd = _every_other_chunk(n, chunk, 0), _every_other_chunk(n, chunk, chunk)
        steps.append((width, (even, odd)))
        width *= 2
    return steps


def _interleaved(n: int, chunk: int, width: int, half: int) -> list[int]:
    """Runs of `width` lanes of a and b in turn, from one half of every chunk."""
    starts = [start + half + run for start in range(0, n, chunk) for run in range(0, chunk // 2, width)]
    return [source + start + lane for start in starts for source in (0, n) for lane in range(width)]


def _every_other_chunk(n: int, chunk: int, first: int) -> list[int]:
    """Every other chunk of a, then those of b."""
    starts = [source + start for source in (0, n) for start in range(first, n, 2 * chunk)]
    return [start + lane for start in starts for lane in range(chunk)]
