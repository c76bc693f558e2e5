"""Which parameters lead to memory that is written."""

import pytest

from hidet.ir.parser import parse_module
from hidet.ir.written import written_parameters

TEXT = """module(entry="main")

@kernel
def fill(out: ~f32, x: ~f32):
    i = grid()
    out[i] = x[i]

@device
def first(x: ~f32) -> f32:
    return x[0]

@host
def main(a: ~f32, b: ~f32, n: i64):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("b[0] = a[0]", {"b"}),
        ("b[0] = a[cast(b[0], i64)]", {"b"}),
        ('launch("fill", [n], [b, a])', {"b"}),
        ('launch("fill", [n], [a, b])', {"a"}),
        ('x: f32 = call("first", a, type=f32)', set()),
        ('call("unknown", a, type=None)', {"a"}),
        ("p: ~f32 = address(a, n)", {"a"}),
        ("p: ~f32 = a + n", {"a"}),
        ("p: ~f32 = b\n    p[0] = 1.0", {"b"}),
        ("store(bitcast(a, ~i32), [0], i32(1))", {"a"}),
        ("x: f32 = a[0] if n > 0 else b[0]", set()),
    ],
)
def test_memory_that_may_be_written_is_found(body, written):
    module = parse_module(TEXT.format(body=body))
    assert {var.name for var in written_parameters(module)["main"]} == written
