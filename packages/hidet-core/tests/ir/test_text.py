"""Programs as text: what is printed, and that it parses back."""

import struct

import pytest

from hidet import dims, dtypes
from hidet.compute.definition import COMBINERS, Operand
from hidet.errors import VerifyError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.common_intrinsics import fma
from hidet.ir.func import Function, Module
from hidet.ir.parser import parse_expr, parse_function, parse_module
from hidet.ir.printer import print_expr, print_function, print_module, print_stmt
from hidet.ir.structural import structural_equal
from hidet.ir.types import BufferType, PointerType, VectorType

f32, i64, boolean = dtypes.f32, dtypes.i64, dtypes.boolean
X, Y = e.Var("x", f32), e.Var("y", f32)
K, J, B, C = e.Var("i", i64), e.Var("j", i64), e.Var("b", boolean), e.Var("c", boolean)
P, Q = e.Var("p", PointerType(f32)), e.Var("q", PointerType(dtypes.bf16, "shared"))
V, M = e.Var("v", VectorType(f32, 8)), e.Var("m", VectorType(boolean, 8))
A = e.Var("a", BufferType(f32, (build.index(4), K)))
T = e.Var("t", BufferType(f32, (build.index(6),), (build.index(2),), "local", 8))
VARIABLES = (X, Y, K, J, B, C, P, Q, V, M, A, T)
SYMBOL = dims.symbol("s0", 1, 64, divisor=4, hint=16)


def binary(op, a, b):
    return e.Binary(op, a, b, a.type)


def compare(op, a, b):
    return e.Binary(op, a, b, boolean)


def const(value, type_=f32):
    return e.Const(value, type_)


PAYLOAD = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
CASES = {
    "x + y * x": binary("add", X, binary("mul", Y, X)),
    "(x + y) * x": binary("mul", binary("add", X, Y), X),
    "x - y - x": binary("sub", binary("sub", X, Y), X),
    "x - (y - x)": binary("sub", X, binary("sub", Y, X)),
    "x / y": binary("div", X, Y),
    "i // j % i": binary("mod", binary("floordiv", K, J), K),
    "i << j & i | j ^ i": binary("or", binary("and", binary("shl", K, J), K), binary("xor", J, K)),
    "i >> j + 1": binary("shr", K, binary("add", J, const(1, i64))),
    "truncdiv(i, j)": binary("truncdiv", K, J),
    "min(x, y)": binary("min", X, Y),
    "-x * y": binary("mul", e.Unary("neg", X, f32), Y),
    "-(x * y)": e.Unary("neg", binary("mul", X, Y), f32),
    "neg(5)": e.Unary("neg", const(5, i64), i64),
    "~i": e.Unary("not", K, i64),
    "exp(x)": e.Unary("exp", X, f32),
    "isnan(x)": e.Unary("isnan", X, boolean),
    "not b and c": e.Binary("land", e.Unary("lnot", B, boolean), C, boolean),
    "not (b and c)": e.Unary("lnot", e.Binary("land", B, C, boolean), boolean),
    "b and c and b or c": e.Binary("lor", e.Binary("land", e.Binary("land", B, C, boolean), B, boolean), C, boolean),
    "b and (c and b)": e.Binary("land", B, e.Binary("land", C, B, boolean), boolean),
    "i < j + 1": compare("lt", K, binary("add", J, const(1, i64))),
    "(i < j) == (i != j)": e.Binary("eq", compare("lt", K, J), compare("ne", K, J), boolean),
    "x if b else (y if c else x)": e.Select(B, X, e.Select(C, Y, X, f32), f32),
    "(x if b else y) + x": binary("add", e.Select(B, X, Y, f32), X),
    "-5": const(-5, i64),
    "-0.0": const(-0.0),
    "1e+20": const(1e20),
    "0.1": const(0.1),
    "True": const(True, boolean),
    "f32(inf)": const(float("inf")),
    "f32(-inf)": const(float("-inf")),
    "f32(nan)": const(float("nan")),
    "f32(bits(0x7ff8000000000001))": const(PAYLOAD),
    "f32(5)": const(5),
    "f16(1.5)": const(1.5, dtypes.f16),
    "u8(255)": const(255, dtypes.u8),
    "i64(True)": const(True, i64),
    "f32x8(0.0)": const(0.0, VectorType(f32, 8)),
    "c64(1.0, -0.0)": const(complex(1, -0.0), dtypes.c64),
    "pointer(0, ~f32)": const(0, PointerType(f32)),
    "size(4*s0 + 1)": e.Size(4 * SYMBOL + 1, i64),
    "size(s0, i32)": e.Size(SYMBOL, dtypes.i32),
    "cast(i, f32)": e.Cast(K, f32),
    "cast(v, f16x8)": e.Cast(V, VectorType(dtypes.f16, 8)),
    "bitcast(i, ~f32 @ shared)": e.Bitcast(K, PointerType(f32, "shared")),
    "p[i]": e.Load(P, (K,), f32),
    "a[0, i + 1]": e.Load(A, (const(0, i64), binary("add", K, const(1, i64))), f32),
    "t[i]": e.Load(T, (K,), VectorType(f32, 8)),
    "load(p, [i], f32x8)": e.Load(P, (K,), VectorType(f32, 8)),
    "load(p, [i], f32x8, mask=m)": e.Load(P, (K,), VectorType(f32, 8), M),
    "load(p + i, [0])": e.Load(binary("add", P, K), (const(0, i64),), f32),
    "address(q, i)": e.AddressOf(Q, (K,), PointerType(dtypes.bf16, "shared")),
    "address(q, i, type=~i8)": e.AddressOf(Q, (K,), PointerType(dtypes.i8)),
    'call("fma", x, y, x, type=f32)': fma(X, Y, X),
    "broadcast(x, 8)": e.Broadcast(X, VectorType(f32, 8)),
    "extract(v, 3)": e.Extract(V, 3, f32),
    "shuffle(v, v, [0, 8, 3])": e.Shuffle(V, V, (0, 8, 3), VectorType(f32, 3)),
    "v * v": e.Binary("mul", V, V, V.type),
    "v < f32x8(1.0)": e.Binary("lt", V, const(1.0, V.type), VectorType(boolean, 8)),
}


