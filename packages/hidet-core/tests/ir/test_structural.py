"""Structural hash and equality of programs and definitions."""

import struct
import subprocess
import sys
from dataclasses import replace

import pytest

from hidet import dims, dtypes
from hidet.compute.definition import COMBINERS, Operand, compute, reduce, single
from hidet.errors import VerifyError
from hidet.ir import build
from hidet.ir.expr import Binary, Const, Size, Unary, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Assign, Declare, For, If, Seq, Store
from hidet.ir.structural import structural_equal, structural_hash
from hidet.ir.types import BufferType, PointerType, VectorType
from hidet.loc import Loc

f32, i64 = dtypes.f32, dtypes.i64


def copy_kernel(prefix="", step=1, dtype=f32, kind="serial"):
    source, target = (Var(prefix + n, PointerType(dtype)) for n in ("source", "target"))
    n, i = Var(prefix + "n", i64), Var(prefix + "i", i64)
    body = For(i, build.index(0), n, Store(target, (i,), build.load(source, i)), step, kind)
    return Function("copy", (target, source, n), body, "kernel")


def test_names_of_variables_do_not_count():
    assert structural_hash(copy_kernel()) == structural_hash(copy_kernel("other_"))


def test_places_in_user_code_do_not_count():
    plain = copy_kernel()
    placed = replace(plain, body=replace(plain.body, loc=Loc("model.py", 3)))
    assert structural_equal(plain, placed)
    assert structural_hash(plain) == structural_hash(placed)


@pytest.mark.parametrize("change", [{"step": 2}, {"dtype": dtypes.f64}, {"kind": "unroll"}])
def test_steps_types_and_loop_kinds_count(change):
    assert not structural_equal(copy_kernel(), copy_kernel(**change))


def test_which_variable_is_meant_counts():
    a, b = Var("a", f32), Var("b", f32)
    assert structural_equal(Binary("sub", a, b, f32), Binary("sub", b, a, f32))
    first = Function("f", (a, b), Assign(a, Binary("sub", a, b, f32)))
    second = Function("f", (a, b), Assign(a, Binary("sub", b, a, f32)))
    assert not structural_equal(first, second)


def test_sharing_of_sub_expressions_does_not_count():
    x = Var("x", f32)
    shared = Unary("exp", x, f32)
    twice = Binary("add", Unary("exp", x, f32), Unary("exp", x, f32), f32)
    assert structural_equal(Binary("add", shared, shared, f32), twice)


def test_doubling_a_shared_node_a_thousand_times_takes_linear_time():
    x = Var("x", f32)
    for _ in range(1000):
        x = Binary("add", x, x, f32)
    assert len(structural_hash(x)) == 64


def test_deep_expressions_and_long_sequences_need_no_recursion():
    x = Var("x", f32)
    deep = x
    for _ in range(20000):
        deep = Unary("neg", deep, f32)
    assert structural_hash(Seq((Assign(x, deep),) * 3))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Const(0.0, f32), Const(-0.0, f32)),
        (Const(1, i64), Const(True, i64)),
        (Const(1, f32), Const(1.0, f32)),
        (Const(1.0, f32), Const(1.0, dtypes.f64)),
        (Const(float("nan"), f32), Const(struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0], f32)),
        (Const(1j, dtypes.c64), Const(-1j, dtypes.c64)),
        (Const(1.0, f32), Const(1.0, VectorType(f32, 8))),
    ],
)
def test_constants_differ_by_their_bits_and_types(a, b):
    assert not structural_equal(a, b)
    assert structural_equal(a, Const(a.value, a.type))


def test_nested_sequences_are_flattened():
    x = Var("x", f32)
    one, two, three = (Assign(x, build.const(n, f32)) for n in range(3))
    assert structural_equal(Seq((one, Seq((two, three)))), Seq((one, two, three)))
    assert structural_equal(Seq((one,)), one)
    assert not structural_equal(If(build.const(True, dtypes.boolean), one), one)


def test_a_buffer_type_counts_with_its_shape():
    n = Var("n", i64)

    def declare(extent, space="local", strides=None):
        return Declare(Var("b", BufferType(f32, (extent,), strides, space)))

    assert structural_equal(declare(build.index(4)), declare(build.index(4)))
    assert structural_equal(declare(n), declare(Var("m", i64)))
    for other in (declare(build.index(5)), declare(n), declare(build.index(4), "shared")):
        assert not structural_equal(declare(build.index(4)), other)
    assert not structural_equal(declare(build.index(4)), declare(build.index(4), strides=(build.index(2),)))


def test_variables_of_different_functions_are_unrelated_even_when_shared():
    n = Var("n", i64)

    def module(second):
        make = lambda name, var: Function(name, (var,), Assign(var, var + 1))  # noqa: E731
        return Module((make("f", n), make("g", second)), "f")

    assert structural_equal(module(n), module(Var("m", i64)))


def test_function_names_and_attributes_count():
    body = Seq(())
    plain = Function("f", (), body)
    assert not structural_equal(plain, Function("g", (), body))
    assert not structural_equal(plain, Function("f", (), body, attributes=(("block", (32, 1, 1)),)))


def test_symbolic_sizes_count_with_their_facts_but_not_their_hint():
    def size(**facts):
        return Size(2 * dims.symbol("s", **facts), i64)

    assert structural_equal(size(hint=8), size(hint=16))
    assert not structural_equal(size(), size(divisor=8))


def rows(extent, shape, combiner="sum"):
    x = Operand("x", f32, shape)
    return single(
        [x], compute("y", shape[:1], lambda i: reduce(COMBINERS[combiner], [extent], lambda r: x[i, r] * 2.0))
    )


def test_definitions_count_ranks_of_operands_and_shapes_only_when_asked():
    small, large = rows(4, (3, 4)), rows(4, (5, 4))
    assert structural_equal(small, large)
    assert not structural_equal(small, large, operand_shapes=True)
    assert not structural_equal(small, rows(4, (3, 4), "max"))
    assert not structural_equal(small, rows(5, (3, 4)))


def test_several_things_share_their_variables():
    a, b = Var("a", f32), Var("b", f32)
    assert structural_hash(a, a) != structural_hash(a, b)
    assert structural_hash(a, "x", 1, None, (f32,)) != structural_hash(a, "x", 2, None, (f32,))


def test_the_hash_is_the_same_in_every_process():
    code = (
        "from hidet import dtypes; from hidet.ir.expr import Binary, Var;"
        "from hidet.ir.structural import structural_hash;"
        "x = Var('x', dtypes.f32); print(structural_hash(Binary('add', x, x, dtypes.f32)))"
    )
    x = Var("y", f32)
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == structural_hash(Binary("add", x, x, f32))


def test_other_objects_are_refused():
    with pytest.raises(VerifyError, match="set has no structural identity"):
        structural_hash({1})
