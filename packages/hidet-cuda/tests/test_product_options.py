"""Options of products: what they are summed in, whether matrix units multiply, and into how many parts k is split."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hidet import dims
from hidet.context import make_context
from hidet.cuda.nvrtc import compile_cubin, compile_ptx
from hidet.cuda.target import CudaTarget
from hidet.errors import OptionError
from hidet.fusion.fuse import fuse
from hidet.gpu.passes.block_launches import block_launches
from hidet.graph.parser import parse_graph
from hidet.host.code_cache import module_key
from hidet.host.units import CompileUnit
from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.ir.printer import print_module
from hidet.passes.manager import run_program_passes
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledTask, select_schedules

PRODUCT = """
graph g(%x: f16[{m}, {k}], %w: f16[{n}, {k}], %b: f16[{n}]):
  %0: f16[{m}, {n}] = linear(%x, %w, %b)
  return %0
"""
ATTENTION = """
graph g(%q: f16[2, 64, 32], %k: f16[2, 64, 32], %v: f16[2, 64, 32]):
  %0: f16[2, 64, 32] = attention(%q, %k, %v)
  return %0
"""


def scheduled(text: str, arch: str = "sm_80", **options: Any) -> ScheduledTask:
    """The one task of a graph. options: with _ for the dot in their names."""
    ctx = make_context(f"cuda:{arch}", {name.replace("_", ".", 1): value for name, value in options.items()})
    graph = parse_graph(text, load_registry().operators)
    (step,) = select_schedules(fuse(graph, ctx), ctx).steps
    assert isinstance(step, ScheduledTask)
    return step


def emitted(step: ScheduledTask, arch: str = "sm_80") -> str:
    """The CUDA C++ of a task."""
    return "\n".join(map(str, CudaTarget(arch).sources(block_launches(step.program.module))))


def compiled(step: ScheduledTask, arch: str) -> dict[str, Any]:
    """What each kernel of a task uses."""
    sources = CudaTarget(arch).sources(block_launches(step.program.module))
    return {name: usage for source in sources for name, usage in compile_cubin(source, arch).usage.items()}


def simulated(step: ScheduledTask, *inputs: Any) -> Any:
    """What a task makes of arrays, in the simulator."""
    (output,) = step.task.outputs
    made = np.zeros([dims.as_int(n) if not isinstance(n, int) else n for n in output.type.shape], np.float16)
    scratch = [np.zeros(int(nbytes), np.uint8) for nbytes in step.program.scratch]  # type: ignore[arg-type]  # known
    sizes = [dims.as_dim(dim) for dim in step.program.arguments]
    run_module(
        block_launches(step.program.module), [*[x.reshape(-1) for x in inputs], made.reshape(-1), *scratch, *sizes]
    )
    return made


@pytest.mark.parametrize(
    ("arch", "narrow", "wide"),
    [
        (
            "sm_80",
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        ),
        (
            "sm_90a",
            "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16",
            "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16",
        ),
    ],
)
def test_products_of_halves_are_summed_in_halves_where_that_is_asked_for(arch, narrow, wide) -> None:
    size = {"m": 64, "n": 64, "k": 128}
    draw = np.random.default_rng(0).standard_normal
    x, w, b = (draw(shape).astype(np.float16) for shape in ((64, 128), (64, 128), (64,)))
    right = x.astype(np.float64) @ w.T.astype(np.float64) + b
    usual, asked = (scheduled(PRODUCT.format(**size), arch, cuda_fp16_accumulation=is_on) for is_on in (False, True))
    assert wide in emitted(usual, arch) and narrow not in emitted(usual, arch)
    assert narrow in emitted(asked, arch) and wide not in emitted(asked, arch)
    assert not [kernel for kernel, usage in compiled(asked, arch).items() if usage.spill_bytes]
    errors = [np.abs(simulated(step, x, w, b) - right).max() for step in (usual, asked)]
    # Sums of halves are rounded at every step.
    assert errors[0] < errors[1] < 0.2


def test_a_vector_is_multiplied_without_matrix_units_and_summed_in_f32() -> None:
    text = PRODUCT.format(m=1, n=64, k=512)
    assert emitted(scheduled(text)) == emitted(scheduled(text, cuda_fp16_accumulation=True))


@pytest.mark.parametrize("text", [PRODUCT.format(m=256, n=256, k=64), ATTENTION])
def test_nothing_runs_on_matrix_units_where_they_are_off(text) -> None:
    assert "mma.sync" in emitted(scheduled(text))
    assert "mma.sync" not in emitted(scheduled(text, cuda_matrix_units=False))


@pytest.mark.parametrize("units", [True, False])
def test_sums_are_split_into_as_many_parts_as_are_asked_for(units) -> None:
    text = PRODUCT.format(m=256, n=256, k=4096)

    def splits(number: int) -> int:
        return scheduled(text, cuda_matrix_units=units, gpu_split_k=number).decision.params.split_k

    assert splits(0) > 1
    assert [splits(number) for number in (1, 3, 5)] == [1, 3, 5]


def test_sums_that_are_too_short_are_not_split() -> None:
    assert scheduled(PRODUCT.format(m=64, n=64, k=64), gpu_split_k=16).decision.params.split_k == 1


def test_a_number_of_splits_is_not_negative() -> None:
    with pytest.raises(OptionError, match=r"gpu\.split_k is a number of splits"):
        scheduled(PRODUCT.format(m=64, n=64, k=64), gpu_split_k=-1)


def test_sums_in_parts_of_a_number_of_ones_own_are_right() -> None:
    step = scheduled(PRODUCT.format(m=16, n=32, k=512), gpu_split_k=5)
    draw = np.random.default_rng(0).standard_normal
    x, w, b = (draw(shape).astype(np.float16) for shape in ((16, 512), (32, 512), (32,)))
    np.testing.assert_allclose(simulated(step, x, w, b), x.astype(np.float32) @ w.T.astype(np.float32) + b, atol=4e-2)


QUOTIENT = """
graph g(%x: f32[64], %y: f32[64]):
  %0: f32[64] = div(%x, %y)
  return %0
