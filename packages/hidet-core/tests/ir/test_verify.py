"""Every rule of the thread IR, broken on purpose."""

from dataclasses import replace

import pytest

from hidet import dims, dtypes
from hidet.compute.definition import COMBINERS, Operand
from hidet.errors import VerifyError
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.func import Function, Module
from hidet.ir.parser import parse_function, parse_module
from hidet.ir.types import BufferType, PointerType, VectorType
from hidet.ir.verify import verify_module

f32, i64, boolean = dtypes.f32, dtypes.i64, dtypes.boolean

PARAMETERS = "p: ~f32, c: ~f32 @ constant, n: i64, x: f32, y: f64, b: bool, v: f32x8, m: boolx8, a: f32[n, 4]"


def verify_function(function):
    """Verify a module of a function and an entry that does nothing, linked with `trace`."""
    main = Function("main", (), s.Seq(()), kind="host")
    verify_module(Module((function, main), "main", externals=("trace",)))


def function(body, kind="device", result=""):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return parse_function(f"@{kind}\ndef f({PARAMETERS}){result}:\n{lines}\n")


VALID = """\
z: f32 = x * 2.0 + p[n]
tile: f32x8[4] @ local
for i in range(n, start=1, step=2):
    z = max(z, a[i, 0])
    if z > 1.0 and b:
        break
    tile[0] = load(p, [i], f32x8, mask=m)
for j in unroll(4):
    p[j] = extract(tile[j], 0) if j < n else 0.0
while not isnan(z):
    z = z - 1.0
    continue
store(p, [n], v * v, mask=v < broadcast(x, 8))
q: ~f32 = p + n
q[0] = cast(y, f32)
k: i32 = bitcast(z, i32)
assert n >= 0, "n is negative"
call("trace", n, type=i64)
"""


