"""One result for a kernel wherever it runs: in the interpreter, on the CPU and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hidet.compiler.modules import build_ir_module
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.intrinsics import INTRINSICS
from hidet.cuda.nvrtc import compile_cubin
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.ir.stmt import Launch
from hidet.ir.visit import walk
from tests.script_kernels import KERNELS
from tests.script_kernels.case import Kernel


def arguments(kernel: Kernel) -> tuple[list[Any], dict[int, Any]]:
    """What a kernel is called with, and what arrays shall hold afterwards."""
    given = kernel.inputs(np.random.default_rng(7))
    return given, kernel.expected(*[value.copy() if isinstance(value, np.ndarray) else value for value in given])


def require(given: list[Any], expected: dict[int, Any], tolerance: float) -> None:
    for position, right in expected.items():
        found = np.asarray(given[position])
        if right.dtype.kind in "iu":
            np.testing.assert_array_equal(found, right)
        else:
            scale = max(1.0, float(np.abs(right).max()))
            np.testing.assert_allclose(found.astype(np.float64), right, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_right_in_the_interpreter(name):
    given, expected = arguments(KERNELS[name])
    run_module(KERNELS[name].make().ir_module(), given)
    require(given, expected, KERNELS[name].tolerance)


@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.on_cpu])
def test_kernels_are_right_on_the_cpu(name):
    given, expected = arguments(KERNELS[name])
    build_ir_module(KERNELS[name].make().ir_module(), target="cpu")(*given)
    require(given, expected, KERNELS[name].tolerance)


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_of_kernels_parses_back(name):
    text = print_module(KERNELS[name].make().ir_module())
    assert print_module(parse_module(text, INTRINSICS)) == text


def has_device_code(kernel: Kernel) -> bool:
    module = kernel.make().ir_module()
    return any(isinstance(node, Launch) and node.block for f in module.functions for node in walk(f.body))


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.thorough(every=3)
def test_kernels_compile_for_gpus_and_keep_registers(name, arch):
    """No spills, and no stack: arrays in registers stay there, also those that functions take by address."""
    if not has_device_code(KERNELS[name]):
        pytest.skip("it runs on the host")
    if int(arch[3:].rstrip("a")) < KERNELS[name].arch:
        pytest.skip(f"it needs sm_{KERNELS[name].arch}")
    source = emit_module(KERNELS[name].make().ir_module(), int(arch[3:].rstrip("a")))
    cubin = compile_cubin(source, arch)
    assert cubin.usage
    for usage in cubin.usage.values():
        assert (usage.spill_bytes, usage.stack_bytes) == (0, 0)
    assert cubin.remarks == ()


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_right_on_a_gpu(name):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if not has_device_code(KERNELS[name]):
        pytest.skip("it runs on the host")
    major, minor = torch.cuda.get_device_capability()
    if 10 * major + minor < KERNELS[name].arch:
        pytest.skip(f"it needs sm_{KERNELS[name].arch}")
    given, expected = arguments(KERNELS[name])
    placed = [torch.from_numpy(value).cuda() if isinstance(value, np.ndarray) else value for value in given]
    KERNELS[name].make().build(target="cuda")(*placed)
    torch.cuda.synchronize()
    found = [value.cpu().numpy() if isinstance(value, torch.Tensor) else value for value in placed]
    require(found, expected, KERNELS[name].tolerance)
