"""The CUDA run time on a GPU: explicit compilation, streams, sharing, failures. Run by `pytest -m gpu`."""

from __future__ import annotations

import copy
import gc
import os
import re
import runpy
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import hidet
from hidet.errors import DeviceOutOfMemory, DTypeError, LaunchError, ShapeError
from hidet.lang import attrs, f32
from hidet.lang.cuda import blockIdx, dynamic_shared_memory, syncthreads, threadIdx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

N = hidet.dims.symbol("n")


def add_one():
    @hidet.script
    def increment(x: f32[N]):
        attrs.cuda.grid_dim = N
        attrs.cuda.block_dim = 1
        x[blockIdx.x] += 1.0

    return increment


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 32)

    def forward(self, x):
        return torch.relu(self.linear(x)).softmax(-1)


@pytest.fixture(scope="module")
def layer():
    model = Layer().eval()
    return model, hidet.compile(copy.deepcopy(model).cuda(), [torch.zeros(8, 64, device="cuda")], target="cuda")


def reference(model, x):
    with torch.no_grad():
        return copy.deepcopy(model).double()(torch.as_tensor(x).double().cpu()).numpy()


def test_a_recorded_call_is_the_call_again_on_the_same_memory(layer):
    model, compiled = layer
    x = torch.randn(8, 64, device="cuda")
    compiled(x)
    call = compiled.record([x])
    x.copy_(torch.randn(8, 64))
    call.launch(0)
    torch.cuda.synchronize()
    results = call.held[1]
    np.testing.assert_allclose(results[0].cpu().numpy(), reference(model, x.cpu()), rtol=1e-5, atol=1e-6)
    assert compiled.record([x.cpu().numpy()]) is None


def test_a_model_takes_numpy_arrays_and_gives_them(layer):
    model, compiled = layer
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    result = compiled(x)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, reference(model, x), rtol=1e-5, atol=1e-6)


def test_a_model_takes_torch_tensors_of_the_device_and_gives_them(layer):
    model, compiled = layer
    x = torch.randn(8, 64, device="cuda")
    result = compiled(x)
    assert result.device == x.device
    np.testing.assert_allclose(result.cpu().numpy(), reference(model, x), rtol=1e-5, atol=1e-6)
    flipped = torch.randn(64, 8, device="cuda").T
    np.testing.assert_allclose(compiled(flipped).cpu().numpy(), reference(model, flipped), rtol=1e-5, atol=1e-6)


def test_a_model_takes_arrays_of_hidet_in_their_stream(layer):
    model, compiled = layer
    x = np.random.default_rng(2).standard_normal((8, 64)).astype(np.float32)
    stream = hidet.cuda.Stream()
    with hidet.cuda.stream(stream):
        results = [compiled(hidet.cuda.asarray(x)) for _ in range(20)]
        for result in results:
            np.testing.assert_allclose(result.numpy(), reference(model, x), rtol=1e-5, atol=1e-6)


def test_a_model_refuses_what_does_not_fit_and_goes_on(layer):
    _, compiled = layer
    with pytest.raises(LaunchError, match="is on cpu, expected a tensor on cuda:0"):
        compiled(torch.zeros(8, 64))
    with pytest.raises(DTypeError, match="is float16, expected float32"):
        compiled(torch.zeros(8, 64, device="cuda", dtype=torch.float16))
    with pytest.raises(ShapeError, match="has shape"):
        compiled(torch.zeros(8, 65, device="cuda"))
    assert compiled(torch.zeros(8, 64, device="cuda")).shape == (8, 32)


def test_a_saved_model_is_loaded_and_takes_numpy_arrays(layer, tmp_path):
    model, compiled = layer
    compiled.save(tmp_path / "layer.hidet")
    loaded = hidet.load(tmp_path / "layer.hidet")
    x = np.random.default_rng(4).standard_normal((8, 64)).astype(np.float32)
    np.testing.assert_allclose(loaded(x), reference(model, x), rtol=1e-5, atol=1e-6)


