"""Function bodies written statement by statement."""

from __future__ import annotations

import pytest

from hidet import dtypes
from hidet.errors import VerifyError
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Var
from hidet.ir.func import Function
from hidet.ir.printer import print_function, print_stmt
from hidet.ir.stmt import If
from hidet.ir.types import PointerType


def test_statements_stand_in_the_order_in_which_they_were_written() -> None:
    x, n, k = Var("x", PointerType(dtypes.f32)), build.size_var("n"), IRBuilder()
    sums = k.array("sums", dtypes.f32, 2)
    k.store_each([sums, sums], 0, [build.const(0, dtypes.f32)] * 2)
    k.store(k.array("table", dtypes.f32, 2, 3), (1, n), build.const(0, dtypes.f32))
    with k.for_range("row", n, start=1, step=2) as row:
        total, _ = k.let_each("value", [build.load(x, row), build.load(x, row + 1)])
        with k.if_(row > 4):
            k.assign_each([total], [total * 2])
        with k.else_():
            k.break_()
        k.store(x, row, total)
    with k.while_(n > 3):
        k.assign(n, n - 1)
    k.return_()
    assert print_function(Function("f", (x, n), k.body, "device")) == (
        "@device\n"
        "def f(x: ~f32, n: i64):\n"
        "    sums: f32[2] @ register\n"
        "    sums[0] = 0.0\n"
        "    sums[0] = 0.0\n"
        "    table: f32[2, 3] @ register\n"
        "    table[1, n] = 0.0\n"
        "    for row in range(n, start=1, step=2):\n"
        "        value0: f32 = x[row]\n"
        "        value1: f32 = x[row + 1]\n"
        "        if row > 4:\n"
        "            value0 = value0 * 2.0\n"
        "        else:\n"
        "            break\n"
        "        x[row] = value0\n"
        "    while n > 3:\n"
        "        n = n + -1\n"
        "    return\n"
    )


def test_a_mask_says_which_lanes_are_stored() -> None:
    x, k = Var("x", PointerType(dtypes.f32)), IRBuilder()
    value = k.let("value", build.load(x, 0, lanes=4))
    mask = k.let("mask", value > 0.0)
    k.store(x, 4, value, mask)
    assert print_stmt(k.body).splitlines()[-1] == "store(x, [4], value, mask=mask)"


def test_else_stands_behind_an_if() -> None:
    k = IRBuilder()
    k.let("n", build.index(1))
    with pytest.raises(VerifyError, match="right behind"), k.else_():
        pass


def test_an_open_block_has_no_body() -> None:
    k = IRBuilder()
    with pytest.raises(VerifyError, match="still open"), k.if_(build.logical_and()):
        _ = k.body


def test_a_block_that_raises_is_left_out() -> None:
    k = IRBuilder()
    with pytest.raises(ZeroDivisionError), k.if_(build.logical_and()):
        raise ZeroDivisionError
    k.let("n", build.index(1))
    assert not isinstance(k.body, If)
