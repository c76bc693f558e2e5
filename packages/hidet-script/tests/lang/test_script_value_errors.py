"""Scripts that use values, types and functions wrongly: the message says what is expected, at the place."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet.lang import (
    asm,
    attrs,
    boolean,
    deref,
    f16,
    f32,
    i32,
    meta,
    printf,
    register_tensor,
    row_major,
    script,
    static,
    tensor_pointer,
)
from hidet.lang.cuda import MmaConfig, atomic_add, blockIdx, ldmatrix, mma_sync, shfl_sync, warp_groups

# ruff: noqa: B007, F841  # scripts with the mistakes that are tested

M, N = hidet.dims.symbol("m"), hidet.dims.symbol("n")
TABLE = [1, 2, 3]
ARRAY = np.arange(3)


@script
def helper(x: f32, n: i32) -> f32:
    return x


@script
def rows(x: f32[4, 2]):
    x[0, 0] = 1.0


@script
def wait(x: f32):
    printf("%f", x)


def nothing_stored(x: f32[4]):
    x[0] = wait(1.0)


def nothing_added(x: f32[4]):
    x[0] = x[1] + wait(1.0)


def nothing_named(x: f32[4]):
    y = wait(1.0)


def nothing_chosen(x: f32[4]):
    x[0] = wait(1.0) if x[1] > 0.0 else wait(2.0)


def nothing_passed(x: f32[4]):
    atomic_add(~x[0], wait(1.0))


def truth_values_divided(x: boolean):
    y = x / x


def list_at_run_time(n: i32, x: f32[4]):
    x[0] = TABLE[n]


def array_at_run_time(n: i32, x: f32[4]):
    x[0] = ARRAY[n]


def misspelt_kind(x: f32[4]):
    attrs.func_kind = "cuda_kernal"


def too_many_threads(x: f32[4]):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 64, 32


def default_value(x: f32[4], n: i32 = 3):
    x[0] = n


def exceptions(x: f32[4]):
    try:
        x[0] = 1.0
    except ValueError:
        x[0] = 2.0


def recursion(x: f32[4]):
    def again(a):
        return again(a)

    x[0] = again(x[1])


def return_in_a_branch(x: f32[4]):
    def magnitude(a):
        if a > 0.0:
            return a
        return -a

    x[0] = magnitude(x[1])


def default_inside(x: f32[4]):
    def add(a, b=2):
        return a + b

    x[0] = add(x[1])


def whole_tensors(x: f32[4], y: f32[4]):
    x[0] = x * y


def matrices(x: f32[4, 4], y: f32[4, 4]):
    z = x @ y


def tensor_as_condition(x: f32[4], n: i32):
    if x and n:
        x[0] = 1.0


def text_as_value(x: f32[4]):
    x[0] = "a"


def too_many_arguments(x: f32[4]):
    helper(x[0], 1, 2)


def unknown_keyword(x: f32[4]):
    x[0] = helper(x=x[0], m=3)


def missing_keyword(x: f32[4]):
    x[0] = helper(n=3)


def part_with_gaps(x: f32[4, 8]):
    rows(x[:, 2:4])


def other_shape(x: f32[2, 4]):
    rows(x)


def fragment_of_another_type(a: f16[8], b: f16[4], c: f32[4]):
    mma_sync(MmaConfig.m16n8k16_f16_f16(), a, b, c)


def fragment_in_global_memory(a: f16[8], b: f16[4], c: f16[4]):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 32
    mma_sync(MmaConfig.m16n8k16_f16_f16(), a, b, c)


def step_of_a_part(x: f32[8]):
    y = x[::2]


def narrow_registers(x: f16[64]):
    r = register_tensor(f16, [2])
    ldmatrix(regs=[r[0]], smem_addr=~x[0])


def python_prints(x: f32[8]):
    print(x[0])


def method_of_torch(x: f32[8]):
    for i in x.size():
        x[i] = 0


def runtime_length(n: i32):
    for i in static(range(n)):
        pass


def unknown_parameter_of_an_intrinsic(x: f32[8]):
    shfl_sync(0xFFFFFFFF, x[0], lane_id=3)


def narrows(x: f32[8], n: i32):
    n = x[0]


def import_inside(x: f32[8]):
    import math

    x[0] = math.pi


def pointer_times(p: ~f32):
    q = p * 2


def layout_of_another_shape():
    t = register_tensor(f32, [4, 4], layout=row_major(4, 5))


def number_followed(x: f32):
    y = deref(x)


def unknown_type(x: f33[4]):  # noqa: F821
    pass


def fractional_extent(x: f32[4.5]):
    pass


def double_of_an_unknown_size(out: f32[M], x: f32[M, 2 * N]):
    out[0] = x[0, N]


def distant_groups(x: f32[4]):
    with warp_groups([0, 2]) as thread:
        x[thread] = 0.0


def pointer_becomes_a_number(x: f32[4]):
    t = tensor_pointer(f32, [4])
    t = x[0]


def address_of_a_counter(x: f32[4]):
    for i in range(4):
        p = ~i


def address_of_a_sum(x: f32[4]):
    p = ~(x[0] + 1.0)


def too_long_to_write_out(x: f32[4]):
    for i in meta.range(100000):
        x[0] += 1.0


def class_inside(x: f32[4]):
    class Inner:
        pass


def bits_of_a_float(x: f32):
    y = x & 1


def tensor_result(x: f32[4]) -> f32[4]:
    return x


def large_number(x: i32[4]):
    x[0] = 5000000000


def assembly_writes_a_number(x: f32[4]):
    asm("mov.f32 %0, 0f00000000;", outputs=[x[0] + 1.0])


def two_contexts():
    with warp_groups([0]) as a, warp_groups([1]) as b:
        pass


def grid_is_set_twice():
    attrs.cuda.grid_dim = 1
    attrs.cuda.grid_dim = blockIdx.x


@pytest.mark.parametrize(
    ("function", "problem", "line", "column", "hint"),
    [
        (nothing_stored, "wait gives no value", 1, 5, None),
        (nothing_added, "wait gives no value", 1, 12, None),
        (nothing_named, "wait gives no value", 1, 5, None),
        (nothing_chosen, "wait gives no value", 1, 12, None),
        (nothing_passed, "wait gives no value", 1, 5, None),
        (truth_values_divided, "/ divides numbers, got values of type bool", 1, 9, "cast"),
        (list_at_run_time, "an index into a Python list must be known at build time", 1, 18, "as a tensor"),
        (array_at_run_time, "an index into a Python ndarray must be known at build time", 1, 18, "as a tensor"),
        (misspelt_kind, "function kind 'cuda_kernal' is unknown", 1, 5, "cuda_kernel"),
        (too_many_threads, "asks for 2048 threads, a block has at most 1024", 2, 5, "more blocks"),
        (default_value, "a script takes plain parameters: no defaults", 0, 39, None),
        (exceptions, "try has no meaning in a script", 1, 5, "test with if"),
        (recursion, "again is called inside of 64 others", 2, 16, "no recursion"),
        (return_in_a_branch, "a function inside of a script returns at its end", 3, 13, "a if c else b"),
        (default_inside, "add takes plain parameters, without defaults", 1, 5, None),
        (whole_tensors, "an operator takes numbers, got a tensor f32[4] and a tensor f32[4]", 1, 12, "x[i]"),
        (matrices, "an operator takes numbers, got a tensor f32[4, 4]", 1, 9, "x[i]"),
        (tensor_as_condition, "a tensor f32[4] is no value of the program", 1, 8, None),
        (text_as_value, "the value stored is 'a' of type str, expected a value of type f32", 1, 5, None),
        (too_many_arguments, "helper takes 2 arguments, got 3", 1, 5, None),
        (unknown_keyword, "helper takes no further argument 'm'", 1, 12, "known: n, x"),
        (missing_keyword, "helper needs a value for x", 1, 12, None),
        (part_with_gaps, "argument x of rows is a part whose rows lie apart", 1, 5, "pass the whole tensor"),
        (other_shape, "axis 0 of argument x of rows has extent 2, expected 4", 1, 5, None),
        (fragment_of_another_type, "is an address of f32, expected f16, u32", 1, 5, None),
        (fragment_in_global_memory, "is an address in global memory, expected register or local", 3, 5, None),
        (step_of_a_part, "a slice of a tensor has no step", 1, 9, None),
        (narrow_registers, "regs of ldmatrix are 1, 2 or 4 elements of 4 bytes", 2, 5, "view(~r[0], u32[4])"),
        (python_prints, "print shows what Python knows", 1, 5, "printf"),
        (method_of_torch, "a tensor of a script has no 'size'", 1, 14, "it has shape"),
        (runtime_length, "the length of this range is known at run time only", 1, 21, "for statement"),
        (unknown_parameter_of_an_intrinsic, "gpu.shuffle takes no further argument 'lane_id'", 1, 5, "lane"),
        (narrows, "the value of n has type f32, expected i32", 1, 5, "cast(..., i32)"),
        (import_inside, "import math has no meaning in a script", 1, 5, "import before the function"),
        (pointer_times, "a ~f32 is memory, not a number", 1, 9, "x[i] reads an element"),
        (layout_of_another_shape, "shape [4, 4] cannot have layout row_major(4, 5)", 1, 9, None),
        (number_followed, "expected a tensor or pointer, got a value of type f32", 1, 9, None),
        (unknown_type, "name 'f33' is not defined", 0, 21, "did you mean 'f32'"),
        (fractional_extent, "f32[...] takes extents, got 4.5", 0, 26, "hidet.symbol_var('n')"),
        (double_of_an_unknown_size, "parameter x has extent 2*n, but no call tells n", 0, 47, "extent n"),
        (distant_groups, "warp_groups takes numbers of neighbouring groups, got [0, 2]", 1, 10, None),
        (pointer_becomes_a_number, "the value of t has type f32, expected a pointer to f32", 2, 5, "cast(..., ~f32)"),
        (address_of_a_counter, "i is no variable: it has no address", 2, 13, None),
        (address_of_a_sum, "~ of a value of type f32, which lies nowhere", 1, 9, "give a variable the value"),
        (too_long_to_write_out, "a loop over 100000 items known at build time is too long", 1, 5, "range(...)"),
        (class_inside, "a class has no meaning in a script", 1, 5, "define it before"),
        (bits_of_a_float, "& takes integers, got values of type f32", 1, 9, None),
        (tensor_result, "a script returns numbers, not tensors", 0, 33, "pass the tensor to write"),
        (large_number, "the value stored is 5000000000, which does not fit into i32", 1, 5, None),
        (assembly_writes_a_number, "asm writes to variables and elements, not to a value of type f32", 1, 5, None),
        (two_contexts, "a script enters one context at a time", 1, 5, "one with inside of the other"),
        (grid_is_set_twice, "attribute cuda.grid_dim is set twice", 2, 5, None),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_message_says_what_is_expected(refused, function, problem, line, column, hint):
    refused(function, problem, line, column, hint)
