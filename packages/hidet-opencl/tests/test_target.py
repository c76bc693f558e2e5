"""The target: which device it is, what it says where there is none, edges, artifacts, dumps, calls side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.errors import ArtifactError, CompileError, LaunchError, OptionError
from hidet.gpu.codegen.source import KernelFacts, KernelSource
from hidet.graph.parser import parse_graph
from hidet.loc import Loc
from hidet.opencl import devices
from hidet.opencl.codegen.warps import NONE
from hidet.opencl.compiler import compile_program
from hidet.opencl.container import pack, unpack
from hidet.opencl.target import OpenCLTarget
from hidet.runtime.compiled import CompiledGraph
from hidet.testing import check_edges
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_graph, random_inputs

GRAPHS = int(os.environ.get("HIDET_GRAPHS", "12"))
"""Random graphs; a thousand are what a release is judged by."""
SUM = "graph g(%x: f32[3, 40]):\n  %0: f32[3] = sum(%x, axes=[1])\n  return %0\n"


def compiled(text: str, target: str = "opencl", **options: object) -> CompiledGraph:
    ctx = make_context(target, options)
    return compile_graph(parse_graph(text, ctx.registry.operators), ctx)


@pytest.mark.thorough
def test_no_scalar_operation_of_the_table_of_edges_is_refused() -> None:
    """That none is wrong is asked for every target (tests/test_scalar_edges.py)."""
    report = check_edges("opencl")
    assert report.wrong == () and report.refused == ()


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
@pytest.mark.parametrize("seed", range(GRAPHS))
@pytest.mark.thorough(every=3)
def test_random_graphs_agree_with_the_interpreter(seed: int) -> None:
    ctx = make_context("opencl", {"verify": True})
    graph = random_graph(seed, ctx.registry.operators)
    arguments = random_inputs(graph, seed)
    expected = interpret(graph, arguments)
    results = compile_graph(graph, ctx)(*arguments)
    written = {output: source for source, output in graph.mutates}
    returned = iter(results if isinstance(results, tuple) else (results,))
    for number, right in enumerate(expected):
        found = arguments[written[number]] if number in written else next(returned)
        peak = max(1.0, float(np.abs(right).max(initial=0)))
        np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-6 * peak, err_msg=f"seed {seed}, output {number}")


def test_a_kernel_of_one_item_leaves_others_of_its_graph_alone() -> None:
    """Intel's compiler lets the kernel behind one that compares with 1 forget its own bound, where both are one
    program: it then writes behind the end of its result."""
    text = (
        "graph g(%x: f64[1], %w: f64[2, 1]):\n  %0: f64[1] = tanh(%x)\n  %1: f64[2] = linear(%0, %w)\n  return %0, %1\n"
    )
    x, w = np.array([0.5]), np.array([[2.0], [3.0]])
    made = compiled(text)
    for _ in range(20):
        first, second = made(x, w)
        np.testing.assert_allclose(first, np.tanh(x))
        np.testing.assert_allclose(second, np.tanh(x) * [2, 3])


def test_devices_are_named_by_number_and_by_parts_of_their_names() -> None:
    first = devices.find_device(None)
    assert devices.find_device("0") is first
    assert devices.find_device(first.platform.split()[0].lower()) is first
    assert str(first) in devices.list_devices()
    with pytest.raises(OptionError, match="no OpenCL device is called 'nobody'") as raised:
        devices.find_device("nobody")
    assert str(first) in str(raised.value)


def test_without_a_device_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "devices", lambda: ())
    with pytest.raises(LaunchError, match="no OpenCL device was found") as raised:
        compiled(SUM)
    assert "pip install 'hidet-opencl[intel-cpu]'" in str(raised.value)


def test_intels_runtime_is_found_where_its_wheel_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user alone, or in an environment below this one: not under `sys.prefix`."""
    packages = tmp_path / "lib" / "python3" / "site-packages"
    facts = packages / "intel_opencl_rt-2026.2.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-opencl-rt\nVersion: 2026.2.0\n")
    (facts / "RECORD").write_text("../../libintelocl.so,,\n../../libintelocl.so.2026.22.10.0,,\n")
    monkeypatch.syspath_prepend(str(packages))
    assert devices.intel_runtime() is None
    library = tmp_path / "lib" / "libintelocl.so"
    library.touch()
    assert devices.intel_runtime() == library


