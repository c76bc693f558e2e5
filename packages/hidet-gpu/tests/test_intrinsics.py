"""The tables of hardware operations, and how calls of them are checked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hidet.dtypes import boolean, f16, f32, i32, i64, u32
from hidet.errors import VerifyError
from hidet.gpu.intrinsics import GROUPS, INTRINSICS, intrinsic_call
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Var
from hidet.ir.func import Function, Module
from hidet.ir.intrinsic import ElementsOf, SameAs
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
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


def test_parameters_of_a_row_have_distinct_names_and_results_name_one_of_them() -> None:
    for row in INTRINSICS.values():
        names = [parameter.name for parameter in row.parameters]
        assert len(set(names)) == len(names), row.name
        if isinstance(row.result, SameAs | ElementsOf):
            assert row.result.parameter in names, row.name


def test_a_call_has_the_type_its_row_says() -> None:
    assert intrinsic_call("gpu.thread_idx.x").type is i32
    value = Var("value", f16)
    assert intrinsic_call("gpu.shuffle_xor", 0xFFFFFFFF, value, 1, 32).type is f16
    place = Var("place", PointerType(u32))
    assert intrinsic_call("gpu.load_acquire", place, lanes=2).type == VectorType(u32, 2)
    assert intrinsic_call("gpu.syncthreads").type is None


def test_a_right_call_verifies() -> None:
    votes = intrinsic_call("gpu.vote_any", 0xFFFFFFFF, Const(True, boolean))
    verify_function(device(s.Evaluate(votes), s.Evaluate(intrinsic_call("gpu.syncthreads"))))


def test_a_call_without_value_survives_printing_and_parsing() -> None:
    kernel = Function("f", (), s.Evaluate(intrinsic_call("gpu.syncthreads")), kind="kernel")
    entry = Function("main", (), s.Launch("f", (Const(1, i64),), (), block=(Const(32, i64),)), kind="host")
    text = print_module(Module((kernel, entry), "main"))
    assert print_module(parse_module(text, INTRINSICS)) == text


SHARED = buffer("tile", f32, 32, "shared")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gpu.syncthread", (), "unknown"),
        ("gpu.syncthreads", (1,), "takes 0 arguments"),
        ("gpu.load_acquire", (SHARED,), "address in shared memory, expected global"),
        ("gpu.leading_zeros", (Const(1.0, f32),), "expected u32"),
        ("gpu.atomic_min", (Const(1, i64), Const(1, i32)), "expected an address"),
        ("gpu.shuffle", (0xFFFFFFFF, Const(1, i32), 0, Var("n", i32)), "a constant from 1 to 32"),
        ("gpu.atomic_add", (SHARED, Const(1, i32)), "elements of f32 and i32"),
    ],
)
def test_a_wrong_call_says_what_is_expected(name, arguments, message) -> None:
    with pytest.raises(VerifyError, match=message):
        intrinsic_call(name, *arguments)


def test_the_verifier_refuses_a_call_of_the_wrong_type() -> None:
    call = intrinsic_call("gpu.thread_idx.x")
    wrong = replace(call, type=i64)
    with pytest.raises(VerifyError, match="has type i64, it gives i32"):
        verify_function(device(s.Evaluate(wrong)))


@pytest.mark.parametrize("name", ["gpu.thread_idx.w", "acme.popcount"])
def test_the_verifier_refuses_a_dotted_name_that_no_wheel_has(name) -> None:
    call = Call(name, (), i32)
    with pytest.raises(VerifyError, match=f"{name} is neither a function of the module nor an intrinsic"):
        verify_function(device(s.Evaluate(call)))


def test_names_for_scripts_explain_their_rows() -> None:
    from hidet.gpu import lang

    assert [line.split("(")[0] for line in lang.multiply_high.doc.splitlines()] == ["gpu.multiply_high"]
    assert {"threadIdx", "shuffle", "shfl_sync", "sync_grid"} <= {*dir(lang)}
    with pytest.raises(AttributeError, match=r"hidet.gpu.lang has no 'mma'"):
        lang.mma  # noqa: B018  # the error is what is tested
