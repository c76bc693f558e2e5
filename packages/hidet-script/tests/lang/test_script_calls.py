"""Calls between scripts: extents of arguments fit those of parameters, as far as is known before the program runs."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.errors import LaunchError
from hidet.ir import stmt as s
from hidet.ir.interpret import run_module
from hidet.ir.visit import has_statement
from hidet.lang import attrs, f32, i32, register_tensor, script, script_module
from hidet.lang.cuda import threadIdx
from hidet.lang.module import module_of

# ruff: noqa: F821  # extents that are parameters

m, n = hidet.dims.symbol("m"), hidet.dims.symbol("n")


@script
def add(x: f32[n], y: f32[n]):
    for i in range(n):
        y[i] = x[i] + 1.0


@script
def eight(x: f32[8]):
    for i in range(8):
        x[i] = 1.0


@script
def pairs(x: f32[n], y: f32[2 * n]):
    y[n] = x[0]


@script
def first(k: i32, x: f32[k]):
    x[k - 1] = 1.0


def two_constants(x: f32[4], y: f32[3]):
    add(x, y)


def a_constant_that_is_too_small(x: f32[4]):
    eight(x)


def a_symbol_and_one_more(x: f32[n], y: f32[n + 1]):
    add(x, y)


def a_part_of_what_is_expected(x: f32[n]):
    add(x, x[1:])


def the_double_of_a_constant(x: f32[4], y: f32[9]):
    pairs(x, y)


def a_number_that_is_passed(x: f32[4]):
    first(5, x)


def registers_of_a_kernel(x: f32[4]):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 1
    registers = register_tensor(f32, [2])
    add(registers, x)


@pytest.mark.parametrize(
    ("function", "problem", "line", "column"),
    [
        (two_constants, "axis 0 of argument y of add has extent 3, expected 4", 1, 5),
        (a_constant_that_is_too_small, "axis 0 of argument x of eight has extent 4, expected 8", 1, 5),
        (a_symbol_and_one_more, "axis 0 of argument y of add has extent n + 1, expected n", 1, 5),
        (a_part_of_what_is_expected, "axis 0 of argument y of add has extent n - 1, expected n", 1, 5),
        (the_double_of_a_constant, "axis 0 of argument y of pairs has extent 9, expected 8", 1, 5),
        (a_number_that_is_passed, "axis 0 of argument x of first has extent 4, expected 5", 1, 5),
        (registers_of_a_kernel, "axis 0 of argument y of add has extent 4, expected 2", 4, 5),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_extents_that_differ_are_refused_where_the_call_stands(refused, function, problem, line, column):
    refused(function, problem, line, column, "is declared as")


def two_of_a_symbol(x: f32[n], y: f32[n]):
    attrs.func_kind = "public"
    add(x, y)


def parts_of_equal_length(x: f32[n]):
    attrs.func_kind = "public"
    add(x[: n // 2], x[n - n // 2 :])


def twice_a_symbol(x: f32[n], y: f32[n + n]):
    attrs.func_kind = "public"
    pairs(x, y)


def a_number_and_its_extent(k: i32, x: f32[k]):
    attrs.func_kind = "public"
    first(k, x)


def in_a_kernel(x: f32[n], y: f32[m]):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 1
    add(x, y)
    y[threadIdx.x] = 1.0


def in_a_device_function(x: f32[n], y: f32[m]):
    attrs.func_kind = "device"
    add(x, y)


@pytest.mark.parametrize(
    "function",
    [
        two_of_a_symbol,
        parts_of_equal_length,
        twice_a_symbol,
        a_number_and_its_extent,
        in_a_kernel,
        in_a_device_function,
    ],
)
def test_calls_are_not_checked_where_extents_are_equal_and_on_a_device(function):
    assert not has_statement(script(function).function.body, s.Assert)


with script_module() as module:

    @script
    def launch(x: f32[n], y: f32[m]):
        attrs.func_kind = "public"
        add(x, y)


def test_the_host_checks_extents_that_only_a_call_knows():
    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    run_module(module.ir_module(), [x, y, 3, 3])
    assert (y == 1.0).all()
    with pytest.raises(LaunchError) as caught:
        run_module(module.ir_module(), [x, y[:2], 3, 2])
    assert "axis 0 of argument y of add does not have n elements: y is declared as f32[n]" in str(caught.value)


def test_a_function_checks_calls_only_where_the_host_calls_it():
    @script
    def through(x: f32[n], y: f32[m]):
        add(x, y)

    @script
    def kernel(x: f32[n], y: f32[m]):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 1
        through(x, y)

    def checks(module) -> bool:
        (function,) = [function for function in module.functions if function.name == "through"]
        return has_statement(function.body, s.Assert)

    assert checks(module_of([through]))
    assert not checks(module_of([kernel]))
