"""The tables of NVIDIA's hardware operations, and how calls of them are checked."""

from __future__ import annotations

import pytest

from hidet.cuda.intrinsics import CUDA_INTRINSICS, GROUPS, INTRINSICS, PLAIN, intrinsic_call
from hidet.dtypes import f16, f32, i32, i64, u32
from hidet.errors import VerifyError
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Var
from hidet.ir.func import Function, Module
from hidet.ir.intrinsic import ElementsOf, SameAs
from hidet.ir.types import BufferType, PointerType, VectorType
from hidet.ir.verify import verify_module


def verify_function(function: Function) -> None:
    """Verify a module of a function and an entry that does nothing."""
    main = Function("main", (), s.Seq(()), kind="host")
    verify_module(Module((function, main), "main"))


def device(*stmts: s.Stmt, params: tuple[Var, ...] = ()) -> Function:
    return Function("f", params, s.Seq(stmts))


def buffer(name: str, dtype, count: int, space) -> Var:
    return Var(name, BufferType(dtype, (Const(count, i64),), space=space))


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_holds_rows_of_its_own_name(group) -> None:
    for name, row in GROUPS[group].items():
        assert row.name == name
        assert row.group == group
        assert name.startswith(f"{row.family.name}.")
        assert row.doc
        assert row.ptx


def test_names_are_unique_over_all_groups_whatever_their_family() -> None:
    assert len(PLAIN) == len(INTRINSICS) > len(CUDA_INTRINSICS) == sum(map(len, GROUPS.values()))


def test_parameters_of_a_row_have_distinct_names_and_results_name_one_of_them() -> None:
    for row in INTRINSICS.values():
        names = [parameter.name for parameter in row.parameters]
        assert len(set(names)) == len(names), row.name
        if isinstance(row.result, SameAs | ElementsOf):
            assert row.result.parameter in names, row.name


def test_a_matrix_operation_has_fragments_that_cover_the_matrix() -> None:
    row = INTRINSICS["cuda.mma.m16n8k16.f32.f16.f16"]
    assert [parameter.nbytes for parameter in row.parameters] == [16, 16, 8]


def test_a_call_has_the_type_its_row_says() -> None:
    assert intrinsic_call("gpu.thread_idx.x").type is i32
    value = Var("value", f16)
    assert intrinsic_call("gpu.shuffle_xor", 0xFFFFFFFF, value, 1, 32).type is f16
    source = Var("source", PointerType(f32))
    assert intrinsic_call("cuda.load_streaming", source, lanes=4).type == VectorType(f32, 4)
    assert intrinsic_call("gpu.syncthreads").type is None


def test_a_right_call_verifies() -> None:
    d, a, b = (buffer(n, t, c, "register") for n, t, c in (("d", f32, 4), ("a", u32, 4), ("b", u32, 2)))
    product = s.Evaluate(intrinsic_call("cuda.mma.m16n8k16.f32.f16.f16", d, a, b))
    verify_function(device(*map(s.Declare, (d, a, b)), product, s.Evaluate(intrinsic_call("gpu.syncthreads"))))


SHARED = buffer("tile", f32, 32, "shared")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("cuda.syncthread", (), "unknown"),
        ("cuda.copy_async_wait", (Var("n", i32),), "a constant from 0 to 63"),
        ("cuda.register_increase", (44,), "44, expected a constant from 24 to 256 that is a multiple of 8"),
        ("cuda.copy_async_16", (SHARED, SHARED, 16), "address in shared memory, expected global"),
        ("cuda.nanosleep", (Const(1.0, f32),), "expected u32"),
        ("cuda.load_streaming", (Const(1, i64),), "expected an address"),
    ],
)
def test_a_wrong_call_says_what_is_expected(name, arguments, message) -> None:
    with pytest.raises(VerifyError, match=message):
        intrinsic_call(name, *arguments)


def test_names_with_several_rows_explain_each() -> None:
    import hidet.lang.cuda as cuda

    assert [line.split("(")[0] for line in cuda.multiply_high.doc.splitlines()] == ["gpu.multiply_high"]
    rows = [line.split("(")[0] for line in cuda.tensor_load_im2col.doc.splitlines()]
    assert rows == [f"cuda.tensor_load_im2col.{rank}d" for rank in (3, 4, 5)]
    assert dir(cuda.mma) == sorted({name.split(".")[2] for name in INTRINSICS if name.startswith("cuda.mma.")})