def test_an_onnx_model_takes_numpy_arrays():
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("hidet.onnx")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(5)
    weight = rng.standard_normal((16, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Softmax", ["y"], ["z"])]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w]) for n, w in (("x", 16), ("z", 8))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(model)
    compiled = hidet.compile(model, target="cuda")
    for rows in (3, 7):
        x = rng.standard_normal((rows, 16)).astype(np.float32)
        y = np.exp(x.astype(np.float64) @ weight)
        np.testing.assert_allclose(compiled(x), y / y.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_memory_is_shared_with_torch_both_ways():
    theirs = torch.arange(6, device="cuda", dtype=torch.float32).reshape(2, 3)
    ours = hidet.cuda.asarray(theirs)
    assert ours.data_ptr() == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    back += 1
    torch.cuda.synchronize()
    assert ours.numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    bf16 = torch.from_dlpack(hidet.cuda.zeros((2, 2), "bfloat16"))
    assert bf16.dtype == torch.bfloat16
    interface = torch.as_tensor(hidet.cuda.asarray(np.float32([1, 2])), device="cuda")
    assert interface.tolist() == [1, 2]


def test_memory_that_torch_took_outlives_the_array():
    kept = torch.from_dlpack(hidet.cuda.asarray(np.full(1000, 7, np.float32)))
    gc.collect()
    others = [hidet.cuda.zeros(1000) for _ in range(10)]
    assert (kept == 7).all()
    del others


def test_a_kernel_takes_hidets_arrays_in_the_current_stream():
    increment = add_one()
    x = hidet.cuda.zeros(1000)
    with hidet.cuda.stream(hidet.cuda.default_stream()):
        for _ in range(3):
            increment(x)
    assert (x.numpy() == 3).all()


def test_each_wrong_argument_of_a_kernel_has_its_own_words():
    increment = add_one()
    x = torch.zeros(10, device="cuda")
    with pytest.raises(LaunchError, match="argument x of launch is on cpu"):
        increment(torch.zeros(10))
    with pytest.raises(LaunchError, match="is on cpu"):
        increment(np.zeros(10, np.float32))
    with pytest.raises(DTypeError, match="has dtype float64, expected float32"):
        increment(x.double())
    with pytest.raises(ShapeError, match="expected 1 dims"):
        increment(x.reshape(2, 5))
    with pytest.raises(LaunchError, match="has strides"):
        increment(torch.zeros(20, device="cuda")[::2])
    increment(x)
    assert (x == 1).all()


def test_shared_memory_that_the_launch_asks_for_may_be_all_there_is():
    limit = hidet.cuda.properties().block_shared_memory

    @hidet.script
    def last(x: f32[1], nbytes: hidet.lang.i32):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = 32
        attrs.cuda.dynamic_smem_bytes = nbytes
        words = dynamic_shared_memory(0, f32)
        if threadIdx.x == 0:
            words[nbytes // 4 - 1] = 5.0
        syncthreads()
        if threadIdx.x == 31:
            x[0] = words[nbytes // 4 - 1]

    x = torch.zeros(1, device="cuda")
    last(x, limit)
    assert x.item() == 5
    with pytest.raises(LaunchError, match=f"{limit + 4} bytes of shared memory"):
        last(x, limit + 4)
    last(x, 1024)
    torch.cuda.synchronize()


def test_a_block_that_is_too_large_is_an_error_and_is_no_end():
    @hidet.script
    def fill(x: f32[1], threads: hidet.lang.i32):
        attrs.cuda.grid_dim = 1
        attrs.cuda.block_dim = threads
        x[0] = 2.0

    x = torch.zeros(1, device="cuda")
    with pytest.raises(LaunchError, match="at most 1024 threads"):
        fill(x, 2048)
    fill(x, 1024)
    assert x.item() == 2


def test_an_out_of_memory_error_states_sizes_and_is_no_end():
    free, _ = hidet.cuda.memory_info()
    with pytest.raises(DeviceOutOfMemory, match=r"cannot allocate .* GiB on cuda:0: .* GiB of .* GiB are free"):
        hidet.cuda.empty(free + (8 << 30), "uint8")
    # What the driver had found before it gave up is free again; other processes may use some of it.
    hidet.cuda.empty(free // 2, "uint8")
    hidet.cuda.empty_cache()
    assert (hidet.cuda.zeros(1000).numpy() == 0).all()


def test_the_pool_uses_memory_again_and_gives_it_back():
    hidet.cuda.empty_cache()
    before = hidet.cuda.memory_statistics()
    for _ in range(50):
        hidet.cuda.empty(1 << 20)
    now = hidet.cuda.memory_statistics()
    assert now.used == before.used
    assert now.reserved - before.reserved <= 64 << 20
    hidet.cuda.empty_cache()
    assert hidet.cuda.memory_statistics().reserved <= now.reserved


def test_events_measure_the_work_between_them():
    increment = add_one()
    x = torch.zeros(100_000, device="cuda")
    start, end = hidet.cuda.Event(timing=True), hidet.cuda.Event(timing=True)
    start.record()
    increment(x)
    end.record()
    assert 0 < start.elapsed_time(end) < 1000
    assert end.is_done()


def test_what_the_device_is_agrees_with_torch():
    ours, theirs = hidet.cuda.properties(), torch.cuda.get_device_properties(0)
    assert ours.name == theirs.name
    assert ours.capability == (theirs.major, theirs.minor)
    assert ours.multiprocessors == theirs.multi_processor_count
    assert ours.total_memory == theirs.total_memory
    assert hidet.cuda.device_count() == torch.cuda.device_count()


FAULT = """
import sys
import torch
import hidet
from hidet.errors import DeviceLost
from hidet.lang import attrs, f32, i64, as_tensor_pointer

@hidet.script
def wild(x: ~f32, place: i64):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 1
    x[place] = 1.0

@hidet.script
def tame(x: ~f32):
    attrs.cuda.grid_dim = 1
    attrs.cuda.block_dim = 1
    x[0] = 1.0

x = torch.zeros(4, device="cuda")
tame(x)
hidet.cuda.synchronize()
names = []
try:
    wild(x, 1 << 40)
    {wait}
except DeviceLost as error:
    names.append(str(error))
for _ in range(2):
    try:
        tame(x)
        hidet.cuda.synchronize()
    except DeviceLost as error:
        names.append(str(error))
for name in names:
    print(name.splitlines()[0])
# torch's own end would wait for the device that is lost.
sys.stdout.flush()
import os
os._exit(0)
"""


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_an_illegal_access_names_its_kernel_now_and_later(blocking, tmp_path):
    file = tmp_path / "fault.py"
    file.write_text(textwrap.dedent(FAULT).replace("{wait}", "hidet.cuda.synchronize()"))
    child = subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, "CUDA_LAUNCH_BLOCKING": blocking},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = child.stdout.splitlines()
    assert len(lines) == 3, child.stdout + child.stderr
    assert all("the CUDA device failed in kernel wild" in line for line in lines), child.stdout


def test_work_of_another_thread_is_put_on_the_graphs_device(layer):
    model, compiled = layer
    x = torch.randn(8, 64, device="cuda")
    results = []
    # A new thread has no current context.
    thread = threading.Thread(target=lambda: results.append(compiled(x)))
    thread.start()
    thread.join()
    np.testing.assert_allclose(results[0].cpu().numpy(), reference(model, x), rtol=1e-5, atol=1e-6)


def test_the_page_on_gpus_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[1] / "docs/cuda.md"
    blocks = re.findall(r"^```py\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    # A file, because scripts are read from theirs.
    (tmp_path / "page.py").write_text("\n".join(blocks))
    names = runpy.run_path(str(tmp_path / "page.py"))
    np.testing.assert_allclose(names["on_host"], names["shared"].cpu().numpy())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_the_second_device_has_kernels_and_memory_of_its_own():
    model = Layer().eval()
    given = [torch.zeros(8, 64, device="cuda:1")]
    compiled = hidet.compile(copy.deepcopy(model).to("cuda:1"), given, target="cuda:1")
    x = torch.randn(8, 64, device="cuda:1")
    np.testing.assert_allclose(compiled(x).cpu().numpy(), reference(model, x), rtol=1e-5, atol=1e-6)
    with pytest.raises(LaunchError, match="is on cuda:0, expected a tensor on cuda:1"):
        compiled(torch.zeros(8, 64, device="cuda:0"))
    host = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)
    np.testing.assert_allclose(compiled(host), reference(model, host), rtol=1e-5, atol=1e-6)


class Deep(torch.nn.Module):
    """Many short kernels."""

    def __init__(self, depth=12):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(depth))
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(x + torch.relu(layer(x)))
        return x


def test_repeated_calls_are_captured_and_each_has_its_own_result():
    model = Deep().eval()
    compiled = hidet.compile(copy.deepcopy(model).cuda(), [torch.zeros(8, 64, device="cuda")], target="cuda")
    xs = [torch.randn(8, 64, device="cuda") for _ in range(6)]
    results = [compiled(x) for x in xs]
    assert compiled.captured()[0] == 1
    assert compiled.captured()[1] > 2 * 8 * 64 * 4
    for x, result in zip(xs, results, strict=True):
        np.testing.assert_allclose(result.cpu().numpy(), reference(model, x), rtol=1e-4, atol=1e-5)
    stream = hidet.cuda.Stream()
    with hidet.cuda.stream(stream):
        arrays = [hidet.cuda.asarray(x.cpu().numpy()) for x in xs]
        for x, result in zip(xs, [compiled(array) for array in arrays], strict=True):
            np.testing.assert_allclose(result.numpy(), reference(model, x), rtol=1e-4, atol=1e-5)
    assert compiled.captured()[0] == 2


def test_calls_whose_tensors_lie_where_they_lay_give_their_own_results():
    model = Deep().eval()
    compiled = hidet.compile(copy.deepcopy(model).cuda(), [torch.zeros(8, 64, device="cuda")], target="cuda")
    x = torch.empty(8, 64, device="cuda")
    kept = []
    for number in range(60):
        x.copy_(torch.randn(8, 64))
        expected = reference(model, x)
        result = compiled(x)
        np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=1e-4, atol=1e-5)
        # Results take turns at two addresses until one of them is kept: ten calls an address, which is enough.
        if number % 20 == 0:
            kept.append((result, expected))
    # One with places, two or more without.
    assert 3 <= compiled.captured()[0] <= 8
    for result, expected in kept:
        np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_compiled_model_can_be_captured_by_the_user():
    model = Deep().eval()
    compiled = hidet.compile(copy.deepcopy(model).cuda(), [torch.zeros(8, 64, device="cuda")], target="cuda")
    x = torch.randn(8, 64, device="cuda")
    for _ in range(4):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(x)
    x.copy_(torch.randn(8, 64))
    graph.replay()
    np.testing.assert_allclose(result.cpu().numpy(), reference(model, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_parameters_that_change_show_in_captured_calls(mode):
    torch._dynamo.reset()
    model = Deep().cuda().eval()
    options = {"search_space": 0, **({} if mode is None else {"mode": mode})}
    compiled = torch.compile(model, backend="hidet", options=options)
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        for number in range(8):
            if number in (4, 6):
                model.layers[0].weight.mul_(1.5)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-4)
