"""Every scalar operation and conversion compiles for every element type that programs compute in."""

from __future__ import annotations

import pytest

from hidet import dtypes
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.nvrtc import compile_cubin
from hidet.errors import CodegenError
from hidet.gpu.codegen.small_float import SMALL_FLOATS
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Binary, Cast, Expr, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.scalar_ops import BINARY_OPS, UNARY_OPS
from hidet.ir.types import PointerType, with_lanes
from hidet.ir.verify_expr import check_expr

FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
INTEGERS = (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64, dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)
HELD = (dtypes.boolean, *INTEGERS, *FLOATS, *SMALL_FLOATS, dtypes.i4, dtypes.u4)
# Functions of real numbers: programs cast integers to a float before.
REAL_ONLY = {"div", "atan2", "hypot", "nextafter", "copysign"}
BOOLEAN = ("land", "lor", "and", "or", "xor", "eq", "ne")


def kernel(name: str, result: dtypes.DType, make, operands: tuple[dtypes.DType, ...], lanes: int) -> Function:
    pointers = [Var(f"p{n}", PointerType(dtype)) for n, dtype in enumerate(operands)]
    output = Var("output", PointerType(result))
    item = Var("item", dtypes.i64)
    place = item * lanes
    value = make(*[build.load(p, place, lanes=lanes) for p in pointers])
    check_expr(value, {})
    return Function(name, (*pointers, output), s.Store(output, (place,), value), kind="kernel", grid_vars=(item,))


def compiles(kernels: list[Function]) -> None:
    cubin = compile_cubin(emit_module(Module(tuple(kernels), kernels[0].name), 80), "sm_80")
    assert len(cubin.usage) == len(kernels)
    assert not [name for name, usage in cubin.usage.items() if usage.spill_bytes]


def result_type(rule: str, dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.boolean if rule == "bool" else dtype


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.thorough(every=2)
def test_operations_of_floats(lanes) -> None:
    kernels = []
    for dtype in FLOATS:
        for op, row in UNARY_OPS.items():
            if op in ("not", "lnot") or (op == "digamma" and lanes > 1):
                continue
            kernels.append(_unary(op, dtype, result_type(row.result, dtype), lanes))
        for op, row in BINARY_OPS.items():
            if op not in ("and", "or", "xor", "shl", "shr", "land", "lor"):
                kernels.append(_binary(op, dtype, result_type(row.result, dtype), lanes))
    compiles(kernels)


@pytest.mark.parametrize("lanes", [1, 4])
def test_operations_of_integers_and_bools(lanes) -> None:
    kernels = []
    for dtype in INTEGERS:
        kernels += [_unary(op, dtype, dtype, lanes) for op in ("neg", "abs", "not")]
        for op, row in BINARY_OPS.items():
            if op not in REAL_ONLY | {"land", "lor"}:
                kernels.append(_binary(op, dtype, result_type(row.result, dtype), lanes))
    kernels += [_binary(op, dtypes.boolean, dtypes.boolean, lanes) for op in BOOLEAN]
    kernels += [_unary("lnot", dtypes.boolean, dtypes.boolean, lanes)]
    compiles(kernels)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.thorough(every=2)
def test_conversions(lanes) -> None:
    compiles(
        [
            kernel(
                f"cast_{a.short}_{b.short}",
                b,
                lambda x, b=b: Cast(x, with_lanes(b, lanes)),
                (a,),
                lanes,
            )
            for a in HELD
            for b in HELD
            if a is not b
        ]
    )


def test_complex_numbers_are_refused() -> None:
    made = kernel("k", dtypes.c64, lambda x: x, (dtypes.c64,), 1)
    with pytest.raises(CodegenError, match="complex64"):
        emit_module(Module((made,), "k"), 80)


def _unary(op: str, dtype: dtypes.DType, result: dtypes.DType, lanes: int) -> Function:
    def make(a: Expr) -> Expr:
        return Unary(op, a, with_lanes(result, lanes))

    return kernel(f"{op}_{dtype.short}", result, make, (dtype,), lanes)


def _binary(op: str, dtype: dtypes.DType, result: dtypes.DType, lanes: int) -> Function:
    def make(a: Expr, b: Expr) -> Expr:
        return Binary(op, a, b, with_lanes(result, lanes))

    return kernel(f"{op}_{dtype.short}_2", result, make, (dtype, dtype), lanes)