def test_a_valid_function_passes():
    verify_function(function(VALID))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if b:\n    z: f32 = x\nz = x", r"variable z is not declared here"),
        ("z: f32 = x\nz: f32 = x", "variable z is declared twice"),
        ("for i in range(n):\n    pass\np[i] = x", "variable i is not declared here"),
        ("x = 1.0", "x cannot be assigned: it is a parameter, an index or a buffer"),
        ("for i in range(n):\n    i = 1", "i cannot be assigned"),
        ("z: f32 = y", "the initial value of z has type f64, expected f32"),
        ("z: f32 = x\nz = n", "the value of z has type i64, expected f32"),
        ("z: f32[4] @ local = x", "buffer z cannot have an initial value"),
        ("z: f32[n] @ local", "buffer z needs a constant shape"),
        ("z: strided(f32[4], [1, 2]) @ local", "2 strides for 1 axes"),
        ("z: f32[x] @ local", "an extent or stride has type f32, expected i64"),
        ("p[n] = y", "a value of type f64 is no element of a ~f32"),
        ("p[x] = x", "an index has type f32, expected i64"),
        ("a[n] = x", r"1 indices of a f32\[n, 4\], which takes 2"),
        ("c[n] = x", "constant memory is never written"),
        ("x[n] = x", "memory of type f32 is no pointer or buffer"),
        ("store(p, [n], v, mask=b)", "a mask has type bool, expected boolx8"),
        ("t: f32x8[4] @ local\nt[0] = x", r"a value of type f32 is no element of a f32x8\[4\] @ local"),
        ("if n:\n    pass", "the condition has type i64, expected bool"),
        ("while x:\n    pass", "the condition of the loop has type f32, expected bool"),
        ("assert x, 'no'", "the assertion has type f32, expected bool"),
        ("for i in range(x):\n    pass", "the extent of the loop has type f32, expected i64"),
        ("for i in range(n, step=0):\n    pass", "the step of the loop is 0, expected at least 1"),
        ("for i in range(n, type=i32):\n    pass", "loop index i has type i32, expected i64"),
        ("for i in unroll(n):\n    pass", "an unrolled loop needs a constant start and extent"),
        ("break", "break stands outside a loop"),
        ("for i in unroll(4):\n    continue", "continue stands in an unrolled loop"),
        ("return x", "returns f32, expected nothing"),
        ("x + x", "only calls are evaluated for their effect"),
        ("launch('k', [n], [])", "functions are launched by host functions only"),
        ("invoke('k', [n])", "functions are invoked by host functions only"),
        ("z: f32 = x + y", "operands of add have types f32 and f64"),
        ("z: bool = x and x", "land of f32, expected bool"),
        ("z: f32 = x & x", "and of f32, expected integers or bool"),
        ("z: f32 = ~x", "not of f32, expected integers or bool"),
        ("z: bool = not n", "lnot of i64, expected bool"),
        ("z: bool = isnan(n)", "isnan of i64, expected floats"),
        ("z: bool = -b", "neg of bool, expected numbers"),
        ("q: ~f32 = p * n", r"mul of ~f32 and i64, expected \+ or - of i64"),
        ("z: f32 = x if n else x", "the condition of a select has type i64, expected bool"),
        ("z: f32 = x if b else y", "sides of a select have types f32 and f64"),
        ("z: f32 = x if m else x", "a select of 1 lanes on a condition of 8"),
        ("z: f32 = cast(v, f32)", "cast of f32x8 to f32, which has other lanes"),
        ("z: i64 = bitcast(x, i64)", r"bitcast of f32 \(32 bits\) to i64 \(64 bits\)"),
        ("z: f32 = extract(v, 8)", "lane 8 of f32x8"),
        ("z: f32x2 = shuffle(v, v, [15, 16])", r"lanes \[16\] of two f32x8"),
        ("z: f32x2 = shuffle(x, x, [0, 1])", "lanes are picked from f32, expected a vector"),
        ("z: f32x2 = shuffle(v, load(p, [0], f32x4), [0, 1])", "lanes are picked from f32x8 and f32x4"),
        ("z: u8 = u8(256)", "constant 256 is no value of u8"),
        ("z: i64 = i64(1.5)", "constant 1.5 is no value of i64"),
        ("z: bool = bool(1)", "constant 1 is no value of bool"),
        ("z: ~f32 = pointer(7, ~f32)", "constant 7 cannot be a pointer"),
        ("z: f32 = call('f', x, type=f32)", "f takes 9 arguments, got 1"),
    ],
)
def test_a_broken_rule_is_named_with_its_statement(body, message):
    with pytest.raises(VerifyError, match=message) as caught:
        verify_function(function(body))
    assert "device function f, in `" in caught.value.message


def test_the_statement_stands_in_the_message():
    with pytest.raises(VerifyError, match=r"device function f, in `if n: ...`: the condition has type i64"):
        verify_function(function("if n:\n    pass"))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (e.Size(dims.symbol("s"), i64), "Size has no meaning in a program"),
        (Operand("t", f32, (4,))[0], "Access has no meaning in a program"),
        (e.Reduce(COMBINERS["sum"], (), (), (build.const(1, f32),), 0, f32), "Reduce has no meaning in a program"),
        (e.Binary("add", build.const(1, f32), build.const(1, f32), i64), "add of f32 has type i64, expected f32"),
        (e.Binary("plus", build.const(1, f32), build.const(1, f32), f32), "scalar operation 'plus' is unknown"),
        (e.Unary("sine", build.const(1, f32), f32), "scalar operation 'sine' is unknown"),
        (e.Broadcast(build.const(1, f32), VectorType(i64, 4)), "broadcast of f32 has type i64x4"),
        (e.AddressOf(e.Var("q", PointerType(f32)), (build.index(0),), i64), "variable q is not declared here"),
    ],
)
def test_nodes_that_no_text_can_express_are_checked_too(node, message):
    with pytest.raises(VerifyError, match=message):
        verify_function(Function("f", (), s.Declare(e.Var("z", node.type), node)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"result": f32}, "returns f32; only device functions return values"),
        ({"kind": "device"}, "only kernels have grid indices"),
        ({"grid_vars": (e.Var("i", f32),)}, "grid index i has type f32, expected i64"),
    ],
)
def test_signatures_fit_the_kind_of_function(changes, message):
    kernel = Function("k", (), s.Seq(()), "kernel", (e.Var("i", i64),))
    verify_function(kernel)
    with pytest.raises(VerifyError, match=message):
        verify_function(replace(kernel, **changes))


