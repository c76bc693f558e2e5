"""What generated CUDA C++ looks like, and that it does what the thread IR says where C++ would differ."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from hidet import dtypes
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.intrinsics import INTRINSICS
from hidet.cuda.nvrtc import compile_cubin
from hidet.dtypes import DType
from hidet.errors import CompileError
from hidet.gpu.codegen.source import KernelSource
from hidet.ir import build
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.parser import parse_module
from hidet.ir.stmt import Declare, Store
from hidet.ir.types import BufferType, PointerType
from hidet.loc import Loc


def source(text: str, arch: int = 80) -> str:
    module: Module = parse_module(textwrap.dedent(text), INTRINSICS)
    return emit_module(module, arch).text


def body(text: str) -> str:
    """The kernel alone, without the prelude."""
    return text[text.index('extern "C"') :].strip()


SQUARE = """
module(entry="main")

@kernel
def square(x: ~f16, y: ~f16, n: i64):
    i = grid()
    tile: f32[8, 33] @ shared
    place: i64 = i * 256 + cast(call("gpu.thread_idx.x", type=i32), i64)
    if place < n:
        acc: f32 = 0.0
        for j in unroll(4):
            tile[j, place % 32] = cast(x[place], f32) * 0.5
        call("gpu.syncthreads", type=None)
        for k in range(n):
            acc = acc + tile[k % 8, 0]
        y[place] = cast(acc, f16) if acc < 0.0 else x[place] * x[place]

