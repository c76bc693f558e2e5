"""The LLVM text of small functions, and the machine code that comes of it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from hidet import dtypes
from hidet.cpu.arch import arch_from_text
from hidet.cpu.codegen import emit_module
from hidet.cpu.loader import load_objects
from hidet.cpu.toolchain import compile_assembly, compile_object
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir.expr import Bitcast, Broadcast, Load, Select, Var
from hidet.ir.func import COMPACT, Function, Module
from hidet.ir.stmt import Assert, Assign, Break, Declare, For, If, LoopKind, Print, Return, Store
from hidet.ir.types import PointerType, VectorType

F32 = dtypes.f32
AVX2 = arch_from_text("haswell")


def text_of(function, cpu=AVX2):
    return emit_module(Module((function,), function.name), cpu)


def body_of(value_of, *types, cpu=AVX2):
    """The instructions of a device function of one expression."""
    params = tuple(Var(name, type_) for name, type_ in zip("xyz", types, strict=False))
    value = value_of(*params)
    function = Function("f", params, Return(value), "device", (), value.type)
    lines = text_of(function, cpu).split("start:\n")[1].split("\ndead")[0].splitlines()
    return [line.strip() for line in lines]


def test_sums_of_products_may_be_contracted() -> None:
    assert body_of(lambda x, y: x * y + 1.0, F32, F32) == [
        "%t.1 = fmul contract float %arg.x.0, %arg.y.1",
        "%t.2 = fadd contract float %t.1, 0x3FF0000000000000",
        "ret float %t.2",
    ]


def test_a_shared_value_is_computed_once() -> None:
    def value(x):
        square = x * x
        return square + square

    assert sum("fmul" in line for line in body_of(value, F32)) == 1


def test_the_body_of_a_compact_kernel_is_compiled_for_size() -> None:
    def kernel(*attributes: tuple[str, object]) -> str:
        return text_of(Function("f", (), build.seq([]), "kernel", (build.size_var("i"),), attributes=attributes))

    assert "noinline nounwind optsize {" in kernel(COMPACT)
    assert "optsize" not in kernel()


@pytest.mark.parametrize(("kind", "vectors"), [("serial", False), ("vectorize", True)])
def test_a_compact_kernel_has_simd_only_where_it_is_asked_for(kind: LoopKind, vectors: bool) -> None:
    x, count, i = Var("x", PointerType(F32)), Var("count", build.INDEX), build.size_var("i")
    loop = For(i, build.index(0), count, Store(x, (i * count,), build.cast(i, F32)), kind=kind)
    function = Function("f", (x, count), loop, "kernel", (build.size_var("item"),), attributes=(COMPACT,))
    cpu = arch_from_text("skylake-avx512")
    assert ("%zmm" in compile_assembly(text_of(function, cpu), cpu, 2)) is vectors


def test_a_shuffle_is_one_instruction() -> None:
    vector = VectorType(F32, 2)
    assert body_of(lambda x, y: build.shuffle(x, y, [3, 0]), vector, vector) == [
        "%t.1 = shufflevector <2 x float> %arg.x.0, <2 x float> %arg.y.1, <2 x i32> <i32 3, i32 0>",
        "ret <2 x float> %t.1",
    ]


def test_literals_of_vectors_are_written_in_place() -> None:
    vector = VectorType(F32, 8)
    assert body_of(lambda x: x + 2.0, vector) == [
        "%t.1 = fadd contract <8 x float> %arg.x.0, splat (float 0x4000000000000000)",
        "ret <8 x float> %t.1",
    ]


def test_a_maximum_with_a_literal_is_one_comparison_on_x86_and_one_instruction_of_arm() -> None:
    relu = lambda x: build.maximum(x, 0.0)  # noqa: E731
    assert body_of(relu, F32)[:2] == [
        "%t.1 = fcmp ogt float 0x0000000000000000, %arg.x.0",
        "%t.2 = select i1 %t.1, float 0x0000000000000000, float %arg.x.0",
    ]
    assert "llvm.maximum" in body_of(relu, F32, cpu=arch_from_text("neoverse-n1"))[0]


@pytest.mark.parametrize(("cpu", "instruction"), [("haswell", "vmaxps"), ("znver5", "vmaxps"), ("apple-m1", "fmax")])
def test_relu_is_one_vector_instruction(cpu, instruction, module_of, elementwise) -> None:
    module = module_of({"relu": elementwise(lambda x: build.maximum(x, 0.0), (F32,), F32)})
    arch = arch_from_text(cpu)
    assembly = compile_assembly(emit_module(module, arch), arch, 3)
    assert instruction in assembly
    assert "unord" not in assembly and "blend" not in assembly and "bsl" not in assembly


def test_index_arithmetic_does_not_overflow_but_data_wraps() -> None:
    pointer, i = Var("p", PointerType(dtypes.i64)), build.size_var("i")
    item = build.size_var("item")
    element = build.load(pointer, i * 3)
    kernel = Function("k", (pointer, i), Store(pointer, (i,), element * 5), "kernel", (item,))
    text = text_of(kernel)
    assert "mul nsw i64 %arg.i.1, 3" in text
    assert "mul i64 %v" in text


def test_locals_that_never_change_take_no_memory() -> None:
    x, t, u = Var("x", F32), Var("t", F32), Var("u", F32)
    body = build.seq([Declare(t, x * x), Declare(u, t), Assign(u, u + t), Return(u)])
    text = text_of(Function("f", (x,), body, "device", (), F32))
    assert text.count("alloca") == 1


def test_division_by_a_literal_has_no_guard() -> None:
    assert body_of(lambda x: build.binary("truncdiv", x, 3), dtypes.i32) == [
        "%t.1 = sdiv i32 %arg.x.0, 3",
        "ret i32 %t.1",
    ]


def test_addresses_travel_as_integers_and_back() -> None:
    assert body_of(lambda x: Bitcast(x, PointerType(F32)), dtypes.i64)[0] == "%t.1 = inttoptr i64 %arg.x.0 to ptr"
    assert body_of(lambda x: Bitcast(x, dtypes.i64), PointerType(F32))[0] == "%t.1 = ptrtoint ptr %arg.x.0 to i64"


def test_deep_expressions_need_no_recursion() -> None:
    def chain(x):
        for _ in range(5000):
            x = x + 1.0
        return x

    assert len(body_of(chain, F32)) == 5001


def test_a_select_reads_memory_only_on_the_side_that_is_taken() -> None:
    pointer = PointerType(F32)

    def value(p, i):
        return build.select(i < 4, build.load(p, i), 0.0)

    lines = body_of(value, pointer, dtypes.i64)
    assert any(line.startswith("br i1") for line in lines) and any("phi float" in line for line in lines)
    assert not any("phi" in line for line in body_of(lambda x: build.select(x < 4.0, x, 0.0), F32))


def test_f16_without_conversion_instructions_is_refused() -> None:
    with pytest.raises(CodegenError, match="no f16 conversion instructions"):
        body_of(lambda x: build.cast(x, F32), dtypes.f16, cpu=arch_from_text("x86-64-v2"))


@pytest.mark.parametrize("dtype", [dtypes.boolean, dtypes.i8, dtypes.u16, dtypes.f16, F32, dtypes.i64], ids=str)
def test_masked_lanes_are_neither_read_nor_written(dtype) -> None:
    host = arch_from_text("host")
    source, flags, result = (Var(n, PointerType(d)) for n, d in (("a", dtype), ("m", dtypes.boolean), ("o", dtype)))
    mask = build.load(flags, 0, lanes=8)
    value = Load(source, (build.index(0),), VectorType(dtype, 8), mask)
    other = build.load(flags, 8, lanes=8)
    kernel = Function(
        "k", (source, flags, result), Store(result, (build.index(0),), value, other), "kernel", (build.size_var("g"),)
    )
    code = load_objects([compile_object(text_of(kernel, host), host, 2)])
    a = np.arange(1, 9).astype(dtype.numpy())
    m = np.array([1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0], bool)
    o = np.full(8, 7).astype(dtype.numpy())
    cells = np.array([v.ctypes.data for v in (a, m, o)], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("k"))(cells.ctypes.data, 0, 1)
    expected = np.where(m[8:], np.where(m[:8], a, np.zeros_like(a)), np.full(8, 7).astype(dtype.numpy()))
    np.testing.assert_array_equal(o, expected)


@pytest.mark.parametrize("lanes", [8, 16, 32])
@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.u16, dtypes.i32, dtypes.f16, dtypes.bf16, F32], ids=str)
@pytest.mark.thorough(every=2)
def test_lanes_that_a_known_mask_leaves_out_are_not_written(dtype, lanes) -> None:
    """LLVM 22.1 writes four bytes where the mask of narrowed values is known to have one lane alone."""
    host = arch_from_text("host")
    wide = F32 if dtype.is_float else dtypes.i64
    source, result = (Var(name, PointerType(type_)) for name, type_ in (("a", wide), ("o", dtype)))
    masks = {f"k{lane}": 1 << lane for lane in range(lanes)} | {f"m{count}": (1 << count) - 1 for count in range(lanes)}
    functions = []
    for name, bits in masks.items():
        mask = Bitcast(build.const(bits, dtypes.dtype(f"uint{lanes}")), VectorType(dtypes.boolean, lanes))
        value = build.cast(build.load(source, 0, lanes=lanes) + build.broadcast(build.const(1, wide), lanes), dtype)
        store = Store(result, (build.index(0),), value, mask)
        functions.append(Function(name, (source, result), store, "kernel", (build.size_var("g"),)))
    code = load_objects([compile_object(emit_module(Module(tuple(functions), "k0"), host), host, 3)])
    a = np.arange(1, lanes + 1).astype(wide.numpy())
    for name, bits in masks.items():
        o = np.full(lanes + 8, 7).astype(dtype.numpy())
        cells = np.array([v.ctypes.data for v in (a, o)], np.int64)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address(name))
        run(cells.ctypes.data, 0, 1)
        expected = np.full(lanes + 8, 7).astype(dtype.numpy())
        chosen = [lane for lane in range(lanes) if bits >> lane & 1]
        expected[chosen] = (a + 1).astype(dtype.numpy())[chosen]
        np.testing.assert_array_equal(o, expected, err_msg=name)


def test_a_vector_behind_a_condition_of_all_lanes_is_not_read_when_it_is_false() -> None:
    vector = VectorType(F32, 8)
    condition, pointer = Var("c", dtypes.boolean), Var("p", PointerType(F32))
    value = Select(
        Broadcast(condition, VectorType(dtypes.boolean, 8)),
        Load(pointer, (build.index(0),), vector),
        build.broadcast(build.const(0.0, F32), 8),
        vector,
    )
    function = Function("f", (condition, pointer), Return(value), "device", (), vector)
    lines = text_of(function).splitlines()
    branch = next(number for number, line in enumerate(lines) if "br i1 %arg.c.0" in line)
    read = next(number for number, line in enumerate(lines) if "load <8 x float>" in line)
    assert branch < read
    assert not any(" select " in line for line in lines)


LOOPS = {
    "zeros in pairs": lambda p, i: [Store(p, (i * 2 + n,), build.const(0, dtypes.i64)) for n in (0, 1)],
    "prints": lambda p, i: [Print("%ld\n", (i,))],
    "stops": lambda p, i: [If(build.load(p, i) < 0, Break()), Store(p, (i,), build.load(p, i) + 1)],
    "returns": lambda p, i: [If(build.load(p, i) < 0, Return()), Store(p, (i,), build.load(p, i) + 1)],
    "asserts": lambda p, i: [Assert(build.load(p, i) < 5, "too large"), Store(p, (i,), i)],
}

REPEATING = {
    "a row": lambda p, q, i, item: Store(p, (i,), build.load(q, (item + i) % 4)),
    "a sum of rows": lambda p, q, i, item: Store(p, (i,), build.load(p, i) + build.load(q, (item + i) % 2)),
    "a row of several": lambda p, q, i, item: Store(p, (i,), build.load(q, i + (item + i) % 8 * item)),
}


@pytest.mark.parametrize("store", REPEATING.values(), ids=REPEATING)
@pytest.mark.parametrize("level", [1, 3])
def test_llvm_says_nothing_of_loops_that_read_the_same_again(store, level, capfd) -> None:
    p, q, n, item = Var("p", PointerType(F32)), Var("q", PointerType(F32)), build.size_var("n"), build.size_var("item")
    i, row = build.size_var("i"), build.size_var("row")
    lanes = For(i, build.index(0), build.index(32), store(p, q, i, item), kind="vectorize")
    rows = For(row, build.index(0), n, lanes)
    compile_object(text_of(Function("f", (p, q, n), rows, "kernel", (item,))), AVX2, level)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("level", [1, 3])
def test_llvm_says_nothing_of_loops_that_it_does_not_vectorise(body, level, capfd) -> None:
    p, n, i = Var("p", PointerType(dtypes.i64)), build.size_var("n"), build.size_var("i")
    loop = For(i, build.index(0), n, build.seq(body(p, i)), kind="vectorize")
    text = text_of(Function("f", (p, n), loop, "kernel", (build.size_var("item"),)))
    compile_object(text, AVX2, level)
    assert capfd.readouterr().err == ""
