"""Accesses outside of arrays that scripts certainly make are refused at definition; others are not."""

import pytest

from hidet import dims
from hidet.errors import ScriptError
from hidet.lang import attrs, f32, grid, i32, register_tensor, script

# ruff: noqa: B007  # scripts with the mistakes that are tested

n = dims.symbol("n")


def published_loop(a: f32[3], b: f32[3], c: f32[3]):
    for i in range(10):
        c[i] = a[i] + b[i]


def written_loop(c: f32[3]):
    for i in range(4):
        c[i] = 1.0


def offset(c: f32[8]):
    for i in range(8):
        c[i + 1] = 0.0


def negative(c: f32[8]):
    for i in range(8):
        c[i - 3] = 0.0


def strided(c: f32[8]):
    for i in range(0, 10, 3):
        c[i] = 0.0


def nested(c: f32[4, 4]):
    for i in range(4):
        for j in range(4):
            c[i, i + j] = 0.0


def through_variables(c: f32[16]):
    for i in range(4):
        base = i * 4
        for j in range(4):
            place = base + j
            c[place + 1] = 0.0


def parallel(c: f32[6]):
    for i in grid(7, attrs="p"):
        c[i] = 0.0


def local_array(x: f32[4]):
    attrs.func_kind = "device"
    kept = register_tensor("float32", [4])
    for i in range(5):
        kept[i] = x[0]


def in_the_first_turn(c: f32[4], m: i32):
    for i in range(10):
        c[i + 4] = 0.0
        if i == m:
            break


@pytest.mark.parametrize(
    ("function", "access", "index", "extent", "when", "line"),
    [
        (published_loop, "a[i]", 9, 3, "i is 9", 2),
        (written_loop, "c[i]", 3, 3, "i is 3", 2),
        (offset, "c[i + 1]", 8, 8, "i is 7", 2),
        (negative, "c[i + -3]", -3, 8, "i is 0", 2),
        (strided, "c[i]", 9, 8, "i is 9", 2),
        (nested, "c[i, i + j]", 6, 4, "i is 3, j is 3", 3),
        (through_variables, "c[place + 1]", 16, 16, "place is 15", 5),
        (parallel, "c[i]", 6, 6, "i is 6", 2),
        (local_array, "kept[i]", 4, 4, "i is 4", 4),
        (in_the_first_turn, "c[i + 4]", 4, 4, "i is 0", 2),
    ],
)
def test_an_access_that_is_certainly_outside_is_refused_with_its_line(function, access, index, extent, when, line):
    """user-walk.md bug 3, red-team.md finding 11."""
    with pytest.raises(ScriptError) as caught:
        script(function)
    error = caught.value
    dim = 1 if function is nested else 0
    assert error.message == f"{access}: index {index} of dim {dim} is outside of its {extent} elements when {when}"
    assert (error.loc.file, error.loc.line) == (__file__, function.__code__.co_firstlineno + line)
    assert "^" in str(error)


def behind_a_condition(c: f32[3]):
    for i in range(10):
        if i < 3:
            c[i] = 0.0


def chosen(c: f32[3], d: f32[10]):
    for i in range(10):
        d[i] = c[i] if i < 3 else 0.0


def after_and(c: f32[3], d: f32[10]):
    for i in range(10):
        if i < 3 and c[i] > 0.0:
            d[i] = 1.0


def after_break(c: f32[3], m: i32):
    for i in range(10):
        if i >= m:
            break
        c[i] = 0.0


def after_continue(c: f32[3]):
    for i in range(10):
        if i > 2:
            continue
        c[i] = 0.0


def before_break(c: f32[3]):
    for i in range(10):
        c[i] = 0.0
        if i == 2:
            break


def after_return(c: f32[3], m: i32):
    if m > 2:
        return
    for i in range(10):
        c[i] = 0.0


def after_assertion(c: f32[3], m: i32):
    assert m > 5, "never called so"
    for i in range(10):
        c[i] = 0.0


def after_a_loop_without_end(c: f32[3]):
    while c[0] == 0.0:
        c[1] = c[1] + 1.0
    for i in range(10):
        c[i] = 0.0


def of_no_turns(c: f32[3]):
    for i in range(0):
        c[i + 7] = 0.0


def in_a_loop_of_no_turns(c: f32[3], m: i32):
    for k in range(m):
        for i in range(10):
            c[i] = 0.0


def of_a_length_known_at_a_call(c: f32[n], m: i32):
    for i in range(10):
        c[i] = 0.0
    for i in range(m):
        c[i] = 0.0


def through_a_pointer(c: ~f32):
    for i in range(10):
        c[i] = 0.0


def that_wraps(c: f32[3]):
    for i in range(10):
        c[i % 3] = 0.0


@pytest.mark.parametrize(
    "function",
    [
        behind_a_condition,
        chosen,
        after_and,
        after_break,
        after_continue,
        before_break,
        after_return,
        after_assertion,
        after_a_loop_without_end,
        of_no_turns,
        in_a_loop_of_no_turns,
        of_a_length_known_at_a_call,
        through_a_pointer,
        that_wraps,
    ],
)
def test_an_access_that_may_not_be_made_is_not_refused(function):
    script(function)


def test_expressions_that_share_their_parts_are_looked_at_once():
    from hidet import dtypes
    from hidet.ir import build
    from hidet.ir.bounds import guarded_loads
    from hidet.ir.expr import Var
    from hidet.ir.types import BufferType

    array = Var("a", BufferType(dtypes.f32, (build.index(4),)))
    shared = build.load(array, 0)
    for _ in range(60):
        shared = shared + shared
    assert len(list(guarded_loads(shared))) == 1