def test_a_parameter_listed_twice_is_refused():
    n = e.Var("n", i64)
    with pytest.raises(VerifyError, match="parameter n is listed twice"):
        verify_function(Function("f", (n, n), s.Seq(())))


def test_a_device_function_returns_its_result():
    verify_function(function("return x", result=" -> f32"))
    with pytest.raises(VerifyError, match="returns f64, expected f32"):
        verify_function(function("return y", result=" -> f32"))
    with pytest.raises(VerifyError, match="returns nothing, expected f32"):
        verify_function(function("return", result=" -> f32"))


def module(host, externals=""):
    return parse_module(
        f'module(entry="main"{externals})\n'
        "@device\ndef double(x: f32) -> f32:\n    return x * 2.0\n"
        "@kernel\ndef k(p: ~f32, n: i64):\n    i = grid()\n    p[i] = call('double', p[i], type=f32)\n"
        f"@host\ndef main(p: ~f32, n: i64):\n    {host}\n"
    )


def test_a_module_that_launches_and_calls_its_functions_passes():
    verify_module(module('launch("k", [n], [p, n], cost=10)'))
    verify_module(module('launch("k", [n], [p, n], block=[n, 4], cluster=[2], shared_bytes=n * 4)'))
    verify_module(module('invoke("other", [p])', externals=', externals=["other"]'))


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ('launch("k", [n], [n, n])', "argument p of k has type i64, expected ~f32"),
        ('launch("k", [n], [p])', "k takes 2 arguments, got 1"),
        ('launch("k", [n, n], [p, n])', "k has 1 grid indices, launched with 2"),
        ('launch("k", [p[0]], [p, n])', "a grid extent has type f32, expected i64"),
        ('launch("k", [n], [p, n], cost=1.0)', "the cost has type f32, expected i64"),
        ('launch("k", [n], [p, n], block=[1.0])', "a block extent has type f32, expected i64"),
        ('launch("k", [n], [p, n], block=[1, 1, 1, 1])', "launched with 1 grid, 4 block and 0 cluster extents"),
        ('launch("k", [n], [p, n], block=[1], cluster=[2, 2])', "launched with 1 grid, 1 block and 2 cluster extents"),
        ('launch("k", [n], [p, n], cluster=[2])', "a cluster, shared memory or .* but no block of threads"),
        ('launch("k", [n], [p, n], is_cooperative=True)', "blocks that wait for each other, but no block of threads"),
        ('launch("main", [n], [p, n])', "main is a host function, expected a kernel function"),
        ('launch("l", [n], [p, n])', "l is neither a function of the module nor among its externals"),
        ('invoke("k", [p, n])', "k is a kernel function, expected a host function"),
        ('call("k", p, n, type=f32)', "k is a kernel function; only device functions are called"),
        ('call("double", p[0], type=f64)', "a call of double has type f64, it returns f32"),
    ],
)
def test_calls_between_functions_are_checked(host, message):
    with pytest.raises(VerifyError, match=message):
        verify_module(module(host))


def test_a_module_needs_distinct_names_and_a_host_entry():
    f = Function("f", (), s.Seq(()), "device")
    with pytest.raises(VerifyError, match="two functions called f"):
        verify_module(Module((f, f), "f"))
    with pytest.raises(VerifyError, match="entry 'f' is no host function of the module; it has f"):
        verify_module(Module((f,), "f"))


def test_a_pointer_may_be_passed_for_a_buffer():
    n = e.Var("n", i64)
    kernel = Function("k", (e.Var("a", BufferType(f32, (n,))), n), s.Seq(()), "kernel")
    p, m = e.Var("p", PointerType(f32)), e.Var("m", i64)
    host = Function("main", (p, m), s.Launch("k", (m,), (p, m)), "host")
    verify_module(Module((kernel, host), "main"))
