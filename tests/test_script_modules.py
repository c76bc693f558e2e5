"""Scripts compiled for the CPU and called with tensors and numbers: what users' programs do."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import hidet
from hidet.errors import DTypeError, LaunchError, ShapeError, VerifyError
from hidet.ir.interpret import run_module
from hidet.lang import (
    DeclareScope,
    attrs,
    boolean,
    f16,
    f32,
    f64,
    grid,
    i8,
    i32,
    i64,
    local_tensor,
    predicated_auto_map,
    printf,
    register_tensor,
    repeat,
    spatial,
    tensor,
    u8,
)
from hidet.lang.cuda import atomic_add, threadIdx

M, N = hidet.dims.symbol("m"), hidet.dims.symbol("n")


def test_hello_world(capfd):
    with hidet.script_module() as script_module:

        @hidet.script
        def launch():
            attrs.func_kind = "public"
            printf("Hello World!\n")

    module = script_module.build()
    module()
    module["launch"]()
    assert capfd.readouterr().out == "Hello World!\nHello World!\n"
    assert "Hello World!" in module.source()
    assert "\x1b[" in module.source(color=True)


def test_scalars_are_added_and_the_sum_is_a_python_number():
    with hidet.script_module() as script_module:

        @hidet.script
        def launch(a: f32, b: f32) -> f32:
            attrs.func_kind = "public"
            return a + b

    module = script_module.build()
    assert module(3.0, 4.0) == 7.0
    assert type(module(3, np.float32(4))) is float


def make_vector_addition():
    with hidet.script_module() as script_module:

        @hidet.script
        def launch(a: f32[3], b: f32[3], c: f32[3]):
            attrs.func_kind = "public"
            for i in range(3):
                c[i] = a[i] + b[i]

    return hidet.driver.build_ir_module(script_module.ir_module())


def test_a_function_outlives_the_module_that_it_was_taken_from():
    add = make_vector_addition()["launch"]
    c = np.zeros(3, np.float32)
    add(np.ones(3, np.float32), np.ones(3, np.float32), c)
    assert c.tolist() == [2, 2, 2]


@pytest.fixture(scope="module")
def add():
    return make_vector_addition()


@pytest.mark.parametrize("library", [np, torch])
def test_tensors_of_several_libraries_are_added(add, library):
    a, b, c = (library.ones(3, dtype=library.float32) * k for k in (1, 2, 0))
    add(a, b, c)
    assert c.tolist() == [3, 3, 3]


def test_libraries_may_be_mixed(add):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    c = np.zeros(3, np.float32)
    add(torch.ones(3), Foreign(np.ones(3, np.float32)), c)
    assert c.tolist() == [2, 2, 2]


class OnDevice:
    """What lies on a GPU, for those who look."""

    @property
    def __cuda_array_interface__(self):
        return {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("replace", "error", "problem"),
    [
        ({2: np.zeros(3)}, DTypeError, "argument c of launch has dtype float64, expected float32"),
        ({0: np.zeros(4, np.float32)}, ShapeError, r"argument a of launch has shape \(4,\), expected \(3,\)"),
        ({0: np.zeros((3, 1), np.float32)}, ShapeError, r"expected 1 dims: f32\["),
        ({1: np.zeros(6, np.float32)[::2]}, LaunchError, r"argument b of launch has strides \(2,\)"),
        ({1: torch.zeros(6)[::2]}, LaunchError, r"argument b of launch has strides \(2,\)"),
        ({2: [0.0, 0.0, 0.0]}, LaunchError, "argument c of launch: got a list where it takes a tensor"),
        ({2: 1.0}, LaunchError, "got a float where it takes a tensor"),
        ({2: OnDevice()}, DTypeError, "OnDevice cannot be read as an array of the host: it lies on a GPU"),
        ({2: object()}, DTypeError, "argument c of launch: object cannot be read as an array"),
        ({2: read_only(np.zeros(3, np.float32))}, LaunchError, "argument c of launch is written, but must not"),
        ({2: torch.zeros(3, requires_grad=True)}, LaunchError, "requires a gradient"),
        ({2: torch.zeros(3, device="meta")}, LaunchError, "meta"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_and_later_calls_work(add, replace, error, problem):
    arguments = [np.ones(3, np.float32) for _ in range(3)]
    with pytest.raises(error, match=problem):
        add(*(replace.get(number, argument) for number, argument in enumerate(arguments)))
    add(*arguments)
    assert arguments[2].tolist() == [2, 2, 2]


def test_kinds_of_tensors_may_change_from_call_to_call(add):
    good = [torch.ones(3), torch.ones(3), torch.zeros(3)]
    for _ in range(3):
        add(*good)
    for wrong in (
        torch.zeros(4),
        torch.zeros(3).double(),
        torch.zeros(6)[::2],
        torch.zeros(3, requires_grad=True),
        1.0,
    ):
        for place in range(3):
            arguments = list(good)
            arguments[place] = wrong
            with pytest.raises(hidet.HidetError, match=f"argument {'abc'[place]} of launch|got a float|gradient"):
                add(*arguments)
    negated = torch._neg_view(torch.ones(3))
    with pytest.raises(LaunchError, match="argument a of launch"):
        add(negated, *good[1:])
    c = np.zeros(3, np.float32)
    add(good[0], good[1].numpy(), c)
    assert c.tolist() == [2, 2, 2]
    with torch.no_grad():
        add(torch.ones(3, requires_grad=True), *good[1:])
    assert good[2].tolist() == [2, 2, 2]


def test_the_second_call_with_torch_tensors_takes_one_test(monkeypatch):
    from hidet.torch.tensors import TorchAdapter

    outlines = []
    outline = TorchAdapter.outline
    monkeypatch.setattr(TorchAdapter, "outline", staticmethod(lambda t: outlines.append(t) or outline(t)))
    add = make_vector_addition()
    for _ in range(3):
        add(torch.ones(3), torch.ones(3), torch.zeros(3))
    assert len(outlines) == 3


def test_what_is_only_read_may_be_read_only(add):
    c = np.zeros(3, np.float32)
    add(read_only(np.ones(3, np.float32)), np.ones(3, np.float32), c)
    assert c.tolist() == [2, 2, 2]


def test_the_number_of_arguments_is_checked(add):
    with pytest.raises(LaunchError, match=r"launch takes 3 arguments \(a, b, c\), got 1"):
        add(np.ones(3, np.float32))
    with pytest.raises(LaunchError, match="no function 'lunch' to call"):
        add["lunch"]


def test_scalars_of_every_type():
    @hidet.script
    def mix(flag: boolean, a: i8, b: u8, c: i64, d: f64, h: f16, out: f32[2]) -> f64:
        if flag:
            out[0] = a
        out[1] = b
        return c + d + h

    out = np.zeros(2, np.float32)
    assert mix(True, -3, 200, 2**40, 0.25, 0.5, out) == 2**40 + 0.75
    assert out.tolist() == [-3, 200]
    good = [True, -3, 200, 2**40, 0.25, 0.5, out]
    for number, wrong, problem in [
        (0, 1, "flag of mix is 1, expected True or False"),
        (1, 200, "a of mix is 200, expected an integer of type i8 from -128 to 127"),
        (2, -1, "b of mix is -1"),
        (3, 1.5, "c of mix is 1.5, expected an integer"),
        (4, "x", "d of mix is 'x', expected a number of type f64"),
        (5, 1e6, "h of mix is 1000000.0, expected a number of type f16"),
    ]:
        with pytest.raises(DTypeError, match=problem):
            mix(*(wrong if position == number else value for position, value in enumerate(good)))


def test_symbolic_extents_are_found_in_shapes():
    @hidet.script
    def row_sums(x: f32[M, N], out: f32[M]):
        for i in range(M):
            out[i] = 0.0
            for j in range(N):
                out[i] += x[i, j]

    for shape in [(2, 3), (5, 1), (0, 4)]:
        x = torch.randn(shape)
        out = torch.full(shape[:1], 7.0)
        row_sums(x, out)
        torch.testing.assert_close(out, x.sum(1))
    with pytest.raises(ShapeError, match=r"argument out of row_sums has shape \(4,\), expected \(2,\)"):
        row_sums(torch.zeros(2, 3), torch.zeros(4))


def test_extents_may_be_parameters():
    @hidet.script
    def fill(m: i32, x: f32[m, 2 * m], value: f32):  # noqa: F821  # the parameter
        for i, j in grid(m, 2 * m):
            x[i, j] = value

    x = np.zeros((2, 4), np.float32)
    fill(2, x, 3.0)
    assert (x == 3).all()
    with pytest.raises(ShapeError, match=r"argument x of fill has shape \(2, 4\), expected \(3, 6\)"):
        fill(3, x, 3.0)


def test_a_matmul_with_task_mappings_computes_what_the_interpreter_computes():
    tiles = repeat(2, 2) * spatial(2, 2)

    with hidet.script_module() as script_module:

        @hidet.script
        def relu(x: f32) -> f32:
            return x if x > 0.0 else 0.0

        @hidet.script
        def matmul(a: f32[4, 5], b: f32[5, 4], c: f32[4, 4]):
            attrs.func_kind = "cpu_kernel"
            for worker in range(tiles.num_workers):
                for i, j in tiles.on(worker):
                    total = local_tensor(f32, [1])
                    total[0] = 0.0
                    for k in range(5):
                        total[0] += a[i, k] * b[k, j]
                    c[i, j] = relu(total[0])

    module = script_module.ir_module()
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 5), np.float32), rng.standard_normal((5, 4), np.float32)
    results = [np.zeros((4, 4), np.float32) for _ in range(2)]
    script_module.build()(a, b, results[0])
    run_module(module, [a, b, results[1]])
    np.testing.assert_allclose(results[0], np.maximum(a @ b, 0), rtol=1e-5)
    np.testing.assert_allclose(results[1], np.maximum(a @ b, 0), rtol=1e-5)


def test_threads_call_one_function_at_once(add):
    def work(number):
        a = np.full(3, number, np.float32)
        for _ in range(200):
            c = np.zeros(3, np.float32)
            add(a, a, c)
            if c[0] != 2 * number:
                wrong.append(number)

    wrong = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_modules_with_equal_names_live_side_by_side():
    first, second = make_vector_addition(), make_vector_addition()
    out = np.zeros(3, np.float32)
    first(out, out, out)
    second(out, out, out)
    assert out.tolist() == [0, 0, 0]


def test_a_module_that_breaks_the_rules_is_refused():
    from hidet.ir.parser import parse_module

    module = parse_module('module(entry="main")\n\n@host\ndef main(x: ~f32):\n    x[0] = 1\n')
    with pytest.raises(VerifyError, match="host function main"):
        hidet.drivers.build_ir_module(module)


def test_threads_may_return_and_tensors_overlap():
    from hidet.lang.cuda import blockIdx, gridDim, threadIdx

    with hidet.script_module() as script_module:

        @hidet.script
        def shift(x: ~i32, y: ~i32, n: i32):
            attrs.cuda.grid_dim = (n + 7) // 8, 2
            attrs.cuda.block_dim = 8
            i = blockIdx.x * 8 + threadIdx.x
            if i >= n or blockIdx.y > 0:
                return
            y[i] = x[i] + gridDim.y

    x = np.arange(11, dtype=np.int32)
    script_module.build(target="cpu")(x, x, 11)
    assert x.tolist() == [i + 2 for i in range(11)]


def test_functions_without_a_value_are_called():
    @hidet.script
    def put(p: ~f32, n: i32):
        if n < 0:
            return
        p[n] = 5.0

    @hidet.script
    def main(p: ~f32):
        attrs.func_kind = "public"
        put(p, 1)
        put(p, -1)

    x = np.zeros(2, np.float32)
    main(x)
    assert x.tolist() == [0, 5]


def make_sums_of_tables():
    with hidet.script_module() as script_module:

        @hidet.script
        def launch(tables: ~~f32, out: f32[N], count: i32, length: i32):
            attrs.func_kind = "public"
            last: ~f32 = tables[0]
            for i in range(count):
                row = tables[i]
                out[i] = 0.0
                for j in range(length):
                    out[i] += row[j]
            own = register_tensor(~f32, [2])
            own[0] = tables[1]
            own[1] = ~out[0]
            own[1][0] += last[0]
            out[1] += own[0][length - 1]

    return script_module


def test_tables_of_pointers_are_followed_here_and_in_the_interpreter():
    rows = [np.arange(4, dtype=np.float32) + 10 * i for i in range(3)]
    addresses = np.array([row.ctypes.data for row in rows])
    expected = [6.0 + 0, 46 + 13, 86]
    out = np.zeros(3, np.float32)
    make_sums_of_tables().build()(addresses, out, 3, 4)
    assert out.tolist() == expected
    out = np.zeros(3, np.float32)
    run_module(make_sums_of_tables().ir_module(), [addresses, out, 3, 4, 3], reachable=rows)
    assert out.tolist() == expected


def test_a_module_measures_its_calls(add):
    a, b, c = np.ones(3, np.float32), np.ones(3, np.float32), np.zeros(3, np.float32)
    measured = add.profile(a, b, c, warmup=1, number=3, repeat=4)
    assert len(measured) == 4
    assert all(milliseconds > 0 for milliseconds in measured)
    assert (c == 2).all()


def test_workers_of_a_predicated_mapping_ask_whether_they_have_tasks():
    mapping, has_tasks = predicated_auto_map(3, 5, workers=32)

    with hidet.script_module() as module:

        @hidet.script
        def count(x: i32[3, 5], idle: i32[1]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            scratch = tensor(i32, [3, 5], scope=DeclareScope.Shared)
            if has_tasks(threadIdx.x):
                for i, j in mapping.on(threadIdx.x):
                    scratch[i, j] = i * 5 + j
                    x[i, j] = scratch[i, j]
            else:
                atomic_add(~idle[0], 1)

    x, idle = np.full((3, 5), -1, np.int32), np.zeros(1, np.int32)
    run_module(module.ir_module(), [x, idle])
    assert (x == np.arange(15).reshape(3, 5)).all()
    assert idle[0] == 32 - mapping.num_workers


def test_functions_take_keyword_arguments():
    @hidet.script
    def scale(x: f32[4], self: f32, out: f32[4]):
        for i in range(4):
            out[i] = x[i] * self

    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    built = scale.build()
    for call in (scale, built, built["scale"]):
        out[:] = 0
        call(x, out=out, self=2.0)
        assert out.tolist() == [0, 2, 4, 6]
        call(out=x, x=out, self=0.5)
        assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(LaunchError, match="scale takes no argument 'factor'") as error:
        scale(x, factor=2.0, out=out)
    assert error.value.hint == "known: out, self, x"
    with pytest.raises(LaunchError, match="scale got a second value for argument x"):
        scale(x, 2.0, x=x)
    with pytest.raises(LaunchError, match=r"scale takes 3 arguments \(x, self, out\), and got none for self, out"):
        scale(x=x)
    with pytest.raises(LaunchError, match=r"scale takes 3 arguments \(x, self, out\), got 2"):
        scale(x, 2.0)
    with pytest.raises(LaunchError, match=r"scale takes 3 arguments \(x, self, out\), got 4"):
        scale(x, 2.0, out, out)
    with pytest.raises(LaunchError, match=r"scale takes 3 arguments \(x, self, out\), got 5"):
        scale(x, 2.0, x, x, out=out)
