"""Scripts that make no sense: the error names the place and what to do."""

import operator
import traceback

import pytest

from hidet import lang
from hidet.errors import DTypeError, ScriptError
from hidet.lang import attrs, f32, grid, i32, printf, repeat, script, shared_tensor, static
from hidet.lang.cuda import syncthreads, threadIdx
from hidet.lang.module import module_of

# ruff: noqa: B007, F821, F841  # scripts with the mistakes that are tested


def no_type(x):
    x = 1.0


def unknown_name(x: f32[4]):
    x[0] = y


def forgotten_import(x: f32[4]):
    x[0] = sqrt(x[1])


def after_the_block(x: f32[4]):
    if x[0] > 0.0:
        value = x[1]
    x[2] = value


def float_into_integer(x: f32[4]):
    count = 0
    for i in range(4):
        count += x[i]


def two_many_indices(x: f32[4]):
    x[0, 1] = 1.0


def outside(x: f32[4]):
    x[4] = 1.0


def returns_nothing(x: f32) -> f32:
    if x > 0.0:
        return x


def returns_undeclared(x: f32):
    return x


def unused_value(x: f32):
    x + 1.0


def break_outside(x: f32):
    break_now = 1
    while x > 0.0:
        pass
    else:
        break_now = 2


def break_of_several(x: f32[4]):
    for i, j in grid(2, 2):
        break


def break_at_build_time(x: f32[4]):
    for i in static(range(3)):
        break


def changes_in_a_branch(x: f32[4]):
    names = (1, 2)
    if x[0] > 0.0:
        names = (3, 4)


def kernel_without_grid(x: f32[4]):
    attrs.cuda.block_dim = 32


def misspelt_attribute(x: f32[4]):
    attrs.cuda.grid_dims = 1


def grid_from_threads(x: f32[4]):
    attrs.cuda.block_dim = 32
    attrs.cuda.grid_dim = threadIdx.x


def failed_assertion(x: f32[4]):
    assert x.shape[0] == 8, "8 elements are needed"


def wrong_arguments(x: f32[4]):
    syncthreads(1)


def wrong_format(x: f32[4]):
    printf("%d", x[0])


def runtime_extent(n: i32):
    tile = shared_tensor(f32, [n, 4])


def exception_in_python(x: f32[4]):
    missing = {}["key"]


def unrolled_text(x: f32[4]):
    for i in x:
        pass


def with_statement(x: f32[4]):
    with x:
        pass


def wrong_rank(x: f32[4]):
    for i, j in repeat(4).on(0):
        pass


