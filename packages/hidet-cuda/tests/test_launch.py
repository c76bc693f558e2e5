"""From a graph to launches: what the driver is asked for, in which stream, and what happens when it refuses."""

from __future__ import annotations

import ctypes
import textwrap
from typing import Any

import numpy as np
import pytest

import hidet
from hidet.cache import open_cache
from hidet.compiler.graphs import compile_graph
from hidet.context import CompileContext, Options
from hidet.cuda.container import CompiledModule, KernelRecord, pack, unpack
from hidet.cuda.intrinsics import INTRINSICS
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import CONTEXT, FakeDriver, Launch
from hidet.errors import ArtifactError, CodegenError, DeviceLost, FallbackWarning, LaunchError, OptionError
from hidet.gpu.passes.block_launches import block_launches
from hidet.graph.parser import parse_graph
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.lang import attrs, f32, i32
from hidet.lang.cuda import threadIdx
from hidet.plugins.host import load_registry
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.compiled import CompiledGraph
from hidet.target import CompileJob

pytestmark = pytest.mark.filterwarnings(f"ignore::{FallbackWarning.__module__}.{FallbackWarning.__name__}")


class StreamAdapter(NumpyAdapter):
    """Arrays that stand for memory of a device, used in stream 5."""

    is_host = False

    def stream(self) -> int:
        return 5


def target(fake: FakeDriver, architecture: str = "sm_80") -> CudaTarget:
    made = CudaTarget(architecture)
    made.__dict__["memory"] = fake.memory()
    return made


def compiled(fake: FakeDriver, text: str) -> CompiledGraph:
    registry = load_registry()
    options = Options(cache=False, verify=True)
    ctx = CompileContext(target=target(fake), registry=registry, options=options, cache=open_cache(enabled=False))
    return compile_graph(parse_graph(textwrap.dedent(text), registry.operators), ctx)


RELU = """
graph g(%x: f32[1000, 3]):
  %0: f32[1000, 3] = relu(%x)
  return %0
"""


def test_a_task_is_launched_with_its_tensors_in_the_callers_stream() -> None:
    seen: list[list[int]] = []
    fake = FakeDriver(on_launch=lambda launch: seen.append([launch.word(0), launch.word(1)]))
    graph = compiled(fake, RELU)
    x = np.zeros((1000, 3), np.float32)
    (result,) = graph.run([x], StreamAdapter())
    (launch,) = fake.launches
    assert launch.stream == 5
    assert launch.grid[0] * launch.block[0] >= 1000 * 3 // 16
    assert seen == [[x.ctypes.data, result.ctypes.data]]


def test_a_refused_launch_names_its_kernel_and_nothing_is_launched_after_it() -> None:
    fake = FakeDriver(refuse=1)
    graph = compiled(
        fake,
        """
        graph g(%x: f32[4, 8]):
          %0: f32[4, 8] = softmax(%x, axis=-1)
          %1: f32[4, 8] = cumsum(%0, axis=1)
          return %1
        """,
    )
    with pytest.raises(LaunchError, match="launching kernel softmax_"):
        graph.run([np.zeros((4, 8), np.float32)], StreamAdapter())
    assert len(fake.launches) == 1
    fake.refuse = 0
    graph.run([np.zeros((4, 8), np.float32)], StreamAdapter())


def test_after_an_illegal_access_the_device_is_lost() -> None:
    graph = compiled(FakeDriver(refuse=700), RELU)
    with pytest.raises(DeviceLost, match="kernel relu"):
        graph.run([np.zeros((1000, 3), np.float32)], StreamAdapter())


def test_a_call_from_a_thread_of_another_device_uses_the_graphs_own() -> None:
    fake = FakeDriver()
    graph = compiled(fake, RELU)
    contexts: list[int] = []
    fake.on_launch = lambda launch: contexts.append(fake.context)
    fake.context = 0
    graph.run([np.zeros((1000, 3), np.float32)], StreamAdapter())
    assert contexts == [0x1000]
    assert fake.context == 0


