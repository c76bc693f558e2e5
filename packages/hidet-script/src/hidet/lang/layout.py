"""Layouts: where the element at some indices of a tensor lies, as a number of elements from its start.

    row_major(4, 8)                        the last index is contiguous
    local_layout(8, 4) * row_major(2, 2)   each of 8 x 4 threads holds its own 2 x 2 square of a 16 x 8 tensor
    row_major(8, 64).swizzle(1, 0, 3)      rows of shared memory shifted against each other to avoid bank conflicts

The product of two layouts puts a copy of the second at each place of the first: element i of shape s1 * s2 lies at
first(i // s2) * size(second) + second(i % s2). Their sum `first + second` has the dims of both. Extents may be numbers
or expressions of the thread IR.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from hidet.errors import ShapeError
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.ir.expr_text import print_expr
from hidet.lang.facts import IndexFacts

Index = int | Expr


def shown(extents: Sequence[Index]) -> str:
    """Extents or strides as messages show them."""
    return ", ".join(print_expr(extent) if isinstance(extent, Expr) else str(extent) for extent in extents)


class Layout(ABC):
    """A map from indices to offsets. `shape`: extents; `size`: elements of memory that it needs."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[Index, ...]: ...

    @property
    @abstractmethod
    def size(self) -> Index: ...

    @abstractmethod
    def offset(self, indices: Sequence[Index], facts: IndexFacts) -> Index:
        """Elements between the start and the element at `indices`, one number or i64 expression a dim.

        facts: what is known about variables in them.
        """

    def __call__(self, *indices: Index) -> Index:
        """`offset`, of as many indices as there are dims. ShapeError for another number."""
        if len(indices) != len(self.shape):
            raise ShapeError(f"{self} takes {len(self.shape)} indices, got {len(indices)}")
        return self.offset(indices, IndexFacts())

    def __mul__(self, inner: Layout) -> Layout:
        """The product. ShapeError when the ranks differ."""
        if not isinstance(inner, Layout):
            return NotImplemented
        if len(inner.shape) != len(self.shape):
            raise ShapeError(f"{self} and {inner} have different ranks: their product needs equal ones")
        return ProductLayout(self, inner)

    def __add__(self, inner: Layout) -> Layout:
        """The layout of the dims of this one, then those of `inner`: a copy of `inner` at each place of this one."""
        if not isinstance(inner, Layout):
            return NotImplemented
        return ConcatLayout(self, inner)

    def swizzle(self, dim: int, regards_dim: int | None = None, log_step: int = 0) -> Layout:
        """The layout with index `dim` replaced by its exclusive or with index `regards_dim` // 2**log_step.

        regards_dim: None for the other one of two dims. ShapeError unless the extent of `dim` is a power of two known
        at build time, and the dims differ.
        """
        rank = len(self.shape)
        if regards_dim is None:
            if rank != 2:
                raise ShapeError(f"swizzle({dim}) of {self} needs regards_dim: it has {rank} dims")
            regards_dim = 1 - dim
        if not (0 <= dim < rank and 0 <= regards_dim < rank and dim != regards_dim and log_step >= 0):
            raise ShapeError(f"swizzle({dim}, {regards_dim}, {log_step}) does not name two dims of {self}")
        extent = self.shape[dim]
        if not isinstance(extent, int) or extent & (extent - 1):
            raise ShapeError(f"dim {dim} of {self} has extent {extent}: a swizzle needs a power of two")
        return SwizzledLayout(self, dim, regards_dim, log_step)


@dataclass(frozen=True, slots=True)
class StridedLayout(Layout):
    """Each index counts for `strides[dim]` elements; stride 0 lets elements share a place."""

    extents: tuple[Index, ...]
    strides: tuple[Index, ...]
    name: str = "strided"

    @property
    def shape(self) -> tuple[Index, ...]:
        return self.extents

    @property
    def size(self) -> Index:
        size: Index = 1
        for extent, stride in zip(self.extents, self.strides, strict=True):
            if not (isinstance(stride, int) and stride == 0):
                size = size * extent
        return size

    def offset(self, indices: Sequence[Index], facts: IndexFacts) -> Index:
        total: Index = 0
        for index, stride in zip(indices, self.strides, strict=True):
            total = total + index * stride
        return total

    def __str__(self) -> str:
        if self.name != "strided":
            return f"{self.name}({shown(self.extents)})"
        return f"strided([{shown(self.extents)}], [{shown(self.strides)}])"


@dataclass(frozen=True, slots=True)
class ProductLayout(Layout):
    """`outer * inner`; see the top of this file."""

    outer: Layout
    inner: Layout

    @property
    def shape(self) -> tuple[Index, ...]:
        return tuple(a * b for a, b in zip(self.outer.shape, self.inner.shape, strict=True))

    @property
    def size(self) -> Index:
        return self.outer.size * self.inner.size

    def offset(self, indices: Sequence[Index], facts: IndexFacts) -> Index:
        parts = [facts.divide(index, extent) for index, extent in zip(indices, self.inner.shape, strict=True)]
        tiles = self.outer.offset([quotient for quotient, _ in parts], facts)
        return tiles * self.inner.size + self.inner.offset([rest for _, rest in parts], facts)

    def __str__(self) -> str:
        return f"{_in_product(self.outer)} * {_in_product(self.inner)}"


def _in_product(layout: Layout) -> str:
    return f"({layout})" if isinstance(layout, ConcatLayout) else str(layout)