@pytest.mark.parametrize(
    ("function", "problem", "line", "column", "hint"),
    [
        (no_type, "parameter x has no type", 0, 13, "write x: f32"),
        (unknown_name, "name 'y' is not defined", 1, 12, None),
        (forgotten_import, "name 'sqrt' is not defined", 1, 12, "from hidet.lang import sqrt"),
        (after_the_block, "value has a value inside of a block that has ended", 3, 12, "declare it by `value: f32`"),
        (float_into_integer, "the value of count has type f32, expected i64", 3, 9, "count: f32 = ..."),
        (two_many_indices, "a tensor of 1 dims takes as many indices, got 2", 1, 5, None),
        (outside, "index 4 of dim 0 is outside of its 4 elements", 1, 5, None),
        (returns_nothing, "returns_nothing may end without returning a f32", 0, 1, None),
        (returns_undeclared, "returns a value, but no type is declared", 1, 5, "write -> f32"),
        (unused_value, "the value of x + 1.0 is not used", 1, 5, None),
        (break_outside, "a loop of a script has no else", 5, 9, None),
        (break_of_several, "break leaves one loop, but this one stands for several", 1, 5, "use loops over range"),
        (break_at_build_time, "break stands in a loop that is unrolled at build time", 2, 9, "range"),
        (changes_in_a_branch, "names stands for something known at build time", 3, 9, "names: i64 = ..."),
        (kernel_without_grid, "a kernel needs attrs.cuda.grid_dim", 0, 1, "write attrs.cuda.grid_dim"),
        (misspelt_attribute, "attribute 'cuda.grid_dims' is unknown", 1, 5, "cuda.grid_dim"),
        (grid_from_threads, "computed on the host from parameters, but mention gpu.thread_idx.x", 2, 5, None),
        (failed_assertion, "assertion failed: 8 elements are needed", 1, 5, None),
        (wrong_arguments, "gpu.syncthreads takes 0 arguments", 1, 5, None),
        (wrong_format, "'%d' cannot show a value of type f32", 1, 5, "%f"),
        (runtime_extent, "extents known at run time only", 1, 12, None),
        (exception_in_python, "KeyError", 1, 15, None),
        (unrolled_text, "x cannot be iterated over", 1, 14, None),
        (with_statement, "x is no context of a script: warp_groups is", 1, 10, None),
        (wrong_rank, "2 names for tasks of 1 dims", 1, 9, None),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_error_names_place_and_advice(refused, function, problem, line, column, hint):
    refused(function, problem, line, column, hint)


def test_columns_count_characters():
    def accents(x: f32[4]):
        x[0] = {"é": 1}["é"] + unknown

    with pytest.raises(ScriptError) as caught:
        script(accents)
    assert caught.value.loc.column == 9 + len('x[0] = {"é": 1}["é"] + ')


def test_a_notebook_cell_is_source_enough():
    import linecache

    text = "def cell(x: f32[4]):\n    x[0] = nothing\n"
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
    scope = {"f32": f32}
    exec(compile(text, "<cell 1>", "exec"), scope)
    with pytest.raises(ScriptError, match="name 'nothing' is not defined") as caught:
        script(scope["cell"])
    assert str(caught.value.loc) == "<cell 1>:2:12 (cell)"
    assert "2 |     x[0] = nothing" in str(caught.value)
    del linecache.cache["<cell 1>"]


def test_names_of_a_module_are_unique():
    with lang.script_module(), pytest.raises(ScriptError, match="two functions called unused_value"):
        for _ in range(2):

            @script
            def unused_value(x: f32):
                pass


def test_a_module_needs_something_to_call():
    @script
    def first(x: f32) -> f32:
        attrs.func_kind = "cuda_internal"
        return x

    with pytest.raises(ScriptError, match="has no functions"):
        module_of([])
    with pytest.raises(ScriptError, match="nothing that a host can call: first"):
        module_of([first])


def test_lang_functions_are_for_scripts():
    with pytest.raises(ScriptError, match="printf is for scripts"):
        printf("%d", 1)
    with pytest.raises(ScriptError, match="in the body of a function under"):
        attrs.cuda.grid_dim = 3


def test_a_script_that_calls_itself_is_an_error():
    def define():
        with pytest.raises(ScriptError, match="descend calls itself") as caught:

            @script
            def descend(x: f32) -> f32:
                return descend(x - 1.0)

        assert "write a loop" in caught.value.hint

    define()


def test_a_cell_that_is_run_again_does_not_call_what_it_made_before():
    import linecache

    text = "@script\ndef descend(x: f32) -> f32:\n    return descend(x - 1.0)\n"
    linecache.cache["<cell 2>"] = (len(text), None, text.splitlines(True), "<cell 2>")
    before = script(unchanged)
    with pytest.raises(ScriptError, match="descend calls itself"):
        exec(compile(text, "<cell 2>", "exec"), {"f32": f32, "script": script, "descend": before})
    del linecache.cache["<cell 2>"]


def unchanged(x: f32) -> f32:
    return x


def shifted_by_floats(x: f32[4], n: i32[4]):
    n[0] = n[0] << x[0]


def halves(number):
    return 1 // number


def calls_python(x: f32[4]):
    x[0] = halves(0)


def test_an_error_does_not_show_how_the_translator_got_there():
    """user-walk.md section 6, row 11: it stood below a dozen frames and an error that caused it."""
    with pytest.raises(ScriptError, match="<< takes integers") as caught:
        script(shifted_by_floats)
    shown = "".join(traceback.format_exception(caught.value))
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == ["script"]
    assert "DTypeError" not in shown and shown.count("Traceback") == 1


def test_what_python_code_of_a_script_raised_is_shown():
    with pytest.raises(ScriptError, match="ZeroDivisionError") as caught:
        script(calls_python)
    assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name == "halves"


def test_names_that_python_keeps_for_itself_are_no_advice():
    with pytest.raises(ScriptError) as caught:
        script(unknown_name)
    assert "__" not in caught.value.hint


def test_arguments_of_a_declaration_are_refused_by_its_name():
    def declares(x: f32[4]):
        tile = shared_tensor(f32, [4], banks=32)

    with pytest.raises(ScriptError, match=r"TypeError: shared_tensor\(\) got an unexpected keyword argument 'banks'"):
        script(declares)


def test_a_script_is_shown_by_its_signature():
    @script
    def larger(a: f32, b: f32) -> f32:
        return a if a > b else b

    @script
    def fill(x: f32[4, 2], p: ~i32):
        x[0, 0] = p[0]

    assert repr(larger) == "<script larger(a: f32, b: f32) -> f32>"
    assert repr(fill) == "<script fill(x: f32[4, 2], p: ~i32)>"


def test_a_pointer_to_vectors_is_refused_with_the_way_to_read_them():
    with pytest.raises(DTypeError, match="write ~f32 instead of ~f32x4") as caught:
        operator.invert(lang.f32x4)
    assert "load(p, i, f32x4)" in caught.value.hint
