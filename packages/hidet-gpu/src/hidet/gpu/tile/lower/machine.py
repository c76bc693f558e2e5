"""What a GPU copies and multiplies tiles with: the parts of a lowering that are its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from hidet.gpu.tile.lower.fragment import Fragment, Threads
from hidet.gpu.tile.statements import Mma
from hidet.gpu.tile.tensors import STile
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A shared tile in a kernel: its buffer, and the stage that is read."""

    tile: STile
    buffer: Var
    stage: Expr


class Multiply(Protocol):
    """accumulator += a b, by all threads; ScheduleError for types and shapes that the device does not multiply."""

    def __call__(
        self, node: Mma, accumulator: Fragment, a: Operand | Fragment, b: Operand, threads: Threads
    ) -> Stmt: ...


@dataclass(frozen=True, slots=True, eq=False)
class BackgroundCopies:
    """Copies from global to shared memory that run on while the thread does other things.

    part: one of 4, 8 or 16 bytes, (bytes, target, source, how many of them lie inside: the others become zero).
    commit: those that the thread has started since the last time become a group. wait: until at most so many of the
    latest groups are unfinished. wait_all: until all are finished.
    """

    part: Callable[[int, Expr, Expr, Expr], Stmt]
    commit: Callable[[], Stmt]
    wait: Callable[[int], Stmt]
    wait_all: Callable[[], Stmt]


class BackgroundProducts(Protocol):
    """Products that run on while threads do other things, until they are waited for. group_warps: warps side by side
    along the rows that multiply together."""

    group_warps: int

    def meet(self, threads: Threads) -> Stmt:
        """The warps of a group meet, and see what each other has written."""

    def fits(self, node: Mma, warps: tuple[int, int]) -> bool:
        """Whether a product is multiplied so, of tiles that threads have copied."""

    def visible(self) -> Stmt:
        """Makes what threads have written to shared memory visible to the products after."""

    def multiply(
        self,
        node: Mma,
        accumulator: Fragment,
        operands: tuple[Operand | Fragment, Operand],
        threads: Threads,
        *,
        is_added: bool,
    ) -> Stmt:
        """A product, waited for. is_added: to what the accumulator holds; it replaces that else."""

    def start(self, node: Mma, accumulator: Fragment, operands: tuple[Operand, Operand], threads: Threads) -> Stmt:
        """Start a product. Neither operands nor accumulator may be touched before the wait."""

    def wait(self, count: int) -> Stmt:
        """Wait until at most `count` of the products started last are unfinished."""

    def finished_loop(self, extent: Expr, loop: Stmt, sums: Iterable[Fragment]) -> Stmt:
        """A loop that leaves products unfinished, and what waits for them; nothing where its extent is 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """One device.

    multiply: a product. copies: in the background; None where threads copy at once. products: in the background; None
    where there are none. write_square: writes 16 x 16 results of 2 bytes to shared memory from the registers of a warp,
    as (address of the lane's row, registers, whether transposed); None where lanes write their own elements.
    """

    multiply: Multiply
    copies: BackgroundCopies | None = None
    products: BackgroundProducts | None = None
    write_square: Callable[[Expr, Expr, bool], Stmt] | None = None
