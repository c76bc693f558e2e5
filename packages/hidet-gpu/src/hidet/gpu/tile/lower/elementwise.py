"""Register tiles element by element: filling and mapping."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from hidet import dtypes
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile.lower.fragment import ALL_LANES, Fragment, Threads, place
from hidet.gpu.tile.statements import Fill, Map, WhenAny
from hidet.gpu.tile.tensors import RTile
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.visit import substitute

_NAMES = ("piece_row", "piece_column", "half", "pair")


def each(extents: tuple[int, ...], body: Callable[[tuple[Expr, ...]], s.Stmt]) -> s.Stmt:
    """Unrolled loops over the elements that a thread holds; `body` is given their indices, constants for extent 1."""
    loops = [build.size_var(name) for name in _NAMES[: len(extents)]]
    indices = tuple(var if extent > 1 else build.index(0) for var, extent in zip(loops, extents, strict=True))
    result = body(indices)
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        if extent > 1:
            result = s.For(var, build.index(0), build.index(extent), result, kind="unroll")
    return result


def unroll(index: Var, extent: int, body: s.Stmt) -> s.Stmt:
    """`body` for every value of a variable below `extent`, written out."""
    return s.For(index, build.index(0), build.index(extent), body, kind="unroll")


def fill_tile(node: Fill, target: Fragment) -> s.Stmt:
    """Set all elements."""
    return each(target.extents, lambda at: s.Store(target.buffer, at, node.value))


Element = Callable[[tuple[Expr, ...]], Expr]
"""The element of a register tile at indices of its fragment."""


def map_tile(node: Map, target: Fragment, inputs: Mapping[RTile, Element], threads: Threads) -> s.Stmt:
    """Compute each element from those of the inputs and its place."""
    element = mapped_element(node, inputs, threads)
    return each(target.extents, lambda at: s.Store(target.buffer, at, element(at)))


def mapped_element(node: Map, inputs: Mapping[RTile, Element], threads: Threads) -> Element:
    """What a map computes."""

    def element(at: tuple[Expr, ...]) -> Expr:
        row, column = place(node.target, threads, at[0], at[1], at[2], at[3])
        values: dict[Var, Expr] = {
            node.row: row if node.target.rows > 1 else build.index(0),
            node.column: column if node.target.columns > 1 else build.index(0),
        }
        values.update((variable, inputs[tile](at)) for variable, tile in zip(node.elements, node.inputs, strict=True))
        return substitute(node.formula, values)

    return element


def held_element(source: Fragment, first: tuple[Expr, Expr] | None = None) -> Element:
    """What a thread holds. first: pieces of the tile before those that it holds, along rows and columns."""
    above, before = first or (build.index(0), build.index(0))
    return lambda at: build.load(source.buffer, *source.at(at[0] - above, at[1] - before, at[2], at[3]))


def any_element(node: WhenAny, tile: Fragment) -> Expr:
    """Whether an element that some lane of the warp holds meets a condition."""
    found: Expr = build.const(False, dtypes.boolean)
    for at in itertools.product(*map(range, tile.extents)):
        value = build.load(tile.buffer, *map(build.index, at))
        found = build.binary("lor", found, substitute(node.condition, {node.element: value}))
    return intrinsic_call("gpu.vote_any", build.const(ALL_LANES, dtypes.u32), found)
