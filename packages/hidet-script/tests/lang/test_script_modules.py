"""Modules of several functions: kernels by their names, variables that functions share, and what they print."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.errors import ScriptError
from hidet.ir.interpret import run_module
from hidet.lang import attrs, f32, grid, i8, i32, printf
from hidet.lang.cuda import threadIdx


def test_each_of_several_kernels_is_launched_by_its_name() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def clear(x: f32[4]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            x[threadIdx.x] = 0.0

        @hidet.script
        def grow(x: f32[4], by: f32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            x[threadIdx.x] += by

    made = module.ir_module()
    hosts = [function.name for function in made.functions if function.kind == "host"]
    assert hosts == ["clear", "grow"]
    x = np.ones(4, np.float32)
    run_module(hidet.ir.func.Module(made.functions, "grow"), [x, 2.0])
    assert x.tolist() == [3.0] * 4


def test_functions_of_the_host_share_variables_that_last() -> None:
    with hidet.script_module() as module:
        sums = module.define_global_var("sums", f32[2])
        calls = module.define_global_var("calls", i32)

        @hidet.script
        def note(x: f32) -> f32:
            attrs.func_kind = "cpu_internal"
            sums[0] += x
            return sums[0]

        @hidet.script
        def add(x: f32) -> f32:
            attrs.func_kind = "public"
            calls[0] += 1
            return note(x)

        @hidet.script
        def count(x: i32[1]):
            attrs.func_kind = "public"
            x[0] = calls[0]

        @hidet.script
        def twice(x: f32) -> f32:
            attrs.func_kind = "public"
            return 2.0 * x

    built = module.build()
    assert [built["add"](1.5), built["add"](2.0)] == [1.5, 3.5]
    seen = hidet.zeros([1], "int32")
    built["count"](seen)
    assert seen.item() == 2 and built["twice"](2.0) == 4.0
    assert built.variables["sums"].tolist() == [3.5, 0.0]
    assert module.build()["add"](1.0) == 1.0  # another module, with memory of its own


def test_kernels_share_variables_with_those_that_launch_them() -> None:
    n = hidet.symbol_var("n")
    with hidet.script_module() as module:
        held = module.define_global_var("held", f32[4])

        @hidet.script
        def keep(x: f32[n]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            held[threadIdx.x] = x[threadIdx.x]

        @hidet.script
        def give(y: f32[n]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            y[threadIdx.x] = 2.0 * held[threadIdx.x]

        @hidet.script
        def launch(x: f32[n], y: f32[n]):
            attrs.func_kind = "public"
            keep(x)
            give(y)

    x, y, memory = np.arange(4, dtype=np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    run_module(module.ir_module(), [x, y, memory, 4])
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0] and memory.tolist() == x.tolist()


def test_a_variable_has_a_size_and_a_name_of_its_own() -> None:
    module = hidet.script_module()
    module.define_global_var("held", f32[4])
    with pytest.raises(ScriptError, match="two variables called held"):
        module.define_global_var("held", f32)
    with pytest.raises(ScriptError, match="needs extents known now"):
        module.define_global_var("more", f32[hidet.symbol_var("n")])


def test_printf_shows_what_it_shows_in_c(capfd) -> None:
    @hidet.script
    def show(n: i32, b: i8):
        attrs.func_kind = "cpu_kernel"
        printf("%-5s|%4.2s|%s\n", "ab", "xyz", "5%")
        printf("%x %u %d %X %%\n", n, n, n, b)
        for i in grid(1, attrs="p"):
            printf("%d: %5.1f\n", i, 2.25)

    show(-1, -2)
    assert capfd.readouterr().out == "ab   |  xy|5%\nffffffff 4294967295 -1 FFFFFFFE %\n0:   2.2\n"