def test_a_device_whose_memory_has_no_addresses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    distant = replace(devices.find_device(None), has_system_svm=False, has_svm=False)
    monkeypatch.setattr(devices, "devices", lambda: (distant,))
    with pytest.raises(LaunchError, match="has no shared virtual memory"):
        compiled(SUM)
    assert devices.list_devices()[0].endswith("which hidet-opencl needs")


def test_rules_for_warps_leave_devices_without_sub_groups_of_32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = replace(devices.find_device(None), warps=NONE)
    monkeypatch.setattr(devices, "devices", lambda: (narrow,))
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    with pytest.warns(hidet.errors.FallbackWarning):
        softmax = compiled(SUM.replace("f32[3] = sum(%x, axes=[1])", "f32[3, 40] = softmax(%x, axis=1)"))
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(softmax(x), powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_a_saved_graph_runs_where_it_was_made_and_is_refused_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(SUM).save(tmp_path / "sum.hidet")
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    np.testing.assert_allclose(hidet.load(tmp_path / "sum.hidet")(x), x.sum(1), rtol=1e-5)
    other = replace(devices.find_device(None), driver="1.0")
    monkeypatch.setattr(devices, "devices", lambda: (other,))
    with pytest.raises(ArtifactError, match=r"its kernels are for .* this device is .* 1\.0"):
        hidet.load(tmp_path / "sum.hidet")


def test_a_module_is_the_same_behind_its_bytes() -> None:
    target = OpenCLTarget()
    ctx = make_context("opencl")
    made = compile_graph(parse_graph(SUM, ctx.registry.operators), ctx)
    (binary,) = made.bundle.binaries
    module = unpack(binary.data)
    assert module.kernels and module.host and unpack(pack(module)) == module
    with pytest.raises(ArtifactError, match="no code of the OpenCL target"):
        unpack(binary.data[:-1])
    assert target.usage(binary) == {}


def test_what_the_driver_refuses_names_the_kernel_and_the_place() -> None:
    text = "__kernel void broken(__global float* x) {\n  x[0] = missing;\n}\n"
    source = KernelSource(text, (KernelFacts("broken", "broken"),), {2: Loc("model.py", 7)})
    with pytest.raises(CompileError, match=r"refuses broken: .*missing.*in `x\[0\] = missing;`") as raised:
        compile_program(source, devices.find_device(None))
    assert raised.value.loc == Loc("model.py", 7)


def test_dumps_have_the_language_of_the_device_beside_host_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDET_DUMP", str(tmp_path))
    compiled(SUM, cache=False)
    endings = {"".join(path.suffixes) for path in tmp_path.rglob("*") if path.is_file()}
    assert {".cl", ".host.ll", ".host.s"} <= endings


def test_calls_at_the_same_time_do_not_mix_their_arguments() -> None:
    made = compiled(SUM)
    arrays = [np.full((3, 40), number, np.float32) for number in range(32)]
    with ThreadPoolExecutor(4) as threads:
        for array, found in zip(arrays, threads.map(made, arrays), strict=True):
            np.testing.assert_array_equal(found, array.sum(1))


def test_the_command_line_lists_devices() -> None:
    done = subprocess.run([sys.executable, "-m", "hidet", "doctor"], capture_output=True, text=True, check=False)
    assert "target opencl: opencl:0:" in done.stdout


def test_the_command_line_runs_models_of_files(tmp_path: Path) -> None:
    compiled(SUM).save(tmp_path / "sum.hidet")
    command = [sys.executable, "-m", "hidet", "run", str(tmp_path / "sum.hidet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_plug_in_loads_no_driver() -> None:
    code = "import sys, hidet.plugins.host as host; host.load_registry(); assert 'pyopencl' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