"""


@pytest.mark.parametrize(
    ("options", "instruction"),
    [
        ({}, "div.rn.f32"),
        ({"cuda_ftz": True}, "div.rn.ftz.f32"),
        ({"cuda_prec_div": False}, "div.full.f32"),
        ({"cuda_ftz": True, "cuda_prec_div": False}, "div.full.ftz.f32"),
    ],
)
def test_quotients_are_rounded_and_small_numbers_kept_unless_speed_is_asked_for(options, instruction) -> None:
    ctx = make_context("cuda:sm_80", {name.replace("_", ".", 1): value for name, value in options.items()})
    module = run_program_passes(scheduled(QUOTIENT, **options).program.module, ctx)
    (source,) = CudaTarget("sm_80").sources(module)
    divisions = {word for word in re.findall(r"div\.[\w.]+", compile_ptx(source, "sm_80")) if word.endswith("f32")}
    assert divisions == {instruction}
    assert verify_round_trip(module)


@pytest.mark.parametrize(("target", "is_read"), [("cpu", False), ("cuda:sm_80", True)])
def test_options_about_rounding_are_part_of_the_cache_key_of_the_target_that_reads_them_alone(target, is_read) -> None:
    unit = CompileUnit(Module((), "entry"), "digest", effort=3)
    options: list[dict[str, Any]] = [{}, {"cuda.ftz": True}, {"cuda.prec_div": False}]
    digests = {module_key("unit", unit, make_context(target, {"cache": False, **each})).digest for each in options}
    assert len(digests) == (3 if is_read else 1)


def verify_round_trip(module: Any) -> bool:
    """Whether the text of a module gives it back, attributes and all."""
    return print_module(parse_module(print_module(module))) == print_module(module)
