"""Statements of tile programs.

tile stmt := Load(target, source, row, column)   shared tile <- box of a matrix, zero outside of it
           | Fetch(target, source, row, column)  register tile <- box of a matrix, zero outside of it
           | Fill(target, value)                 register tile <- a number
           | Mma(accumulator, a, b, ...)         accumulator += a b
           | Map(target, inputs, formula)        register tile <- formula of the elements of others and of their place
           | Reduce(target, source, axis, op)    register tile <- reduce along an axis
           | Store(target, source, row, column)  box of a matrix <- register tile; nothing outside of it
           | Ring(index, extent, stages, loads, body)   loop whose loads run ahead of its body
           | Loop(index, extent, body)           loop without loads that run ahead
           | When(condition, body)               body, if a condition that the whole block shares is met
           | WhenAny(tile, ..., body)            maps, by warps in which an element of a tile meets a condition

Barriers, copies in the background, stages and their order are no statements: lowering derives them.

A statement raises ScheduleError where its tiles do not fit each other, so that there are none with wrong shapes or
element types; `hidet.gpu.tile.verify` checks what stands around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from hidet.errors import ScheduleError
from hidet.gpu.tile.tensors import GTensor, RTile, Source, STile
from hidet.ir import build
from hidet.ir.expr import Const, Expr, Var

ReduceOp = Literal["add", "max", "min"]


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Fill `target` with the box of `source` that starts at (`row`, `column`)."""

    target: STile
    source: Source
    row: Expr
    column: Expr

    def __post_init__(self) -> None:
        target, source = self.target, self.source
        if source.dtype != target.stored:
            raise ScheduleError(f"tile {target.name} of {target.dtype} is loaded from a matrix of {source.dtype}")


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """Fill `target` with the box of `source` that starts at (`row`, `column`).

    Neighbours that the matrix's alignment takes at once are inside of it together. A tile of one row or column is the
    box's first one.
    """

    target: RTile
    source: GTensor
    row: Expr
    column: Expr

    def __post_init__(self) -> None:
        target, source = self.target, self.source
        if source.dtype != target.dtype:
            raise ScheduleError(f"tile {target.name} of {target.dtype} is fetched from a matrix of {source.dtype}")

    @property
    def is_matrix(self) -> bool:
        """Whether the tile has several rows and columns."""
        return self.target.rows > 1 and self.target.columns > 1


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """Set all elements of `target`."""

    target: RTile
    value: Const

    def __post_init__(self) -> None:
        if self.value.type != self.target.dtype:
            raise ScheduleError(f"tile {self.target.name} of {self.target.dtype} is filled with a {self.value.type}")


@dataclass(frozen=True, slots=True, eq=False)
class Mma:
    """accumulator[m, n] += a[m, k] b[k, n].

    a is [k, m] in memory if `a_is_transposed`, and may lie in registers else; b is [n, k] if `b_is_transposed`.
    """

    accumulator: RTile
    a: STile | RTile
    b: STile
    a_is_transposed: bool
    b_is_transposed: bool

    def __post_init__(self) -> None:
        accumulator, a, b = self.accumulator, self.a, self.b
        m, k = (a.columns, a.rows) if self.a_is_transposed else (a.rows, a.columns)
        n, other = (b.rows, b.columns) if self.b_is_transposed else (b.columns, b.rows)
        if (m, n) != (accumulator.rows, accumulator.columns) or k != other:
            raise ScheduleError(
                f"a product of [{m}, {k}] and [{other}, {n}] is added to {accumulator.name} of "
                f"[{accumulator.rows}, {accumulator.columns}]"
            )
        if isinstance(a, RTile) and (self.a_is_transposed or a.is_transposed or accumulator.is_transposed):
            raise ScheduleError(f"{a.name} lies in registers, where it cannot be transposed")

    @property
    def upright(self) -> Mma:
        """The product or, for an accumulator that is spread as its transpose, that of the transposed operands."""
        accumulator, a = self.accumulator, self.a
        if not accumulator.is_transposed:
            return self
        assert isinstance(a, STile), "operands in registers are not transposed"
        return Mma(accumulator.upright, self.b, a, not self.b_is_transposed, not self.a_is_transposed)


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """target[row, column] = formula, over `elements` (those of `inputs` there) and the place in the tile, i64."""

    target: RTile
    inputs: tuple[RTile, ...]
    elements: tuple[Var, ...]
    row: Var
    column: Var
    formula: Expr

    def __post_init__(self) -> None:
        target = self.target
        for tile in self.inputs:
            if tile.rows not in (1, target.rows) or tile.columns not in (1, target.columns):
                raise ScheduleError(
                    f"{tile.name} of [{tile.rows}, {tile.columns}] does not broadcast to {target.name} of "
                    f"[{target.rows}, {target.columns}]"
                )
        if self.formula.type != target.dtype:
            raise ScheduleError(f"{target.name} of {target.dtype} is computed by a formula of type {self.formula.type}")