def test_an_empty_tensor_launches_nothing() -> None:
    fake = FakeDriver()
    graph = compiled(
        fake,
        """
        symbol n: 0..100
        graph g(%x: f32[n]):
          %0: f32[n] = relu(%x)
          return %0
        """,
    )
    graph.run([np.zeros(0, np.float32)], StreamAdapter())
    assert fake.launches == []


SCRIPT = """
module(entry="main")

@kernel
def k(x: ~f32, half: f16, count: i32, flag: bool):
    i = grid()
    tile: f32[16384] @ shared
    tile[i] = x[i]
    x[i] = tile[i]

@host
def main(x: ~f32):
    launch("k", [2, 3], [x, f16(1.5), i32(-7), True], block=[64, 2], {options})
"""


def launch_script(options: str, architecture: str = "sm_80") -> tuple[FakeDriver, list[Any]]:
    """Run a host function of one pointer, with the arguments of the launch as the driver saw them."""
    seen: list[Any] = []

    def look(launch: Launch) -> None:
        pointers = (ctypes.c_uint64 * 4).from_address(launch.pointers)
        kinds = (ctypes.c_int64, ctypes.c_uint16, ctypes.c_int32, ctypes.c_bool)
        seen.extend(kind.from_address(place).value for kind, place in zip(kinds, pointers, strict=True))

    fake = FakeDriver(on_launch=look)
    made = target(fake, architecture)
    module = parse_module(SCRIPT.replace(", {options}", options).replace("i = grid()", "i, j = grid()"), INTRINSICS)
    (binary,) = made.compile([CompileJob("job", module)])
    code = made.load([binary])
    code.function("main", None)(4096, 9)
    return fake, seen


def test_scalars_reach_a_kernel_with_their_bits() -> None:
    fake, seen = launch_script("")
    assert seen == [4096, 0x3E00, -7, True]
    (launch,) = fake.launches
    assert (launch.grid, launch.block, launch.stream) == ((2, 3, 1), (64, 2, 1), 9)


def test_shared_memory_beyond_what_may_be_declared_is_asked_for() -> None:
    fake, _ = launch_script(", shared_bytes=100")
    (launch,) = fake.launches
    assert launch.shared == 65536 + 100
    # Only the launch knows how much: the kernel may ask for all there is.
    assert fake.allowed_shared == {"k": 166912}


def test_shared_memory_that_a_kernel_declares_is_allowed() -> None:
    fake, _ = launch_script("")
    assert fake.allowed_shared == {"k": 65536}


def test_a_cluster_is_an_attribute_of_the_launch() -> None:
    fake, _ = launch_script(", cluster=[2]", "sm_90a")
    (launch,) = fake.launches
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((2, 3, 1), (64, 2, 1), 65536, 9)


def test_clusters_are_refused_where_the_architecture_has_none() -> None:
    with pytest.raises(CodegenError, match=r"kernel k is launched in clusters of blocks, which need sm_90; .* sm_80"):
        launch_script(", cluster=[2]", "sm_80")


def test_a_launch_over_a_grid_alone_becomes_one_index_a_thread() -> None:
    module = parse_module(
        textwrap.dedent(
            """
            module(entry="main")

            @kernel
            def k(x: ~f32, n: i64):
                i, j = grid()
                x[i * n + j] = 0.0

            @host
            def main(x: ~f32, m: i64, n: i64):
                launch("k", [m, n], [x, n])
            """
        ),
        INTRINSICS,
    )
    text = print_module(block_launches(module))
    assert 'launch("k", [(m * n + 127) // 128], [x, n, m, n], block=[128])' in text
    assert "if item < extent0 * extent1:" in text
    assert block_launches(parse_module(text, INTRINSICS)) is not None


