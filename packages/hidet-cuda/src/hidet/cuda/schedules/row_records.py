"""Rows of records: where they lie, what is read and written of them, and the kernels that work on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Routine, Scatter
from hidet.cuda.schedules.point_kernel import digits, word_for
from hidet.cuda.schedules.scan_kernel import block_number, thread_in_block
from hidet.cuda.schedules.sort_kernels import Record
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Declare, If, Launch, Stmt, Store
from hidet.schedule.fallback import NestBuilder, StageScope

BLOCK = 256
"""Threads of a block of kernels with a thread a record."""


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records in scratch memory, `count` a row. parts: pointers of the entry function."""

    parts: tuple[Var, ...]
    count: Dim


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What is put in order: `length` records for each index of `outer`, which has the extents `others`.

    parts: types of the parts of a record. record: the one at a position of the row, in a kernel. write: statements that
    set what the results have at a place of the row, from the record that belongs there.
    """

    outer: tuple[Var, ...]
    others: tuple[Dim, ...]
    length: Dim
    parts: tuple[DType, ...]
    record: Callable[[RowKernel, Expr], Sequence[Expr]]
    write: Callable[[RowKernel, Expr, Record], list[Stmt]]

    @property
    def count(self) -> Dim:
        """How many rows."""
        return dims.product(self.others)


class RowKernel:
    """One kernel of an ordering under construction. item: its number where a thread has one; row: that of its row."""

    def __init__(self, nest: NestBuilder, stage: Routine | Scatter, rows: Rows) -> None:
        self.rows, self.nest = rows, nest
        self.opened: StageScope = nest.opened(stage)
        self.shared_outer = tuple(self.opened.outer)
        self.scope = self.opened.scope
        self.row, self.item = build.size_var("row"), build.size_var("item")

    def size(self, dim: Dim) -> Expr:
        """A size in the kernel."""
        return self.scope.size(dim)

    def memory(self, records: Records) -> tuple[Var, ...]:
        """Pointers of the kernel to records."""
        self.opened.outer.extend(records.parts)
        return tuple(self.scope.pointer(part.name, part.dtype) for part in records.parts)

    def row_of(self, item: Expr, extent: Dim, inner: Var) -> list[Stmt]:
        """The row of an item, and its place among the `extent` items of that row."""
        word = word_for(self.rows.count * extent)
        number, row = Var("number", word), Var("row_number", word)
        each = build.cast(self.size(extent), word)
        return [
            Declare(number, build.cast(item, word)),
            Declare(row, number // each),
            Declare(inner, build.cast(number % each, dtypes.i64)),
            Declare(self.row, build.cast(row, dtypes.i64)),
            *digits(row, [self.size(other) for other in self.rows.others], self.rows.outer),
        ]

    def load(self, records: Sequence[Var], place: Expr, count: Expr) -> list[Expr]:
        """A record of the row."""
        return [build.load(part, self.row * count + place) for part in records]

    def store(self, records: Sequence[Var], place: Expr, count: Expr, record: Record) -> list[Stmt]:
        """Set a record of the row."""
        at = self.row * count + place
        return [Store(part, (at,), value) for part, value in zip(records, record, strict=True)]

    def each(self, items: Dim, inside: Sequence[Stmt]) -> list[Stmt]:
        """A thread an item, in blocks of 256."""
        first = Declare(self.item, block_number() * BLOCK + thread_in_block())
        return [first, If(self.item < self.size(items), build.seq(inside))]

    def add(self, body: Sequence[Stmt]) -> str:
        """Add the kernel; its name."""
        name = f"kernel{len(self.nest.functions)}"
        self.nest.functions.append(Function(name, self.scope.params, build.seq(body), kind="kernel"))
        return name

    def launch(self, body: Sequence[Stmt], items: Dim, per_block: int, threads: int, when: Expr | None = None) -> None:
        """Add the kernel, and its launch, under a condition of the entry function."""
        name = self.add(body)
        arguments = (*self.opened.outer, *map(self.nest.argument, self.scope.arguments))
        blocks = (self.nest.argument(items) + (per_block - 1)) // per_block
        launch = Launch(name, (blocks,), arguments, block=(build.index(threads),))
        self.nest.launches.append(launch if when is None else If(when, launch))