@pytest.mark.parametrize("text", CASES)
def test_expressions_print_with_few_parentheses_and_parse_back(text):
    expr = CASES[text]
    assert print_expr(expr) == text
    again = parse_expr(text, VARIABLES, symbols=dims.symbols(SYMBOL))
    assert structural_equal((*VARIABLES, again), (*VARIABLES, expr))


def test_reductions_and_accesses_print_their_operands_and_axes():
    x = Operand("x", f32, (4, 8))
    r = e.Var("r", i64)
    expr = e.Reduce(COMBINERS["sum"], (r,), (const(8, i64),), (binary("mul", x[K, r], const(2.0)),), 0, f32)
    text = 'reduce("sum", [r], [8], [x[i, r] * 2.0], 0)'
    assert print_expr(expr) == text
    assert structural_equal((K, parse_expr(text, [K], [x])), (K, expr))


def scale_module():
    n, i, j = (e.Var(name, i64) for name in ("n", "i", "j"))
    a, x = e.Var("a", PointerType(f32)), e.Var("x", f32)
    tile = e.Var("tile", BufferType(f32, (build.index(4), build.index(2)), None, "local", 8))
    mask = e.Var("mask", VectorType(boolean, 8))
    wide = e.Load(a, (i,), VectorType(f32, 8))
    kernel = Function(
        "scale",
        (a, n),
        s.Seq(
            (
                s.Declare(tile),
                s.Declare(x, build.load(a, i)),
                s.For(j, const(1, i64), const(4, i64), s.Assign(x, x * 2.0), 2, "unroll"),
                s.While(x < 10.0, s.Seq((s.Assign(x, x + 1.0), s.If(x > 5.0, s.Break(), s.Continue())))),
                s.If(i < n, s.Store(a, (i,), x)),
                s.Declare(mask, wide < const(0.0, VectorType(f32, 8))),
                s.Store(a, (i,), wide, mask),
                s.Store(tile, (const(0, i64), const(1, i64)), wide),
                s.For(j, const(0, i64), n, s.Seq(()), 1, "vectorize"),
            )
        ),
        "kernel",
        (i,),
        attributes=(("block", (256, 1, 1)),),
    )
    data, size = e.Var("a", PointerType(f32)), e.Var("n", i64)
    host = Function(
        "main",
        (data, size),
        s.Seq(
            (
                s.Assert(size >= 0, "n is negative"),
                s.Launch("scale", (size,), (data, size), const(100, i64)),
                s.Launch(
                    "scale",
                    (size,),
                    (data, size),
                    block=(const(32, i64), const(4, i64)),
                    cluster=(const(2, i64),),
                    shared_bytes=size,
                    is_cooperative=True,
                ),
                s.Invoke("other", (data,)),
                s.Invoke("other", (data,), is_independent=True),
                s.Evaluate(e.Call("trace", (size,), i64)),
            )
        ),
        "host",
    )
    return Module((kernel, host), "main", ("other",))