@dataclass(frozen=True, slots=True)
class ConcatLayout(Layout):
    """`outer + inner`: element (i, j) lies at outer(i) * size(inner) + inner(j)."""

    outer: Layout
    inner: Layout

    @property
    def shape(self) -> tuple[Index, ...]:
        return (*self.outer.shape, *self.inner.shape)

    @property
    def size(self) -> Index:
        return self.outer.size * self.inner.size

    def offset(self, indices: Sequence[Index], facts: IndexFacts) -> Index:
        rank = len(self.outer.shape)
        tiles = self.outer.offset(indices[:rank], facts)
        return tiles * self.inner.size + self.inner.offset(indices[rank:], facts)

    def __str__(self) -> str:
        return f"{_in_product(self.outer)} + {_in_product(self.inner)}"


@dataclass(frozen=True, slots=True)
class SwizzledLayout(Layout):
    """See `Layout.swizzle`."""

    base: Layout
    dim: int
    regards_dim: int
    log_step: int

    @property
    def shape(self) -> tuple[Index, ...]:
        return self.base.shape

    @property
    def size(self) -> Index:
        return self.base.size

    def offset(self, indices: Sequence[Index], facts: IndexFacts) -> Index:
        extent = self.shape[self.dim]
        row, _ = facts.divide(indices[self.regards_dim], 2**self.log_step)
        _, shift = facts.divide(row, extent)
        moved = list(indices)
        moved[self.dim] = _exclusive_or(indices[self.dim], shift)
        return self.base.offset(moved, facts)

    def __str__(self) -> str:
        return f"({self.base}).swizzle({self.dim}, {self.regards_dim}, {self.log_step})"


def _exclusive_or(a: Index, b: Index) -> Index:
    if isinstance(a, int) and isinstance(b, int):
        return a ^ b
    return build.binary("xor", a, b)


def _extents(name: str, shape: Sequence[Index | Sequence[Index]]) -> tuple[Index, ...]:
    """Extents given one by one or as one sequence. ShapeError for what is no extent."""
    first = shape[0] if len(shape) == 1 else None
    listed: Sequence[object] = first if isinstance(first, Sequence) else shape
    extents: list[Index] = []
    for extent in listed:
        if isinstance(extent, bool) or not isinstance(extent, int | Expr) or (isinstance(extent, int) and extent < 0):
            raise ShapeError(f"{name} takes extents, got {extent!r}")
        extents.append(extent)
    return tuple(extents)


def row_major(*shape: Index | Sequence[Index]) -> Layout:
    """The last index is contiguous."""
    extents = _extents("row_major", shape)
    return StridedLayout(extents, _dense(extents, range(len(extents))), "row_major")


def column_major(*shape: Index | Sequence[Index]) -> Layout:
    """The first index is contiguous."""
    extents = _extents("column_major", shape)
    return StridedLayout(extents, _dense(extents, range(len(extents))[::-1]), "column_major")


def local_layout(*shape: Index | Sequence[Index]) -> Layout:
    """All elements lie at 0: which thread holds an element says the rest of the product this is a factor of."""
    extents = _extents("local_layout", shape)
    return StridedLayout(extents, (0,) * len(extents), "local_layout")


def strided_layout(shape: Sequence[Index], ranks: Sequence[int] | None = None) -> Layout:
    """Dense, with the dim of the highest rank contiguous; None for the last dim.

    ShapeError for ranks that do not fit.
    """
    extents = _extents("strided_layout", (shape,))
    chosen = list(range(len(extents))) if ranks is None else list(ranks)
    if sorted(chosen) != list(range(len(extents))):
        raise ShapeError(f"ranks must be a permutation of 0 to {len(extents) - 1}, got {chosen}")
    return StridedLayout(extents, _dense(extents, sorted(range(len(extents)), key=chosen.__getitem__)))


def strided(shape: Sequence[Index], strides: Sequence[Index]) -> Layout:
    """The layout with these strides, in elements. ShapeError when there are not as many as extents."""
    extents, steps = _extents("strided", (shape,)), tuple(strides)
    if len(extents) != len(steps):
        raise ShapeError(f"{len(steps)} strides for {len(extents)} extents")
    return SpanningLayout(extents, steps)


@dataclass(frozen=True, slots=True)
class SpanningLayout(StridedLayout):
    """Strides of any kind: the memory reaches to the last element."""

    @property
    def size(self) -> Index:
        last: Index = 1
        for extent, stride in zip(self.extents, self.strides, strict=True):
            last = last + (extent - 1) * stride
        return last


def _dense(extents: Sequence[Index], order: Sequence[int]) -> tuple[Index, ...]:
    strides: list[Index] = [1] * len(extents)
    running: Index = 1
    for dim in reversed(order):
        strides[dim] = running
        running = running * extents[dim]
    return tuple(strides)


def is_row_major(layout: Layout) -> bool:
    """Whether buffers of the thread IR have this layout by themselves."""
    return isinstance(layout, StridedLayout) and layout.name == "row_major"


def constant_size(layout: Layout) -> int:
    """Elements of memory that a layout needs. ShapeError where that is known at run time only."""
    if all(isinstance(extent, int) for extent in layout.shape):
        size = layout.size
        if isinstance(size, int):
            return size
    raise ShapeError(f"{layout} has extents known at run time only; memory of a kernel needs constant ones")


row_layout = row_major
col_layout = column_major
column_layout = column_major

__all__ = [
    "Layout",
    "col_layout",
    "column_layout",
    "column_major",
    "constant_size",
    "is_row_major",
    "local_layout",
    "row_layout",
    "row_major",
    "strided",
    "strided_layout",
]