@dataclass(frozen=True, slots=True, eq=False)
class Reduce:
    """Reduce `source` along `axis`. The extent of `target` there is 1, or that of partial results.

    Partial results are what a thread can reduce alone; reducing them once more gives the whole. Which elements belong
    to which of them is left to the lowering.
    """

    target: RTile
    source: RTile
    axis: int
    op: ReduceOp

    def __post_init__(self) -> None:
        target, source = self.target, self.source
        if self.axis not in (0, 1) or self.op not in get_args(ReduceOp):
            raise ScheduleError(
                f"{source.name} is reduced by {self.op!r} along axis {self.axis!r}, "
                f"expected {', '.join(get_args(ReduceOp))} along 0 or 1"
            )
        own, whole = (target.rows, source.rows) if self.axis == 0 else (target.columns, source.columns)
        parts = own if whole % own == 0 else 1
        expected = (parts, source.columns) if self.axis == 0 else (source.rows, parts)
        if (target.rows, target.columns) != expected or target.dtype != source.dtype:
            raise ScheduleError(
                f"{source.name} of [{source.rows}, {source.columns}] reduced along axis {self.axis} is "
                f"{list(expected)} of {source.dtype}, but {target.name} is [{target.rows}, {target.columns}] of "
                f"{target.dtype}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write `source` to the box of `target` that starts at (`row`, `column`)."""

    target: GTensor
    source: RTile
    row: Expr
    column: Expr

    def __post_init__(self) -> None:
        source, target = self.source, self.target
        if source.dtype != target.dtype:
            raise ScheduleError(f"tile {source.name} of {source.dtype} is stored to a matrix of {target.dtype}")


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """For `index` below `extent`: `loads`, then `body`. Loads run up to `stages` - 1 iterations ahead."""

    index: Var
    extent: Expr
    stages: int
    loads: tuple[Load, ...]
    body: tuple[TileStmt, ...]

    def __post_init__(self) -> None:
        if self.stages < 2:
            raise ScheduleError(f"a pipeline of {self.stages} stages, expected at least 2")
        late = next((stmt for stmt in self.body if isinstance(stmt, Load)), None)
        if late is not None:
            raise ScheduleError(
                f"tile {late.target.name} is loaded behind other statements of a pipeline",
                hint="the loads of a pipeline stand at its beginning, so that they can run ahead",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """For `index` below `extent`: `body`."""

    index: Var
    extent: Expr
    body: tuple[TileStmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class When:
    """`body`, where `condition` holds; it is the same for all threads of a block."""

    condition: Expr
    body: tuple[TileStmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WhenAny:
    """`body` by the warps in which `condition`, over `element`, holds for an element of `tile` that they have.

    Each warp decides for itself, so that the body may only compute elements in place; and it must leave those alone
    that elements without the condition belong to.
    """

    tile: RTile
    element: Var
    condition: Expr
    body: tuple[Map, ...]


TileStmt = Load | Fetch | Fill | Mma | Map | Reduce | Store | Ring | Loop | When | WhenAny


def load(target: STile, source: Source, row: Expr | int, column: Expr | int) -> Load:
    """Load a box of a matrix, whose elements have the type that the tile is stored in."""
    return Load(target, source, build.index(row), build.index(column))


def fetch(target: RTile, source: GTensor, row: Expr | int, column: Expr | int) -> Fetch:
    """Fetch a box of a matrix, whose elements have the tile's type."""
    return Fetch(target, source, build.index(row), build.index(column))


def fill(target: RTile, value: float) -> Fill:
    """Set all elements to a number."""
    return Fill(target, build.const(value, target.dtype))


def mma(
    accumulator: RTile, a: STile | RTile, b: STile, *, a_is_transposed: bool = False, b_is_transposed: bool = False
) -> Mma:
    """Multiply tiles and add to `accumulator`. ScheduleError when their shapes do not fit."""
    return Mma(accumulator, a, b, a_is_transposed, b_is_transposed)


def map(target: RTile, inputs: Sequence[RTile], value: Callable[..., Expr]) -> Map:
    """target[row, column] = value(*elements, row, column). Inputs with one row or column are broadcast."""
    elements = tuple(Var(tile.name, tile.dtype) for tile in inputs)
    row, column = build.size_var("row"), build.size_var("column")
    return Map(target, tuple(inputs), elements, row, column, value(*elements, row, column))


def reduce(target: RTile, source: RTile, axis: int, op: ReduceOp) -> Reduce:
    """Reduce along an axis. ScheduleError when `target` has neither extent 1 there nor a part of that of `source`, or
    another extent than `source` elsewhere."""
    return Reduce(target, source, axis, op)


def store(target: GTensor, source: RTile, row: Expr | int, column: Expr | int) -> Store:
    """Write a register tile, whose elements have the matrix's type."""
    return Store(target, source, build.index(row), build.index(column))


def ring(
    extent: Expr | int, stages: int, loads: Callable[[Expr], Sequence[Load]], body: Callable[[Expr], Sequence[TileStmt]]
) -> Ring:
    """A loop whose loads run ahead; both functions are given the index."""
    index = build.size_var("step")
    return Ring(index, build.index(extent), stages, tuple(loads(index)), tuple(body(index)))


def loop(extent: Expr | int, body: Callable[[Expr], Sequence[TileStmt]]) -> Loop:
    """A loop; `body` is given the index."""
    index = build.size_var("step")
    return Loop(index, build.index(extent), tuple(body(index)))


def when(condition: Expr, body: Sequence[TileStmt]) -> When:
    """Statements under a condition that does not depend on the thread."""
    return When(condition, tuple(body))


def when_any(tile: RTile, condition: Callable[[Expr], Expr], body: Sequence[Map]) -> WhenAny:
    """Maps that change something only for elements of `tile` that meet a condition."""
    element = Var(tile.name, tile.dtype)
    return WhenAny(tile, element, condition(element), tuple(body))
