"""Assertions of scripts that fail on a CPU: one exception, after which everything goes on."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet.errors import LaunchError
from hidet.lang import attrs, boolean, f16, f32, i32

LINES = Path(__file__).read_text().splitlines()


def line_of(text: str) -> int:
    """The number of the only line of this file that ends with `text`."""
    (found,) = [number for number, line in enumerate(LINES, 1) if line.endswith(text)]
    return found


def failure_of(call) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        call()
    return caught.value


@hidet.script
def require(x: f32) -> f32:
    assert x >= 0.0, "100% of x are positive"
    return x


def test_a_failed_assertion_names_function_line_and_message():
    assert require(2.0) == 2.0
    error = failure_of(lambda: require(-1.0))
    assert error.message == "in require: assertion failed: 100% of x are positive"
    assert error.loc.file == __file__
    assert error.loc.line == line_of('assert x >= 0.0, "100% of x are positive"')
    assert 'assert x >= 0.0, "100% of x are positive"' in str(error)
    assert require(3.0) == 3.0


m, n = hidet.dims.symbol("m"), hidet.dims.symbol("n")

with hidet.script_module() as calls:

    @hidet.script
    def add(x: f32[n], y: f32[n]):
        for i in range(n):
            y[i] += x[i]

    @hidet.script
    def eight(x: f32[8]):
        attrs.cuda.grid_dim = 8
        attrs.cuda.block_dim = 1
        x[hidet.lang.cuda.blockIdx.x] = 1.0

    @hidet.script
    def call(x: f32[n], y: f32[m]):
        add(x, y)

    @hidet.script
    def start(x: f32[n]):
        eight(x)


@pytest.mark.parametrize(
    ("function", "extents", "declared", "where"),
    [
        (
            "call",
            (6, 2),
            "axis 0 of argument y of add does not have n elements: y is declared as f32[n]",
            "        add(x, y)",
        ),
        (
            "start",
            (2,),
            "axis 0 of argument x of eight does not have 8 elements: x is declared as f32[8]",
            "        eight(x)",
        ),
    ],
)
def test_what_a_script_passes_on_has_the_extents_that_are_declared(function, extents, declared, where):
    tensors = [np.zeros(extent, np.float32) for extent in extents]
    error = failure_of(lambda: calls.build("cpu")[function](*tensors))
    assert error.message == f"in {function}: {declared}"
    assert error.loc.line == line_of(where)


with hidet.script_module() as module:

    @hidet.script
    def element(x: f32[1000], i: i32) -> f32:
        attrs.func_kind = "device"
        assert 0 <= i < 1000, "a place outside of x"
        return x[i]

    @hidet.script
    def gather(x: f32[1000], places: i32[1000], out: f32[1000]):
        attrs.func_kind = "kernel"
        attrs.cuda.grid_dim = 10
        attrs.cuda.block_dim = 100
        i = hidet.lang.cuda.blockIdx.x * 100 + hidet.lang.cuda.threadIdx.x
        out[i] = element(x, places[i]) + out[places[i]] * 0.0

    @hidet.script
    def launch(x: f32[1000], places: i32[1000], out: f32[1000], count: i32):
        attrs.func_kind = "public"
        assert count > 0, "nothing to do"
        gather(x, places, out)
        out[0] = 7.0


@pytest.fixture(scope="module")
def built():
    return module.build(target="cpu")


def arguments():
    return np.arange(1000, dtype=np.float32), np.arange(1000, dtype=np.int32), np.zeros(1000, np.float32)


def test_a_kernel_names_itself_and_the_function_and_its_host_function_stops(built):
    x, places, out = arguments()
    places[500] = 1 << 30
    error = failure_of(lambda: built(x, places, out, 1))
    assert error.message == "in kernel gather, function element: assertion failed: a place outside of x"
    assert error.loc.line == line_of('"a place outside of x"')
    assert out[0] == 0


def test_host_functions_assert_and_later_calls_work(built):
    x, places, out = arguments()
    error = failure_of(lambda: built(x, places, out, 0))
    assert error.message == "in launch: assertion failed: nothing to do"
    assert (out == 0).all()
    built(x, places, out, 1)
    assert out[0] == 7
    assert (out[1:] == x[1:]).all()


def test_threads_of_a_pool_report_to_the_call_that_launched_them():
    with hidet.script_module() as checks:

        @hidet.script
        def check(x: f32[4096], out: f32[4096]):
            attrs.func_kind = "public"
            for i in hidet.lang.grid(4096, attrs="p"):
                assert x[i] >= 0.0, "negative"
                out[i] = x[i] + 1.0

    function = hidet.driver.build_ir_module(checks.ir_module(), target="cpu", options={"threads": 4})
    good = np.arange(4096, dtype=np.float32)
    outcomes: dict[int, list[bool]] = {}

    def calls(number: int) -> None:
        out = np.zeros(4096, np.float32)
        x = good.copy()
        if number % 2:
            x[17 * number :] = -1
        outcomes[number] = []
        for _ in range(50):
            try:
                function(x, out)
                outcomes[number].append((out == good + 1).all())
            except LaunchError as error:
                outcomes[number].append("kernel check" in error.message and "negative" in error.message)

    callers = [threading.Thread(target=calls, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert outcomes == {number: [True] * 50 for number in range(4)}
    with pytest.raises(LaunchError, match="negative"):
        function(-good - 1, np.zeros(4096, np.float32))


def test_equal_scripts_of_different_places_name_their_own():
    def made(first: bool):
        if first:

            @hidet.script
            def same(x: f32):
                assert x > 0, "x"  # the first one

        else:

            @hidet.script
            def same(x: f32):
                assert x > 0, "x"  # the second one

        return same

    for first, text in ((True, "# the first one"), (False, "# the second one")):
        error = failure_of(partial(made(first), -1.0))
        assert error.loc.line == line_of(f'assert x > 0, "x"  {text}')


def test_code_without_assertions_checks_nothing():
    @hidet.script
    def plain(x: f32) -> f32:
        return x + 1.0

    assert "failure" not in plain.build(target="cpu").source()


def graph_of_two_scripts(size: int):
    """y[i] = x[places[i]] by two scripts: the first asserts that places lie in x, the second one trusts them."""
    from hidet import dtypes
    from hidet.graph import GraphBuilder, TensorType
    from hidet.ir.structural import structural_hash
    from hidet.lang.module import module_of
    from hidet.plugins.host import load_registry
    from hidet.script_operator.operator import ScriptCall, script_operator

    @hidet.script
    def checked(places: i32[size], out: i32[size]):
        for i in hidet.lang.grid(size, attrs="p"):
            assert 0 <= places[i] < size, "a place outside"
            out[i] = places[i] if 0 <= places[i] < size else 1 << 30

    @hidet.script
    def gathered(x: f32[size], places: i32[size], out: f32[size]):
        for i in range(size):
            out[i] = x[places[i]]

    def call(script, inputs, result):
        one = module_of([script])
        places = (*(("input", number) for number in range(len(inputs))), ("output", 0))
        attributes = {"call": ScriptCall(f"test::{script.name}", structural_hash(one), places, one), "values": ()}
        (made,) = builder.emit_all(script_operator([result]), inputs, attributes)
        return made

    builder = GraphBuilder(load_registry().operators)
    floats, integers = TensorType(dtypes.f32, (size,)), TensorType(dtypes.i32, (size,))
    x, places = builder.input(floats, "x"), builder.input(integers, "places")
    return builder.build([call(gathered, [x, call(checked, [places], integers)], floats)])


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("size", [1000, 1 << 22])
def test_graphs_stop_at_a_script_that_fails(size, is_loaded, tmp_path):
    compiled = hidet.compile(graph_of_two_scripts(size), target="cpu")
    if is_loaded:
        compiled.save(tmp_path / "graph.hidet")
        compiled = hidet.load(tmp_path / "graph.hidet")
    x, places = np.arange(size, dtype=np.float32), np.arange(size, dtype=np.int32)[::-1].copy()
    wrong = places.copy()
    wrong[size // 2] = -(1 << 31)
    for _ in range(2):
        error = failure_of(lambda: compiled(x, wrong))
        assert error.message.endswith("assertion failed: a place outside")
        assert error.loc.line == line_of('"a place outside"')
        assert np.array_equal(compiled(x, places), x[::-1])


def test_functions_that_may_fail_stand_in_conditions_and_give_any_type():
    with hidet.script_module() as walks:

        @hidet.script
        def checked(x: ~f32, i: i32) -> ~f32:
            assert i < 4, "a step too far"
            return x + i

        @hidet.script
        def is_small(x: ~f32, i: i32) -> boolean:
            assert x[i] == x[i], "no number"
            return x[i] < 10.0

        @hidet.script
        def half(x: f32) -> f16:
            assert x < 100.0, "too large"
            return f16(x * 0.5)

        @hidet.script
        def walk(x: f32[4], out: f32[4]):
            attrs.func_kind = "public"
            i = 0
            while i < 4 and is_small(x, i):
                out[i] = f32(half(x[i])) if is_small(x, i) else checked(x, 9)[0]
                i += 1
            out[0] += checked(x, i)[0]

    function = walks.build(target="cpu")

    def walked(*numbers):
        out = np.zeros(4, np.float32)
        try:
            function(np.array(numbers, np.float32), out)
        except LaunchError as error:
            return error.message
        return out.tolist()

    assert walked(2, 4, 20, 6) == [21, 2, 0, 0]
    assert walked(2, 4, 6, 8) == "in checked: assertion failed: a step too far"
    assert walked(2, np.nan, 20, 6) == "in is_small: assertion failed: no number"
    assert walked(2, 20, np.nan, 6) == [21, 0, 0, 0]
    assert walked(-2, 20, np.nan, 6) == [19, 0, 0, 0]