SCALE = """module(entry="main", externals=['other'])

@kernel(block=(256, 1, 1))
def scale(a: ~f32, n: i64):
    i = grid()
    tile: f32x8[4, 2] @ local
    x: f32 = a[i]
    for j in unroll(4, start=1, step=2):
        x = x * 2.0
    while x < 10.0:
        x = x + 1.0
        if x > 5.0:
            break
        else:
            continue
    if i < n:
        a[i] = x
    mask: boolx8 = load(a, [i], f32x8) < f32x8(0.0)
    store(a, [i], load(a, [i], f32x8), mask=mask)
    tile[0, 1] = load(a, [i], f32x8)
    for j in vectorize(n):
        pass

@host
def main(a: ~f32, n: i64):
    assert n >= 0, 'n is negative'
    launch("scale", [n], [a, n], cost=100)
    launch("scale", [n], [a, n], block=[32, 4], cluster=[2], shared_bytes=n, is_cooperative=True)
    invoke("other", [a])
    invoke("other", [a], is_independent=True)
    call("trace", n, type=i64)
"""


def test_a_module_prints_as_python():
    assert print_module(scale_module()) == SCALE


def test_a_printed_module_parses_back():
    again = parse_module(SCALE)
    assert structural_equal(again, scale_module())
    assert print_module(again) == SCALE


def test_symbols_are_declared_at_the_top():
    function = Function("f", (), s.Return(e.Size(2 * SYMBOL, i64)), result=i64)
    text = "s0 = symbol(4, 64, divisor=4, hint=16)\n@device\ndef f() -> i64:\n    return size(2*s0)\n"
    assert print_function(function) == text
    assert structural_equal(parse_function(text), function)


def test_variables_of_equal_names_are_distinguished_and_keywords_avoided():
    first, second, keyword = e.Var("x", f32), e.Var("x", f32), e.Var("lambda", f32)
    body = s.Seq((s.Assign(first, binary("add", second, keyword)), s.Assign(e.Var("layer.0", f32), first)))
    assert print_stmt(body) == "x = x_1 + lambda_\nlayer_0 = x\n"


def test_a_function_whose_name_is_no_identifier_keeps_it():
    function = Function("aten::add.0", (), s.Seq(()), "host")
    text = "@host(symbol='aten::add.0')\ndef aten__add_0():\n    pass\n"
    assert print_function(function) == text
    assert parse_function(text).name == "aten::add.0"


def test_several_grid_indices_and_shapes_that_mention_later_parameters_parse_back():
    n, i, j = (e.Var(name, i64) for name in ("n", "i", "j"))
    a = e.Var("a", BufferType(f32, (n, build.index(4))))
    function = Function("f", (a, n), s.Store(a, (i, j), const(0.0)), "kernel", (i, j))
    assert "def f(a: f32[n, 4], n: i64):\n    i, j = grid()\n" in print_function(function)
    assert structural_equal(parse_function(print_function(function)), function)