@host
def main(x: ~f16, y: ~f16, n: i64):
    launch("square", [n // 256], [x, y, n], block=[256])
"""

SQUARE_IN_CUDA = """
extern "C" __global__ void __launch_bounds__(256) square(f16* x, f16* y, long long n) {
  const long long i = blockIdx.x;
  __shared__ __align__(128) float tile[264];
  long long place = i * 256 + (long long)(int)threadIdx.x;
  if (place < n) {
    float acc = 0.0f;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      tile[j * 33 + place % 32] = to_f32(x[place]) * 0.5f;
    }
    __syncthreads();
    for (long long k = 0; k < n; ++k) {
      acc = acc + tile[k % 8 * 33];
    }
    y[place] = acc < 0.0f ? to_f16(acc) : to_f16(to_f32(x[place]) * to_f32(x[place]));
  }
}
"""


def test_a_kernel_reads_like_one_written_by_hand() -> None:
    assert body(source(SQUARE)) == SQUARE_IN_CUDA.strip()


def test_it_compiles_without_headers() -> None:
    cubin = compile_cubin(emit_module(parse_module(SQUARE, INTRINSICS), 80), "sm_80")
    assert list(cubin.usage) == ["square"]
    assert cubin.usage["square"].spill_bytes == 0


def one(statement: str, params: str = "x: ~f32, n: i64") -> str:
    text = f"""
module(entry="main")

@kernel
def k({params}):
    i = grid()
{textwrap.indent(textwrap.dedent(statement).strip(), "    ")}

@host
def main():
    pass
"""
    return body(source(text))


def test_division_of_numbers_that_may_be_negative_rounds_down() -> None:
    assert "floor_div<long long>(n, i)" in one("x[n // i] = 0.0")
    assert "x[n >> 3]" in one("x[n // 8] = 0.0")
    assert "x[i / 8]" in one("x[i // 8] = 0.0")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_numbers_without_sign_may_be_below_zero_in_the_signed_type_of_as_many_bits(bits: int) -> None:
    assert "floor_div<" in one(f"x[i] = cast(cast(x[i], i{bits}) // i{bits}(3), u{bits})", f"x: ~u{bits}")


@pytest.mark.parametrize(("stride", "counter"), [(400_000_000, "long long"), (30_000, "int"), (40_000, "long long")])
def test_counters_of_unrolled_loops_are_wide_where_their_products_may_be(stride: int, counter: str) -> None:
    assert f"for ({counter} r = 0" in one(f"for r in unroll(2):\n    x[r * {stride} + i] = 0.0")


@pytest.mark.parametrize("statement", ["x[i] / x[0]", "cast(cast(x[i], f32) / cast(x[0], f32), f16)"])
def test_a_quotient_that_is_rounded_to_16_bits_takes_no_branch(statement: str) -> None:
    assert "to_f16(quotient(to_f32(x[i]), to_f32(x[0])))" in one(f"x[i] = {statement}", "x: ~f16")


def test_what_is_rounded_to_bf16_between_two_steps_stays_in_a_register_of_32_bits() -> None:
    text = one("x[i] = x[i] * x[0] + x[1]", "x: ~bf16")
    assert "to_bf16(rounded_to_bf16(to_f32(x[i]) * to_f32(x[0])) + to_f32(x[1]))" in text


def test_a_quotient_of_singles_is_rounded_once() -> None:
    assert "quotient" not in one("x[i] = x[i] / x[0]")


def test_a_value_used_twice_is_computed_once() -> None:
    text = one("x[i] = exp(x[i]) * exp(x[i])")
    assert text.count("expf") == 2
    shared = emit_shared_square()
    assert shared.count("expf") == 1


def emit_shared_square() -> str:
    module = parse_module(ONE_LOAD, INTRINSICS)
    function = module.functions[0]
    store = function.body
    assert isinstance(store, Store)
    value = build.unary("exp", store.value)
    squared = replace(function, body=Store(store.buffer, store.indices, value * value))
    return body(emit_module(replace(module, functions=(squared, *module.functions[1:])), 80).text)


ONE_LOAD = """
module(entry="main")

@kernel
def k(x: ~f32):
    i = grid()
    x[i] = x[i]

@host
def main():
    pass
"""


def test_arithmetic_of_data_wraps_and_that_of_indices_does_not() -> None:
    assert "(int)((unsigned)x[i] + (unsigned)x[i])" in one("x[i] = x[i] + x[i]", "x: ~i32")
    assert "x[i + i]" in one("x[i + i] = i32(0)", "x: ~i32")


def test_an_error_of_the_compiler_names_the_place_in_the_script() -> None:
    good = emit_module(parse_module(ONE_LOAD, INTRINSICS), 80)
    line = next(n for n, text in enumerate(good.text.split("\n"), 1) if "x[i] = " in text)
    wrong = KernelSource(good.text.replace("x[i] = ", "y[i] = "), good.kernels, {line: Loc("model.py", 7, 3)})
    with pytest.raises(CompileError, match="undefined") as caught:
        compile_cubin(wrong, "sm_80")
    assert caught.value.loc == Loc("model.py", 7, 3)


def test_a_kernel_prints() -> None:
    text = one('printf("%d: %.2f\\n", i, x[i])')
    assert 'printf("%lld: %.2f\\012", i, (double)x[i]);' in text


@pytest.mark.parametrize(
    ("dtype", "lanes", "is_one_instruction"),
    [
        (dtypes.f16, 8, True),
        (dtypes.bf16, 4, True),
        (dtypes.f32, 4, True),
        (dtypes.i32, 2, True),
        (dtypes.f16, 2, False),
        (dtypes.f32, 8, False),
        (dtypes.u8, 16, False),
        (dtypes.f64, 2, False),
    ],
    ids=str,
)
def test_eight_and_sixteen_bytes_are_stored_by_one_instruction(
    dtype: DType, lanes: int, is_one_instruction: bool
) -> None:
    x, y = (Var(name, PointerType(dtype)) for name in "xy")
    block, tile = build.size_var("block"), Var("tile", BufferType(dtype, (build.index(256),), None, "shared"))
    at = (block * lanes,)
    stmts = [
        Declare(tile),
        Store(tile, at, build.load(x, at[0], lanes=lanes)),
        Store(y, at, build.load(tile, at[0], lanes=lanes)),
    ]
    kernel = Function("copy", (x, y), build.seq(stmts), "kernel", (block,), None, (("block", (1, 1, 1)),))
    made = emit_module(Module((kernel,), "copy"), 80)
    assert ("store_shared(tile + " in made.text, "store_global(y + " in made.text) == (is_one_instruction,) * 2
    assert compile_cubin(made, "sm_80").data


@pytest.mark.parametrize(("count", "reads"), [(8, "bf16_at(held, i)"), (7, "to_f32(held[i])")])
def test_an_element_of_an_array_of_whole_words_is_taken_out_of_its_word(count: int, reads: str) -> None:
    text = one(f"held: bf16[{count}] @ local\nheld[i] = x[i]\nx[i] = held[i] * x[0]", "x: ~bf16")
    assert f"to_bf16({reads} * to_f32(x[0]))" in text
