"""Division in 32 bits of what is known to fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.dims import Dim, Symbol, as_dim
from hidet.gpu.schedules.narrow import narrow_divisions, places_of
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Binary, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.types import PointerType
from hidet.ir.visit import walk

LARGE = 1 << 33


def _params() -> tuple[Var, Var, Var]:
    return Var("out", PointerType(dtypes.i64)), build.size_var("place"), build.size_var("size")


def function_of(value: Callable[[Expr, Expr], Expr]) -> Function:
    """Stores value(place, size) of two parameters."""
    out, place, size, k = (
        Var("out", PointerType(dtypes.i64)),
        build.size_var("place"),
        build.size_var("size"),
        IRBuilder(),
    )
    k.store(out, 0, value(place, size))
    return Function("f", (out, place, size), k.body, kind="host")


def narrowed(function: Function, places: Dim, size: Dim) -> Function:
    _, place, given = function.params
    return narrow_divisions(function, {place: places_of(places), given: dims.bounds(size)})


def words(function: Function) -> set[object]:
    """Types in which the function divides."""
    divisions = [node for node in walk(function.body) if isinstance(node, Binary) and node.op in ("floordiv", "mod")]
    return {node.type for node in divisions}


KNOWN = {
    "a place by a size": lambda place, size: place // size,
    "what is left of a place": lambda place, size: place % size,
    "places that are moved": lambda place, size: (place * 7 + 3) % size,
    "a place in a place": lambda place, size: (place // size * 5 + place % size) // size,
    "the smaller of two": lambda place, size: build.minimum(place, 9) // build.maximum(size, 2),
    "one of two": lambda place, size: build.select(place < 5, place, size) % size,
    "a place that a roll moves": lambda place, size: (place - 4) % size + 10 * ((place - 5) // size),
    "a place from the end": lambda place, size: (100 - place) // size,
}


@pytest.mark.parametrize("case", KNOWN)
def test_what_fits_is_divided_in_32_bits_and_gives_the_same(case: str) -> None:
    function = function_of(KNOWN[case])
    changed = narrowed(function, 101, 6)
    assert words(function) == {dtypes.i64} and words(changed) == {dtypes.u32}
    for place in range(101):
        results = []
        for each in (function, changed):
            out = np.zeros(1, np.int64)
            run_module(Module((each,), "f"), [out, place, 6])
            results.append(int(out[0]))
        assert results[0] == results[1], place


OTHERS = {
    "more places than 32 bits count": (lambda place, size: place // size, LARGE, 6),
    "products beyond 32 bits": (lambda place, size: place * place // size, 1 << 20, 6),
    "what may be far below zero": (lambda place, size: (place - 7) // size, 100, 6),
    "a size that may be zero": (lambda place, size: place // size, 100, 0),
    "a large size": (lambda place, size: place // size, 100, LARGE),
    "as many places as a call has": (lambda place, size: place // size, as_dim(Symbol("n")), 6),
    "a known number": (lambda place, size: place // 6, 100, 6),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_divisions_stay(case: str) -> None:
    value, places, size = OTHERS[case]
    assert words(narrowed(function_of(value), places, size)) == {dtypes.i64}


def test_what_is_assigned_again_may_be_anything() -> None:
    out, place, size, k = (
        Var("out", PointerType(dtypes.i64)),
        build.size_var("place"),
        build.size_var("size"),
        IRBuilder(),
    )
    total = k.let("total", place)
    k.assign(total, total - 1000)
    k.store(out, 0, total // size)
    function = Function("f", (out, place, size), k.body, kind="host")
    assert words(narrowed(function, 100, 6)) == {dtypes.i64}


def test_the_number_of_a_turn_is_a_place() -> None:
    out, place, size, k = (
        Var("out", PointerType(dtypes.i64)),
        build.size_var("place"),
        build.size_var("size"),
        IRBuilder(),
    )
    with k.for_range("turn", 10) as turn:
        k.store(out, turn, (place + turn) // size)
    function = Function("f", (out, place, size), k.body, kind="host")
    assert words(narrowed(function, 100, 6)) == {dtypes.u32}
