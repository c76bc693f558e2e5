"""The pass that replaces mathematical operations, and the code that comes of it on several processors."""

from __future__ import annotations

import numpy as np
import pytest

from hidet import dtypes
from hidet.cpu.arch import arch_from_text
from hidet.cpu.codegen import emit_module
from hidet.cpu.loader import LIBC_SYMBOLS
from hidet.cpu.math.functions import BINARY, UNARY, math_functions, needs_function
from hidet.cpu.object_symbols import read_symbols
from hidet.cpu.passes.expand_math import ExpandMath, expand_math, inner_nodes
from hidet.cpu.schedules.gemm_lanes import lane_wise
from hidet.cpu.toolchain import compile_assembly, compile_object
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir.expr import Binary, Call, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.stmt import Return
from hidet.ir.types import VectorType
from hidet.ir.visit import walk

F32 = dtypes.f32


def expanded(value_of, *types):
    """The module of one function, after the pass."""
    params = tuple(Var(name, type_) for name, type_ in zip("xy", types, strict=False))
    value = value_of(*params)
    return expand_math(Module((Function("f", params, Return(value), "device", (), value.type),), "f"))


def test_inner_nodes_are_those_of_a_walk_that_have_children() -> None:
    body = Return(build.unary("exp", Var("x", F32)) * 2.0 + 1.0)
    inner = list(inner_nodes(body))
    assert inner == [node for node in walk(body) if node.child_fields]
    assert {Binary, Unary} <= {type(node) for node in inner}


def test_an_operation_becomes_a_call_of_a_function_of_the_module() -> None:
    module = expanded(lambda x: build.unary("exp", x) + 1.0, F32)
    assert [f.name for f in module.functions] == ["hidet_exp_f32", "f"]
    calls = [n.callee for n in walk(module.function("f").body) if isinstance(n, Call)]
    assert calls == ["hidet_exp_f32"]


def test_uses_of_one_operation_share_its_function() -> None:
    module = expanded(lambda x, y: build.unary("tanh", x) + build.unary("tanh", y), F32, F32)
    assert len(module.functions) == 2


def test_modules_without_such_operations_stay_the_same_object() -> None:
    x = Var("x", F32)
    module = Module((Function("f", (x,), Return(x * x), "device", (), F32),), "f")
    assert ExpandMath().run(module) is module


@pytest.mark.parametrize("dtype", [F32, dtypes.f64, dtypes.f16, dtypes.bf16, dtypes.i32, dtypes.i64], ids=str)
def test_vectors_are_made_of_those_operations_that_can_be_had_of_them(dtype) -> None:
    """Seeds 1020582 and 1030034 of tests.fuzz.torch_programs: remainders of f64 in rows did not compile."""
    x, y = (Var(name, dtype) for name in "xy")
    vector = VectorType(dtype, 8)
    written = [Binary(op, x, y, dtype) for op in BINARY_OPS] + [Unary(op, x, dtype) for op in UNARY_OPS]
    kinds = {False: 0, True: 0}
    for value in written:
        arity = len(value.children())
        if not needs_function(value.op, arity, dtype):
            continue
        found = lane_wise(value, 8, lambda leaf: Var(leaf.name, vector))
        kinds[found is not None] += 1
        if found is None:
            assert math_functions(value.op, arity, dtype, 1)
            continue
        params = tuple(Var(name, vector) for name in "xy")
        assert math_functions(value.op, arity, dtype, 8)
        body = Return(lane_wise(value, 8, lambda leaf, params=params: params["xy".index(leaf.name)]))
        expand_math(Module((Function("f", params, body, "device", (), vector),), "f"))
    assert kinds[False] == {"float64": 3, "int32": 1, "int64": 1}.get(dtype.name, 0)
    assert kinds[True] or not dtype.is_float


