"""Random scripts mean what the same text means to Python."""

import linecache
from itertools import count

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hidet.ir.interpret import run_module
from hidet.lang import i64, script
from hidet.lang.module import module_of

NUMBERS = count()

names = st.sampled_from(["a", "b", "c", "d", "3", "-2", "7", "known"])
comparisons = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def larger(inner):
    """Expressions made of smaller ones. Products and quotients are by constants: no overflow, no division by zero."""
    factors = st.sampled_from(["2", "-3", "known"])
    signs = st.sampled_from("+-")
    return (
        st.tuples(inner, signs, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | st.tuples(inner, signs, inner).map(" ".join)
        | st.tuples(inner, st.sampled_from(["*", "//", "%"]), factors).map(lambda t: f"({t[0]}) {t[1]} {t[2]}")
        | inner.map(lambda n: f"-({n})")
        | st.tuples(inner, inner, comparisons, inner, inner).map(lambda t: "({} if {} {} {} else {})".format(*t))
        | st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: "{}({}, {})".format(*t))
    )


numbers = st.recursive(names, larger, max_leaves=4)
tests = st.recursive(
    st.tuples(numbers, comparisons, numbers).map(" ".join)
    | st.tuples(numbers, comparisons, numbers, comparisons, numbers).map(" ".join),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | inner.map(lambda t: f"not ({t})")
    ),
    max_leaves=3,
)
assignments = st.tuples(st.sampled_from(["a", "b", "d"]), st.sampled_from(["=", "+=", "-="]), numbers).map(" ".join)


def indented(lines):
    return [f"    {line}" for line in lines]


def branch(parts):
    test, then, otherwise = parts
    return [f"if {test}:", *indented(then), "else:", *indented(otherwise)]


def loop(parts):
    turns, body = parts
    return [f"for c in range({turns}):", *indented(body)]


def repetition(parts):
    test, body, leaves = parts
    turn = f"turn_{next(NUMBERS)}"
    inner = [f"{turn} += 1", *body, f"if {turn} == {leaves}:", "    break"]
    return [f"{turn} = 0", f"while {turn} < 3 and {test}:", *indented(inner)]


blocks = st.recursive(
    st.lists(assignments, min_size=1, max_size=3),
    lambda inner: st.lists(
        st.tuples(tests, inner, inner).map(branch)
        | st.tuples(st.integers(0, 3), inner).map(loop)
        | st.tuples(tests, inner, st.integers(1, 4)).map(repetition),
        min_size=1,
        max_size=2,
    ).map(lambda parts: [line for part in parts for line in part]),
    max_leaves=4,
)


def defined(text):
    """A function of that text, as from a cell of a notebook."""
    name = f"<random script {next(NUMBERS)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"i64": i64, "known": 5}
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(blocks, numbers, st.tuples(*[st.integers(-9, 9)] * 3))
def test_scripts_compute_what_python_computes(body, result, arguments):
    lines = ["def f(a: i64, b: i64, c: i64) -> i64:", *indented(["d = 1", "d += 0", *body, f"return {result}"])]
    function = defined("\n".join(lines) + "\n")
    expected = function(*arguments)
    assume(abs(expected) < 2**31)
    module = module_of([script(function)])
    assert run_module(module, list(arguments), entry="f") == expected
