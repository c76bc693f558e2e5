"""Tensor maps that scripts make: what host functions say about tensors, and what TMA cannot do."""

import numpy as np
import pytest

import hidet
from hidet.errors import ScriptError
from hidet.ir.interpret import run_module
from hidet.lang import attrs, f32, i32, shared_tensor, u64
from hidet.lang.cuda import (
    TensorMap,
    barrier_arrive_expect,
    barrier_init,
    barrier_wait,
    fence_barrier_init,
    mma,
    prefetch_tensor_map,
    tensor_load,
    tensor_map,
    tensor_map_im2col,
    threadIdx,
)

M, N = hidet.dims.symbol("m"), hidet.dims.symbol("n")


def test_a_box_of_a_tensor_of_any_size_is_brought_with_zeros_outside():
    with hidet.script_module() as module:

        @hidet.script
        def corner(source: TensorMap, column: i32, row: i32, out: f32[4, 8]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 32
            box = shared_tensor(f32, [4, 8])
            arrived = shared_tensor(u64, [1])
            if threadIdx.x == 0:
                barrier_init(~arrived[0], 1)
                fence_barrier_init()
                barrier_arrive_expect(~arrived[0], 4 * 8 * 4)
                tensor_load(~box[0, 0], source, ~arrived[0], column, row)
                barrier_wait(~arrived[0], 0)
                for i, j in hidet.lang.grid(4, 8):
                    out[i, j] = box[i, j]

        @hidet.script
        def launch(x: f32[M, N], column: i32, row: i32, out: f32[4, 8]):
            attrs.func_kind = "public"
            corner(tensor_map(x, box=[4, 8]), column, row, out)

    x, out = np.arange(60, dtype=np.float32).reshape(5, 12), np.full((4, 8), np.nan, np.float32)
    run_module(module.ir_module(), [x, 8, 3, out, 5, 12])
    expected = np.zeros((4, 8), np.float32)
    expected[:2, :4] = x[3:, 8:]
    assert (out == expected).all()


def looking():
    """A kernel that only looks at its tensor map."""

    @hidet.script
    def look(source: TensorMap):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 1
        prefetch_tensor_map(source)

    return look


def prefetched(*, box, swizzle=16, kind=f32[16, 32], first=0):
    """A module whose host function makes a tensor map of the columns of its tensor from the `first` on."""
    with hidet.script_module() as module:
        look = looking()

        @hidet.script
        def launch(x: kind):
            attrs.func_kind = "public"
            look(tensor_map(x[:, first:] if first else x, box=box, swizzle=swizzle))

    return module.ir_module()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"box": [8]}, "a tensor of 2 dims and a box of 1"),
        ({"box": [8, 3]}, "a row of the box has 12 bytes, expected a multiple of 16\n"),
        ({"box": [8, 32], "swizzle": 64}, "a row of the box has 128 bytes, expected a multiple of 16 and at most 64"),
        ({"box": [8, 32], "swizzle": 48}, "swizzle is 48, expected one of 16, 32, 64, 128 bytes"),
        ({"box": [257, 4]}, "numbers from 1 to 256, got 257"),
        ({"box": [8, 4], "kind": f32[16, 33]}, "neighbours along a dim lie 132 bytes apart, expected a multiple of 16"),
        ({"box": [8, 4], "first": 4}, "takes a row-major tensor"),
        ({"box": [8, 4], "kind": ~f32}, "takes a tensor of numbers"),
    ],
)
def test_what_tma_cannot_do_is_refused_where_it_is_written(options, problem):
    with pytest.raises(ScriptError, match=problem) as caught:
        prefetched(**options)
    assert "look(tensor_map(" in str(caught.value)


def columns(kind=f32[2, 9, 8, 16], channels=8, pixels=32, lower=(-1, -1), upper=(-1, -1), steps=None, swizzle=16):
    """A module whose host function makes a tensor map of columns of pixels."""
    with hidet.script_module() as module:
        look = looking()

        @hidet.script
        def launch(x: kind):
            attrs.func_kind = "public"
            look(tensor_map_im2col(x, channels, pixels, lower, upper, steps, swizzle))

    return module.ir_module()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": f32[9, 8]}, "a tensor of 2 dims, expected images"),
        ({"kind": ~f32}, "tensor_map_im2col takes a tensor of numbers"),
        ({"kind": f32[2, 9, 8, 6]}, "neighbours along a dim lie 24 bytes apart"),
        ({"channels": 6}, "a row of the pixels has 24 bytes, expected a multiple of 16"),
        ({"channels": 260}, "channels of a pixel are numbers from 1 to 256, got 260"),
        ({"pixels": 1025}, "pixels of a copy are numbers from 1 to 1024, got 1025"),
        ({"lower": (-1,)}, "lower has 1 numbers, expected one for each of 2 spatial dims"),
        ({"upper": (-129, 0)}, "upper of 2 spatial dims are numbers from -128 to 127, got -129"),
        ({"steps": (1, 9)}, "steps of 2 spatial dims are numbers from 1 to 8, got 9"),
        ({"channels": 16, "swizzle": 32}, "64 bytes, expected a multiple of 16 and at most 32, the swizzle"),
    ],
)
def test_what_no_copy_of_columns_can_do_is_refused_where_it_is_written(options, problem):
    with pytest.raises(ScriptError, match=problem) as caught:
        columns(**options)
    assert "look(tensor_map_im2col(" in str(caught.value)


def test_python_makes_no_tensor_maps():
    look = looking()
    with pytest.raises(ScriptError, match="look takes a tensor map, source, which only functions of the host make"):
        look.build("cuda:sm_90a")

    with pytest.raises(ScriptError, match="argument source of look is no tensor map"):

        @hidet.script
        def launch(x: u64[16]):
            look(x)


def test_operations_of_one_name_are_distinguished_by_the_number_of_coordinates():
    with pytest.raises(ScriptError, match=r"cuda.tensor_load got 1 arguments, expected 4 \(target, map,.*\) to 8"):

        @hidet.script
        def too_few(source: TensorMap):
            tensor_load(source)

    with pytest.raises(ScriptError, match=r"cuda\.mma is several operations"):

        @hidet.script
        def which(x: f32[4]):
            mma(x)