@pytest.mark.parametrize("dtype", [F32, dtypes.f64, dtypes.f16, dtypes.bf16, dtypes.i32], ids=str)
def test_nothing_is_left_that_code_generation_would_have_to_refuse(dtype) -> None:
    names = [(op, 1) for op in UNARY_OPS] + [(op, 2) for op in BINARY_OPS]
    for op, arity in names:
        if not needs_function(op, arity, dtype):
            continue
        for function in math_functions(op, arity, dtype, 1):
            for n in walk(function.body):
                if isinstance(n, Unary | Binary):
                    assert not needs_function(n.op, len(n.children()), n.children()[0].dtype), (op, n.op)


@pytest.mark.parametrize(("exponent", "expected"), [(1, [1.5]), (2, [2.25]), (3, [3.375]), (-1, [1 / 1.5])])
def test_small_constant_powers_are_products(exponent, expected, compiled, elementwise) -> None:
    module = expanded(lambda x: build.binary("pow", x, exponent), F32)
    assert len(module.functions) == 1
    kernels = compiled({"k": elementwise(lambda x: build.binary("pow", x, exponent), (F32,), F32)})
    np.testing.assert_array_equal(kernels("k", np.array([1.5], np.float32)), np.array(expected, np.float32))


def test_the_power_one_half_is_the_root(compiled, elementwise) -> None:
    kernels = compiled({"k": elementwise(lambda x: build.binary("pow", x, 0.5), (F32,), F32)})
    x = np.array([4.0, 2.0, 0.0, -0.0, np.inf, -np.inf, np.nan, -1.0], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(kernels("k", x), np.sqrt(x))


def test_remainders_of_f64_vectors_are_refused_by_name() -> None:
    with pytest.raises(CodegenError, match="rem of f64 has no vector form"):
        math_functions("rem", 2, dtypes.f64, 8)


@pytest.mark.parametrize("cpu", ["haswell", "sapphirerapids", "neoverse-n1", "x86-64-v2"])
@pytest.mark.thorough(every=2)
def test_no_processor_needs_a_library(cpu, module_of, elementwise) -> None:
    arch = arch_from_text(cpu)
    # Half types are computed in f32.
    types = (dtypes.bf16 if cpu == "x86-64-v2" else dtypes.f16, dtypes.f64)
    rows = {
        f"{op}_{d.short}": elementwise(lambda *xs, op=op: _apply(op, xs), (d,) * (1 if op in UNARY else 2), d)
        for d in types
        for op in (*UNARY, *BINARY, "nextafter")
    }
    text = emit_module(module_of(rows), arch)
    needed = set(read_symbols(compile_object(text, arch, 1)).undefined)
    assert needed - LIBC_SYMBOLS <= {"_GLOBAL_OFFSET_TABLE_"}


def _apply(op, operands):
    return build.unary(op, *operands) if len(operands) == 1 else build.binary(op, *operands)


@pytest.mark.parametrize(("cpu", "register"), [("haswell", "%ymm"), ("znver5", "%zmm"), ("neoverse-n1", ".2d")])
@pytest.mark.parametrize("op", ["log2", "sin", "erfc"])
def test_loops_over_functions_are_vectorised(op, cpu, register, module_of, elementwise) -> None:
    arch = arch_from_text(cpu)
    module = module_of({"k": elementwise(lambda x: build.unary(op, x), (F32,), F32)})
    assembly = compile_assembly(emit_module(module, arch), arch, 2)
    assert register in assembly
    assert f"hidet_{op}" not in assembly


@pytest.mark.parametrize(("cpu", "register"), [("haswell", "%ymm"), ("znver5", "%zmm"), ("neoverse-n1", ".4s")])
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "erf", "rsqrt"])
def test_frequent_functions_are_computed_in_f32(op, cpu, register, module_of, elementwise) -> None:
    arch = arch_from_text(cpu)
    module = module_of({"k": elementwise(lambda x: build.unary(op, x), (F32,), F32)})
    assembly = compile_assembly(emit_module(module, arch), arch, 2)
    assert register in assembly
    assert "pd\t" not in assembly and ".2d" not in assembly