def test_the_same_variable_declared_in_two_loops_stays_one_variable():
    x, i, n = e.Var("x", f32), e.Var("i", i64), e.Var("n", i64)
    loop = s.For(i, const(0, i64), n, s.Declare(x, const(0.0)))
    function = Function("f", (n,), s.Seq((loop, loop)))
    assert structural_equal(parse_function(print_function(function)), function)


def test_an_else_that_holds_an_if_may_be_written_as_elif():
    one = parse_function("@device\ndef f(b: bool):\n    if b:\n        return\n    elif not b:\n        pass\n")
    two = parse_function(
        "@device\ndef f(b: bool):\n    if b:\n        return\n    else:\n        if not b:\n            pass\n"
    )
    assert structural_equal(one, two)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = 1", "line 3, column 5: y is not defined"),
        ("n = exq(n)", "(?s)exq is no function of 1 values.*did you mean .*'exp'"),
        ("n = n < n < n", "comparisons do not chain"),
        ("n = 'text'", "'text' is no literal"),
        ("x: f33 = 1", "expected a type, found f33"),
        ("x: f32 @ shared", "only pointers and buffers have a memory space"),
        ("x: ~f32 @ heap", "expected a memory space: global, shared"),
        ("for i in n:\n        pass", "loops go over one of range, unroll, vectorize"),
        ("for i in range(1, 2):\n        pass", r"expected range\(extent, start=..., step=..., type=...\)"),
        ("with n:\n        pass", "with n: is no statement"),
        ("n + 1 = n", "line 3, column 5: cannot assign"),
        ("n = cast(n)", r"cast\(n\) has the wrong arguments"),
        ("n = cast(n, f32, f32, f32)[0] if", "invalid syntax"),
        ("n = size(t)", "size 't', column 1: found 't', expected a known symbol"),
        ("store(n)", r"store\(n\) lacks arguments"),
    ],
)
def test_other_text_is_refused_with_its_place(body, message):
    with pytest.raises(VerifyError, match=message):
        parse_function(f"@device\ndef f(n: i64):\n    {body}\n")


def test_functions_need_a_kind_and_modules_a_head():
    with pytest.raises(VerifyError, match="function f needs one decorator: @kernel, @device, @host"):
        parse_function("def f():\n    pass\n")
    with pytest.raises(VerifyError, match="must start with module"):
        parse_module("@device\ndef f():\n    pass\n")


def silu_chain(length):
    """Each silu reads what is before it twice: as a tree the chain has 2 ** length leaves."""
    x = e.Var("x", f32)
    value: e.Expr = x
    for _ in range(length):
        value = value / (build.unary("exp", -value) + 1.0)
    return Function("chain", (x,), s.Return(value), "device", result=f32)


def test_what_a_long_value_uses_several_times_is_written_once():
    function = silu_chain(40)
    text = print_function(function)
    assert len(text) < 4000
    again = parse_function(text)
    assert print_function(again) == text
    assert structural_equal(again, function)


def test_a_long_value_names_its_parts_in_order():
    assert print_function(silu_chain(6)).splitlines()[2] == (
        "    return let(t0 := x / (exp(-x) + 1.0), t1 := t0 / (exp(-t0) + 1.0), t2 := t1 / (exp(-t1) + 1.0), "
        "t3 := t2 / (exp(-t2) + 1.0), t4 := t3 / (exp(-t3) + 1.0), t4 / (exp(-t4) + 1.0))"
    )


def test_names_of_parts_end_with_the_value():
    with pytest.raises(VerifyError, match="t0 is not defined"):
        parse_function("@device\ndef f(x: f32) -> f32:\n    y: f32 = let(t0 := x + x, t0 * t0)\n    return t0\n")
    with pytest.raises(VerifyError, match="expected let"):
        parse_function("@device\ndef f(x: f32) -> f32:\n    return let(x + x, x)\n")