def test_packed_code_survives_and_damage_is_noticed() -> None:
    module = CompiledModule(b"host", (b"one", b"second"), (KernelRecord("k", "k", 1, 0, 32, 0),))
    data = pack(module)
    assert unpack(data) == module
    with pytest.raises(ArtifactError, match="no code of the CUDA target"):
        unpack(data[:-1])
    with pytest.raises(ArtifactError, match="kernel k is in none of 1 cubins"):
        unpack(pack(CompiledModule(b"host", (b"one",), module.kernels)))


def test_an_architecture_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="sm_75 is not supported"):
        CudaTarget("sm_75")
    with pytest.raises(OptionError, match="'gfx90a' is no CUDA architecture"):
        CudaTarget("gfx90a")


@pytest.mark.parametrize(
    ("name", "nearest"), [("sm_93", "sm_90a"), ("sm_80a", "sm_80"), ("sm_90f", "sm_90a"), ("sm_85", "sm_86")]
)
def test_an_architecture_that_the_compiler_does_not_know_is_refused_with_those_it_knows(
    name: str, nearest: str
) -> None:
    with pytest.raises(
        OptionError, match=f"{name} is no CUDA architecture .* which are sm_80, .*sm_89, sm_90, sm_90a"
    ) as error:
        added(f"cuda:{name}")
    assert error.value.hint.startswith(f"the nearest is {nearest};")


# --- several devices -------------------------------------------------------------------------------------------------


def added(target: str = "auto") -> Any:
    """A module of a kernel that takes two tensors and a number."""
    with hidet.script_module() as module:

        @hidet.script
        def add(x: f32[4], y: f32[4], factor: f32):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            y[threadIdx.x] += factor * x[threadIdx.x]

    return module.build(target)


def test_a_kernel_runs_on_the_device_of_its_tensors(fake: FakeDriver) -> None:
    contexts: list[int] = []
    fake.on_launch = lambda launch: contexts.append(fake.context)
    add = added()
    pairs = [[hidet.cuda.zeros(4, device=device) for _ in range(2)] for device in (0, 1)]
    for device in (0, 1, 1, 0, 1):
        add(*pairs[device], 2.0)
    assert contexts == [CONTEXT, CONTEXT + 1, CONTEXT + 1, CONTEXT, CONTEXT + 1]
    assert fake.kernels == ["add", "add"], "each device loads the kernel once"


def test_tensors_of_several_devices_are_no_arguments_of_one_call(fake: FakeDriver) -> None:
    here, there = hidet.cuda.zeros(4), hidet.cuda.zeros(4, device=1)
    with pytest.raises(LaunchError, match="argument y of launch is on cuda:1, expected a tensor on cuda:0"):
        added()(here, there, 1.0)


def test_a_module_for_one_device_stays_there(fake: FakeDriver) -> None:
    there = hidet.cuda.zeros(4, device=1)
    with pytest.raises(LaunchError, match="argument x of launch is on cuda:1, expected a tensor on cuda:0"):
        added("cuda:0")(there, there, 1.0)
    added("cuda:1")(there, there, 1.0)
    assert len(fake.launches) == 1


# --- host functions that fail ----------------------------------------------------------------------------------------


def test_an_assertion_of_host_code_ends_the_call_and_leaves_the_callers_device_current(fake: FakeDriver) -> None:
    with hidet.script_module() as module:

        @hidet.script
        def fill(x: f32[4]):
            attrs.cuda.grid_dim = 1
            attrs.cuda.block_dim = 4
            x[threadIdx.x] = 1.0

        @hidet.script
        def launch(x: f32[4], times: i32):
            attrs.func_kind = "public"
            assert times > 0, "nothing to fill"
            fill(x)

    function = module.build("cuda")
    x = hidet.cuda.zeros(4)
    fake.context = 0
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"^in launch: assertion failed: nothing to fill\n  at .*test_launch\.py"):
            function(x, 0)
        assert (fake.launches, fake.context) == ([], 0)
    function(x, 1)
    assert [launch.kernel for launch in fake.launches] == ["fill"]
    assert fake.context == 0
