"""Rows of sort keys: where they lie, what is read and written of them, and the kernels that work on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Routine, Scatter
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.schedules.items import decode_item, word_for
from hidet.gpu.schedules.sort_kernels import SortKey
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Launch, Stmt
from hidet.schedule.fallback import NestBuilder, StageScope
from hidet.target import GpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class SortKeys:
    """Sort keys in scratch memory, `count` a row. parts: pointers of the entry function."""

    parts: tuple[Var, ...]
    count: Dim


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What is put in order: `length` sort keys for each index of `outer`, which has the extents `others`.

    parts: types of the parts of a sort key. order_bits: the bits of the first part that order sort keys, from the first
    to before the second; those that agree there are in the order of their positions. target: what orders them.
    sort_key: the one at a position of the row, in a kernel. results: what the results have where a sort key belongs.
    write: sets it at a place of the row.
    """

    outer: tuple[Var, ...]
    others: tuple[Dim, ...]
    length: Dim
    parts: tuple[DType, ...]
    order_bits: tuple[int, int]
    target: GpuTarget
    sort_key: Callable[[RowKernel, Expr], Sequence[Expr]]
    results: Callable[[RowKernel, SortKey], Sequence[Expr]]
    write: Callable[[IRBuilder, RowKernel, Expr, Sequence[Expr]], None]

    @property
    def count(self) -> Dim:
        """How many rows."""
        return dims.product(self.others)


class RowKernel:
    """One kernel of an ordering under construction. row: the number of its row."""

    def __init__(self, nest: NestBuilder, stage: Routine | Scatter, rows: Rows) -> None:
        self.rows, self.nest = rows, nest
        self.opened: StageScope = nest.opened(stage)
        self.scope = self.opened.scope
        self.row = build.size_var("row")
        self.name = ""

    def size(self, dim: Dim) -> Expr:
        """A size in the kernel."""
        return self.scope.size(dim)

    def memory(self, sort_keys: SortKeys) -> tuple[Var, ...]:
        """Pointers of the kernel to sort keys."""
        self.opened.outer.extend(sort_keys.parts)
        return tuple(self.scope.pointer(part.name, part.dtype) for part in sort_keys.parts)

    def row_of(self, k: IRBuilder, item: Expr, extent: Dim, name: str) -> Var:
        """Find the row of an item; gives its place, called `name`, among the `extent` items of that row."""
        word = word_for(self.rows.count * extent)
        each = build.cast(self.size(extent), word)
        number = k.let("number", build.cast(item, word))
        row = k.let("row_number", number // each)
        inner = k.let(name, build.cast(number % each, dtypes.i64))
        k.declare(self.row, build.cast(row, dtypes.i64))
        decode_item(k, row, [self.size(other) for other in self.rows.others], self.rows.outer)
        return inner

    def load(self, sort_keys: Sequence[Var], place: Expr, count: Expr) -> list[Expr]:
        """A sort key of the row."""
        return [build.load(part, self.row * count + place) for part in sort_keys]

    def store(self, k: IRBuilder, sort_keys: Sequence[Var], place: Expr, count: Expr, sort_key: SortKey) -> None:
        """Set a sort key of the row."""
        k.store_each(sort_keys, self.row * count + place, sort_key)

    def finish(self, k: IRBuilder, place: Expr, sort_key: SortKey) -> None:
        """Set what the results have at a place of the row, to which a sort key belongs."""
        self.rows.write(k, self, place, self.rows.results(self, sort_key))

    def launch(self, body: Stmt, items: Dim, per_block: int, threads: int) -> None:
        """Add the kernel, and its launch."""
        self.name = f"kernel{len(self.nest.functions)}"
        self.nest.functions.append(Function(self.name, self.scope.params, body, kind="kernel"))
        self.launch_again(items, per_block, threads, {}, {})

    def launch_again(
        self,
        items: Dim,
        per_block: int,
        threads: int,
        memory: Mapping[Var, Var],
        sizes: Mapping[Expr, Dim],
    ) -> None:
        """Launch the kernel with other memory, by what it was made for, and other sizes, by the kernel's parameter."""
        outer = [memory.get(pointer, pointer) if isinstance(pointer, Var) else pointer for pointer in self.opened.outer]
        numbers = [sizes.get(var, dim) for var, dim in zip(self.scope.sizes, self.scope.arguments, strict=True)]
        blocks = (self.nest.argument(items) + (per_block - 1)) // per_block
        arguments = (*outer, *map(self.nest.argument, numbers))
        self.nest.launches.append(Launch(self.name, (blocks,), arguments, block=(build.index(threads),)))
