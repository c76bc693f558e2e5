"""What goes wrong on a device, and the one exception that says so."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.cuda import driver as driver_module
from hidet.cuda.driver import load_driver, started
from hidet.cuda.failures import AskedLaunch, launch_hint
from hidet.cuda.intrinsics import INTRINSICS
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import CONTEXT, FakeDriver
from hidet.errors import CodegenError, DeviceLost, LaunchError
from hidet.ir.parser import parse_module
from hidet.target import CompileJob

SCRIPT = """
module(entry="main")

@kernel
def k(x: ~f32):
    i, j = grid()
    x[i] = 0.0

@host
def main(x: ~f32):
    launch("k", [{grid}, 1], [x], block=[{threads}], shared_bytes={shared})
"""


def script(fake: FakeDriver, name: str = "k", grid: int = 2, threads: int = 64, shared: int = 0) -> Any:
    """A host function that launches one kernel."""
    text = SCRIPT.format(grid=grid, threads=threads, shared=shared)
    target = CudaTarget("sm_80")
    module = parse_module(
        textwrap.dedent(text).replace('"k"', f'"{name}"').replace("def k(", f"def {name}("), INTRINSICS
    )
    (binary,) = target.compile([CompileJob("job", module)])
    return target.load([binary]).function("main", None)


# --- launches ------------------------------------------------------------------------------------------------------


def test_a_refused_launch_error_states_what_was_asked_for(fake: FakeDriver) -> None:
    run = script(fake, grid=3, threads=2048, shared=100)
    fake.refuse = 1
    with pytest.raises(LaunchError) as caught:
        run(4096, 0)
    text = str(caught.value)
    assert "launching kernel k with grid (3, 1, 1), block (2048, 1, 1) and 100 bytes of shared memory" in text
    assert "a block has at most 1024 threads" in text
    fake.refuse = 0
    run(4096, 0)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (AskedLaunch("k", (1, 1, 1), (8, 8, 128), 0), "64 of them along z"),
        (AskedLaunch("k", (1, 1, 1), (0, 1, 1), 0), "at least one thread"),
        (AskedLaunch("k", (1, 70000, 1), (32, 1, 1), 0), "extents of a grid are from 1 to"),
        (AskedLaunch("k", (1, 1, 1), (32, 1, 1), 200_000), "at most 166912 bytes of shared memory"),
        (AskedLaunch("k", (1, 1, 1), (1024, 1, 1), 0, registers=128), "1024 threads of 128 registers are more"),
    ],
)
def test_numbers_that_cannot_work_are_explained(asked: AskedLaunch, reason: str) -> None:
    hint = launch_hint(asked, 166912)
    assert hint is not None
    assert reason in hint


def test_numbers_that_work_are_not_blamed() -> None:
    assert launch_hint(AskedLaunch("k", (1, 2, 3), (1024, 1, 1), 1000, registers=64), 166912) is None


# --- devices that are lost -----------------------------------------------------------------------------------------


def test_a_kernel_that_failed_is_named_by_the_next_call_and_by_all_later_ones(fake: FakeDriver) -> None:
    bad, good = script(fake, "bad"), script(fake, "good")
    bad(4096, 0)
    fake.refuse = 700
    for _ in range(2):
        with pytest.raises(DeviceLost, match="failed in kernel bad; noticed while launching kernel good"):
            good(4096, 0)


def test_a_kernel_that_failed_is_named_by_who_waits_for_it(fake: FakeDriver) -> None:
    script(fake, "bad")(4096, 0)
    fake.refused["cuCtxSynchronize"] = 700
    with pytest.raises(DeviceLost, match=r"failed in kernel bad; noticed while waiting for cuda:0"):
        hidet.cuda.synchronize()


def test_of_several_kernels_the_last_ones_are_named(fake: FakeDriver) -> None:
    for name in ("first", "second"):
        script(fake, name)(4096, 0)
    fake.refused["cuCtxSynchronize"] = 719
    with pytest.raises(DeviceLost, match="one of those launched last: kernel second, kernel first"):
        hidet.cuda.synchronize()


def test_kernels_that_are_known_to_be_done_are_not_named(fake: FakeDriver) -> None:
    script(fake, "fine")(4096, 0)
    hidet.cuda.synchronize()
    script(fake, "bad")(4096, 0)
    fake.refused["cuCtxSynchronize"] = 700
    with pytest.raises(DeviceLost, match="failed in kernel bad;"):
        hidet.cuda.synchronize()


def test_launches_that_wait_name_the_kernel_itself(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    script(fake, "fine")(4096, 0)
    bad = script(fake, "bad")
    fake.refuse = 700
    with pytest.raises(DeviceLost, match="failed in kernel bad;"):
        bad(4096, 0)


def test_memory_of_a_lost_device_is_asked_for_in_vain_and_freed_without_a_word(fake: FakeDriver) -> None:
    array = hidet.cuda.empty(8)
    fake.refused.update({"cuMemAllocFromPoolAsync": 700, "cuMemFreeAsync": 700})
    with pytest.raises(DeviceLost):
        hidet.cuda.empty(8)
    del array


def test_a_device_that_cannot_be_made_current_ends_the_call(fake: FakeDriver) -> None:
    run = script(fake)
    fake.context = CONTEXT + 1
    fake.refused["cuCtxPushCurrent_v2"] = 201
    with pytest.raises(LaunchError, match="making cuda:0 current"):
        run(4096, 0)
    assert fake.launches == []


# --- machines without what is needed -------------------------------------------------------------------------------


def test_without_a_driver_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_LIBRARIES", ("libnone.so",))
    load_driver.cache_clear()
    with pytest.raises(LaunchError, match="no CUDA driver was found") as caught:
        load_driver()
    assert "compile for target 'cpu'" in str(caught.value)


def test_an_old_driver_error_states_the_version_needed() -> None:
    with pytest.raises(LaunchError, match=r"supports CUDA 12.4, expected 13.0 or newer"):
        started(FakeDriver(version=12040).driver())


def test_a_driver_without_devices_is_an_error() -> None:
    with pytest.raises(LaunchError, match="finds no device"):
        started(FakeDriver(devices=0).driver())
    with pytest.raises(LaunchError, match="is CUDA_VISIBLE_DEVICES empty"):
        started(FakeDriver(refused={"cuInit": 100}).driver())


def test_a_function_that_the_driver_lacks_is_an_error() -> None:
    class Old(FakeDriver):
        def function(self, name: str) -> Any:
            if name == "cuDriverGetVersion":
                raise AttributeError(name)
            return super().function(name)

    with pytest.raises(LaunchError, match="the CUDA driver has no function cuDriverGetVersion"):
        started(Old().driver())


GREEDY = """
module(entry="main")

