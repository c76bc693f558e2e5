"""Launch attributes that no launch can have are refused at their line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hidet
from hidet.ir.stmt import Launch
from hidet.lang import attrs, f32, i32, i64, script
from hidet.lang.cuda import threadIdx
from hidet.lang.module import module_of

n = hidet.dims.symbol("n")


def element_of_a_tensor(x: i64[4]):
    attrs.cuda.block_dim = 32
    attrs.cuda.grid_dim = x[0]


def extent_read_from_memory(x: i64[4], y: f32[4]):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 32
    attrs.cuda.dynamic_smem_bytes = 4 * x[2] + 16


def number_of_a_thread(x: i64[4]):
    attrs.cuda.block_dim = 32
    attrs.cuda.grid_dim = 1, threadIdx.x


def no_blocks():
    attrs.cuda.grid_dim = 0
    attrs.cuda.block_dim = 32


def half_a_block():
    attrs.cuda.grid_dim = 1.5
    attrs.cuda.block_dim = 32


def half_a_block_at_run_time(x: f32):
    attrs.cuda.grid_dim = 2 * x
    attrs.cuda.block_dim = 32


def blocks_as_text():
    attrs.cuda.grid_dim = "a"
    attrs.cuda.block_dim = 32


def truth_as_blocks():
    attrs.cuda.grid_dim = True
    attrs.cuda.block_dim = 32


def four_extents():
    attrs.cuda.block_dim = 32
    attrs.cuda.grid_dim = 1, 2, 3, 4


def no_extents():
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = ()


def nothing_as_block():
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = None


def negative_memory():
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 32
    attrs.cuda.dynamic_smem_bytes = -5


def several_memories():
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 32
    attrs.cuda.dynamic_smem_bytes = 16, 16


def large_cluster():
    attrs.cuda.grid_dim = 4, 4
    attrs.cuda.block_dim = 32
    attrs.cuda.cluster_dim = 4, 4


def grid_that_clusters_do_not_fill():
    attrs.cuda.cluster_dim = 1, 2
    attrs.cuda.grid_dim = 8, 3
    attrs.cuda.block_dim = 32


def many_blocks():
    attrs.cuda.grid_dim = 2**31
    attrs.cuda.block_dim = 32


def many_rows_of_blocks():
    attrs.cuda.grid_dim = 1, 65535, 65536
    attrs.cuda.block_dim = 32


def deep_block():
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 1, 1, 128


def in_a_branch(k: i32):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 32
    if k > 1:
        attrs.cuda.min_blocks = 2


def truth_as_number_of_blocks():
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 32
    attrs.cuda.min_blocks = True


@pytest.mark.parametrize(
    ("function", "problem", "line", "hint"),
    [
        (
            element_of_a_tensor,
            "launch attributes are computed on the host from parameters, but mention x[0]",
            2,
            "pass",
        ),
        (extent_read_from_memory, "from parameters, but mention x[2]", 3, "pass"),
        (number_of_a_thread, "from parameters, but mention gpu.thread_idx.x", 2, "pass"),
        (no_blocks, "cuda.grid_dim takes positive integers, got 0", 1, None),
        (half_a_block, "cuda.grid_dim takes positive integers, got 1.5 of type float", 1, None),
        (half_a_block_at_run_time, "cuda.grid_dim takes positive integers, got a value of type f32", 1, None),
        (blocks_as_text, "cuda.grid_dim takes positive integers, got 'a' of type str", 1, None),
        (truth_as_blocks, "cuda.grid_dim takes positive integers, got True of type bool", 1, None),
        (four_extents, "cuda.grid_dim has 4 extents, expected 1 to 3: x, y, z", 2, None),
        (no_extents, "cuda.block_dim has 0 extents, expected 1 to 3: x, y, z", 2, None),
        (nothing_as_block, "cuda.block_dim takes positive integers, got None", 2, None),
        (negative_memory, "cuda.dynamic_smem_bytes takes an integer from 0 on, got -5", 3, None),
        (several_memories, "cuda.dynamic_smem_bytes takes an integer from 0 on, got (16, 16)", 3, None),
        (large_cluster, "cuda.cluster_dim asks for 16 blocks, a cluster has at most 8", 3, "smaller clusters"),
        (grid_that_clusters_do_not_fill, "cuda.grid_dim has 3 blocks along y, no multiple of the 2 of a", 2, "round"),
        (many_blocks, "cuda.grid_dim has 2147483648 along x, at most 2147483647 are possible", 1, None),
        (many_rows_of_blocks, "cuda.grid_dim has 65536 along z, at most 65535 are possible", 1, None),
        (deep_block, "cuda.block_dim has 128 along z, at most 64 are possible", 2, None),
        (in_a_branch, "attribute cuda.min_blocks is set where the program branches", 4, "before"),
        (truth_as_number_of_blocks, "cuda.min_blocks must be a positive integer, got True", 3, None),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_what_no_launch_can_have_is_refused_at_its_line(refused, function, problem, line, hint):
    refused(function, problem, line, 9 if function is in_a_branch else 5, hint)


def test_launches_of_a_lone_kernel_stand_where_it_asks_for_shared_memory():
    @script
    def kernel(x: f32[n]):
        attrs.cuda.grid_dim = n, n
        attrs.cuda.block_dim = 32
        attrs.cuda.cluster_dim = 2, 4
        attrs.cuda.dynamic_smem_bytes = 4 * n

    (launcher,) = [function for function in module_of([kernel]).functions if function.kind == "host"]
    assert isinstance(launcher.body, Launch)
    assert launcher.body.loc is not None
    assert launcher.body.loc.file == __file__
    assert "dynamic_smem_bytes" in launcher.body.loc.render()


def neutral_names():
    attrs.gpu.grid_dim = 3, 2
    attrs.gpu.block_dim = 64
    attrs.gpu.dynamic_smem_bytes = 256


def names_of_one_vendor():
    attrs.cuda.grid_dim = 3, 2
    attrs.cuda.block_dim = 64
    attrs.cuda.dynamic_smem_bytes = 256


def test_kernels_for_any_gpu_say_by_neutral_names_how_they_are_launched() -> None:
    def launched(function: Callable[[], None]) -> list[str]:
        (host,) = [other for other in module_of([script(function)]).functions if other.kind == "host"]
        assert isinstance(host.body, Launch)
        return [str(part) for part in (host.body.grid, host.body.block, host.body.shared_bytes)]

    assert launched(neutral_names) == launched(names_of_one_vendor)
