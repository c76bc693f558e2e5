"""Division by what a launch tells, as multiplication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.passes.invariant_division import invariant_division
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Binary, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.interpret import run_module
from hidet.ir.stmt import Launch
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module
from hidet.ir.visit import walk

U32, U64 = dtypes.u32, dtypes.u64
LARGEST = (1 << 32) - 1
DIVISORS = [*range(1, 70), 127, 128, 129, 641, 1000, 65535, 65536, 65537, 6700417, 1 << 30, (1 << 31) - 1, 1 << 31]
DIVISORS += [(1 << 31) + 1, LARGEST - 1, LARGEST]


def module_of(word: dtypes.DType, divisor_of: str = "parameter") -> Module:
    """Quotients and remainders of as many numbers as there are threads, by a number plus one."""
    given, out = Var("given", PointerType(word)), Var("out", PointerType(word))
    less, k = build.size_var("less"), IRBuilder()
    thread = k.let("thread", build.cast(intrinsic_call("gpu.thread_idx.x"), dtypes.i64))
    number = k.let("number", build.load(given, thread))
    divisor: Expr = k.let("divisor", build.cast(less + 1, word))
    if divisor_of == "memory":
        divisor = k.let("read", build.load(given, 0))
    k.store(out, thread * 2, number // divisor)
    k.store(out, thread * 2 + 1, number % divisor)
    kernel = Function("divide", (given, out, less), k.body, kind="kernel")
    outer = (Var("given", given.type), Var("out", out.type), build.size_var("less"), build.size_var("threads"))
    launch = Launch("divide", (build.index(1),), outer[:3], block=(outer[3],))
    return Module((kernel, Function("entry", outer, launch, kind="host")), "entry")


def divisions(module: Module) -> int:
    body = next(function.body for function in module.functions if function.kind == "kernel")
    return sum(isinstance(node, Binary) and node.op in ("floordiv", "mod") for node in walk(body))


@pytest.mark.parametrize("divisor", DIVISORS)
def test_quotients_of_32_bits_are_right(divisor: int) -> None:
    module = invariant_division(module_of(U32))
    verify_module(module)
    assert divisions(module) == 0
    near = [
        n + d for n in (0, divisor, 2 * divisor, LARGEST // divisor * divisor, 1 << 31, LARGEST) for d in (-1, 0, 1)
    ]
    given = np.array([n for n in near if 0 <= n <= LARGEST] + [12345, 99999999], np.uint32)
    out = np.zeros(2 * len(given), np.uint32)
    run_module(module, [given, out, divisor - 1, len(given)])
    np.testing.assert_array_equal(out[::2], given // np.uint32(divisor))
    np.testing.assert_array_equal(out[1::2], given % np.uint32(divisor))


def test_random_quotients_of_32_bits_are_right() -> None:
    module, rng = invariant_division(module_of(U32)), np.random.default_rng(0)
    for bits in range(1, 33):
        divisor = int(rng.integers(1, 1 << bits))
        given = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
        out = np.zeros(128, np.uint32)
        run_module(module, [given, out, divisor - 1, 64])
        np.testing.assert_array_equal(out[::2], given // np.uint32(divisor))


def test_a_launch_with_a_divisor_of_0_is_made_as_one_that_divides_nothing() -> None:
    given, out = np.array([7], np.uint32), np.zeros(2, np.uint32)
    run_module(invariant_division(module_of(U32)), [given, out, -1, 1])
    assert out[0] == 7


@pytest.mark.parametrize("module", [module_of(U64), module_of(U32, "memory")], ids=["64 bits", "read from memory"])
def test_other_divisions_stay(module: Module) -> None:
    assert invariant_division(module) is module


def kernel_of(value: Callable[[Expr, Expr], list[Expr]]) -> Module:
    """Stores what is made of a number that is read, and of a parameter, for each thread of two blocks."""
    given, out, less = Var("given", PointerType(U32)), Var("out", PointerType(U32)), build.size_var("less")
    k = IRBuilder()
    block, thread = (build.cast(intrinsic_call(f"gpu.{what}_idx.x"), dtypes.i64) for what in ("block", "thread"))
    place = k.let("place", block * 8 + thread)
    values = value(k.let("number", build.load(given, place)), less)
    for n, each in enumerate(values):
        k.store(out, place * len(values) + n, each)
    kernel = Function("divide", (given, out, less), k.body, kind="kernel")
    outer = (Var("given", given.type), Var("out", out.type), build.size_var("less"))
    launch = Launch("divide", (build.index(2),), outer, block=(build.index(8),))
    return Module((kernel, Function("entry", outer, launch, kind="host")), "entry")


def of_sixteen(module: Module, less: int, results: int = 1) -> np.ndarray[Any, Any]:
    out = np.zeros(16 * results, np.uint32)
    run_module(module, [np.arange(1000, 1016, dtype=np.uint32), out, less])
    return out


DIVISORS_OF_LAUNCHES: dict[str, Callable[[Expr], Expr]] = {
    "a shift": lambda less: build.cast(build.binary("shr", less + 127, 7), U32),
    "low bits": lambda less: build.cast(build.binary("and", less, 7), U32),
    "a quotient": lambda less: build.cast((less + 2) // 3, U32) * 5,
    "a remainder": lambda less: build.cast(less % 7 + 1, U32),
    "blocks of the grid": lambda less: build.cast(intrinsic_call("gpu.grid_dim.x"), U32) + 1,
    "an axis without extent": lambda less: build.cast(intrinsic_call("gpu.grid_dim.y"), U32) + 2,
}


@pytest.mark.parametrize("case", DIVISORS_OF_LAUNCHES)
def test_divisors_may_be_any_arithmetic_with_what_a_launch_tells(case: str) -> None:
    of = DIVISORS_OF_LAUNCHES[case]
    module = kernel_of(lambda number, less: [number // of(less)])
    changed = invariant_division(module)
    verify_module(changed)
    (kernel,) = (function for function in changed.functions if function.kind == "kernel")
    assert not any(isinstance(n, Binary) and n.op == "floordiv" and n.type == U32 for n in walk(kernel.body))
    np.testing.assert_array_equal(of_sixteen(changed, 300), of_sixteen(module, 300))


def test_one_divisor_that_is_found_at_two_places_has_one_factor() -> None:
    def twice(number: Expr, less: Expr) -> list[Expr]:
        first, second, other = (build.cast(less, U32) + n for n in (1, 1, 2))
        return [number // first, number % second, number // other]

    module = kernel_of(twice)
    changed = invariant_division(module)
    (before,), (after,) = ([f for f in m.functions if f.kind == "kernel"] for m in (module, changed))
    assert len(after.params) - len(before.params) == 2 * 3
    np.testing.assert_array_equal(of_sixteen(changed, 6, 3), of_sixteen(module, 6, 3))