@kernel
def greedy(x: ~f32):
    i, j = grid()
    tile: f32[{elements}] @ shared
    tile[i] = x[i]
    x[i] = tile[31 - i]

@host
def main(x: ~f32):
    launch("greedy", [1, 1], [x], block=[32]{options})
"""


def greedy(elements: int, options: str = "") -> CompileJob:
    text = textwrap.dedent(GREEDY).replace("{elements}", str(elements)).replace("{options}", options)
    return CompileJob("job", parse_module(text, INTRINSICS))


@pytest.mark.parametrize(("arch", "limit"), [("sm_80", 166912), ("sm_89", 101376), ("sm_90a", 232448)])
def test_shared_memory_that_no_block_of_the_architecture_can_have_is_refused_when_it_is_compiled(
    arch: str, limit: int
) -> None:
    target = CudaTarget(arch)
    declared = f"kernel greedy declares 240640 bytes of shared memory; a block of {arch} has at most {limit}"
    with pytest.raises(CodegenError, match=declared):
        target.compile([greedy(60000)])
    asked = (
        f"kernel greedy is launched with {limit - 127} bytes of dynamic shared memory and declares 128 of its own; "
        f"a block of {arch} has at most {limit}"
    )
    with pytest.raises(CodegenError, match=asked):
        target.compile([greedy(32, f", shared_bytes={limit - 127}")])
    target.compile([greedy(32, f", shared_bytes={limit - 128}")])


def test_the_place_of_shared_memory_beyond_the_limit_is_the_scripts() -> None:
    from hidet.lang import attrs, f32, shared_tensor
    from hidet.lang.cuda import threadIdx

    @hidet.script
    def declares(x: f32[32]):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 32
        tile = shared_tensor("float32", [60000])
        tile[threadIdx.x] = x[threadIdx.x]
        x[threadIdx.x] = tile[threadIdx.x]

    @hidet.script
    def asks(x: f32[32]):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 32
        attrs.cuda.dynamic_smem_bytes = 200000
        x[threadIdx.x] = 0.0

    with pytest.raises(CodegenError, match=r"declares 240640 bytes[\s\S]*tile = shared_tensor\("):
        declares.build("cuda:sm_80")
    with pytest.raises(CodegenError, match="asks is launched with 200000 bytes of dynamic shared memory; a block"):
        asks.build("cuda:sm_80")


def test_shared_memory_that_the_device_does_not_have_is_refused_when_code_is_loaded(fake: FakeDriver) -> None:
    (binary,) = CudaTarget("sm_90a").compile([greedy(50000)])
    with pytest.raises(LaunchError, match="kernel greedy needs 200704 bytes of shared memory, this device has 166912"):
        CudaTarget("sm_80").load([binary])


# --- arguments of scripts ------------------------------------------------------------------------------------------


def doubling() -> Any:
    from hidet.lang import attrs, f32
    from hidet.lang.cuda import blockIdx

    @hidet.script
    def twice(x: f32[4, 3]):
        attrs.cuda.grid_dim = 4
        attrs.cuda.block_dim = 1
        for k in range(3):
            x[blockIdx.x, k] = x[blockIdx.x, k] * 2.0

    return twice


def test_each_wrong_argument_of_a_kernel_has_its_own_words(fake: FakeDriver) -> None:
    double = doubling()
    array = hidet.cuda.zeros((4, 3))
    double(array)
    with pytest.raises(LaunchError, match="argument x of launch is on cpu, expected a tensor on cuda:0"):
        double(np.zeros((4, 3), np.float32))
    with pytest.raises(hidet.errors.DTypeError, match="has dtype float16, expected float32"):
        double(hidet.cuda.zeros((4, 3), "float16"))
    with pytest.raises(hidet.errors.ShapeError, match=r"has shape \(3, 4\), expected \(4, 3\)"):
        double(hidet.cuda.zeros((3, 4)))
    flipped = hidet.cuda.DeviceArray(array.on, array.address, (4, 3), (1, 4), array.dtype, array)
    with pytest.raises(LaunchError, match=r"has strides \(1, 4\) for shape \(4, 3\), expected a contiguous"):
        double(flipped)
    locked = hidet.cuda.DeviceArray(array.on, array.address, (4, 3), (3, 1), array.dtype, array, is_writable=False)
    with pytest.raises(LaunchError, match="is written, but must not be changed"):
        double(locked)
    double(array)
    assert len(fake.launches) == 2


def test_a_cooperative_launch_of_too_many_blocks_is_refused_and_later_calls_work(fake: FakeDriver) -> None:
    run = script(fake)
    fake.refuse = 720
    with pytest.raises(LaunchError, match="launching kernel k with grid") as caught:
        run(4096, 0)
    assert "run at the same time" in str(caught.value)
    fake.refuse = 0
    run(4096, 0)
