"""Schedules, run by the simulator at small sizes and compiled for every architecture."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

from hidet import dims
from hidet.context import Options
from hidet.cuda.arch_checks import launches_of
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.passes.allow_tf32 import AllowTf32
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import assert_right, context_for
from hidet.cuda.testing.tasks import compiled_kernels, scheduled_task
from hidet.fusion.fuse import fuse
from hidet.gpu.passes.block_launches import block_launches
from hidet.gpu.passes.contiguous_rows import ContiguousRows
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.graph.parser import parse_graph
from hidet.ir.interpret import run_module
from hidet.ir.printer import print_function, print_module
from hidet.ir.verify import verify_module
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules
from hidet.testing.interpret import interpret

Array = np.ndarray[Any, Any]


def scheduled(text: str, arch: str = "sm_80") -> ScheduledGraph:
    ctx = context_for(arch)
    return select_schedules(fuse(parse_graph(textwrap.dedent(text), ctx.registry.operators), ctx), ctx)


def tasks(text: str, arch: str = "sm_80") -> list[ScheduledTask]:
    return [step for step in scheduled(text, arch).steps if isinstance(step, ScheduledTask)]


def ramp(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def laid_out(array: Array, strides: Any) -> tuple[Array, Array]:
    """The memory of a copy of an array with these strides, in elements, and a view of the copy."""
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    memory = np.zeros(reach, array.dtype)
    view = np.lib.stride_tricks.as_strided(memory, array.shape, [s * array.itemsize for s in strides])
    view[...] = array
    return memory, view


def runs_right(text: str, rule: str, tolerance: float, arch: str = "sm_80") -> None:
    """The one task of a graph, scheduled by `rule`, gives what the graph means."""
    registry = load_registry()
    graph = parse_graph(textwrap.dedent(text), registry.operators)
    (step,) = tasks(text, arch)
    assert step.rule_name == rule
    inputs = {
        value: ramp(tuple(value.tensor.shape), value.tensor.dtype.numpy(), number)  # type: ignore[arg-type]
        for number, value in enumerate(graph.inputs)
    }
    expected = interpret(graph, list(inputs.values()))
    task, program = step.task, step.program
    module = block_launches(program.module)
    verify_module(module)
    by_name = {value.name: laid_out(array, value.tensor.element_strides)[0] for value, array in inputs.items()}
    placed = [laid_out(np.zeros(t.type.shape, t.type.dtype.numpy()), t.type.element_strides) for t in task.outputs]  # type: ignore[arg-type]
    scratch = [np.zeros(int(nbytes), np.uint8) for nbytes in program.scratch]  # type: ignore[arg-type]
    arguments = [dims.as_dim(dim) for dim in program.arguments]
    run_module(
        module, [*[by_name[t.value.name] for t in task.inputs], *[memory for memory, _ in placed], *scratch, *arguments]
    )
    for (_, output), right in zip(placed, expected, strict=True):
        np.testing.assert_allclose(
            output.astype(np.float64), np.asarray(right).astype(np.float64), rtol=tolerance, atol=tolerance
        )


def compiles(text: str, arch: str, name: str) -> None:
    """Every kernel compiles without spills and without remarks of the assembler."""
    target = CudaTarget(name)
    for step in tasks(text, name):
        for source in target.sources(block_launches(step.program.module)):
            cubin = compile_cubin(source, name)
            assert not [kernel for kernel, usage in cubin.usage.items() if usage.spill_bytes]
            assert cubin.remarks == ()


MATMUL = """
graph g(%x: f16[{m}, {k}], %w: f16[{k}, {n}]):
  %0: f16[{m}, {n}] = matmul(%x, %w)
  return %0
"""
LINEAR = """
graph g(%x: f16[2, {m}, {k}], %w: f16[{n}, {k}], %b: f16[{n}]):
  %0: f16[2, {m}, {n}] = linear(%x, %w, %b)
  %1: f16[2, {m}, {n}] = relu(%0)
  return %1
"""
BATCHED = """
graph g(%x: f16[3, {m}, {k}], %w: f16[3, {n}, {k}]):
  %0: f16[3, {m}, {n}] = matmul(%x, %w, trans_b=True)
  return %0
"""


@pytest.mark.parametrize("text", [MATMUL, LINEAR, BATCHED])
@pytest.mark.parametrize("size", [(16, 32, 24), (40, 16, 9)])
def test_products_of_halves_are_right(text, size) -> None:
    m, n, k = size
    runs_right(text.format(m=m, n=n, k=k), "cuda.matmul", 4e-3)


@pytest.mark.parametrize("text", ["f16[0, 32]; f16[32, 16]; f16[0, 16]", "f16[16, 0]; f16[0, 16]; f16[16, 16]"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_products_of_empty_matrices_are_scheduled(text: str, arch: str) -> None:
    a, b, result = text.split("; ")
    product = f"graph g(%x: {a}, %w: {b}):\n  %0: {result} = matmul(%x, %w)\n  return %0\n"
    assert [step.rule_name for step in tasks(product, arch)] == ["cuda.matmul"]


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_of_a_batch_may_lie_at_distances_that_are_symbols(transposed: bool) -> None:
    right = "f16[3, s, 16]" if transposed else "f16[3, 16, s]"
    product = f"matmul(%x, %w, trans_b={transposed})"
    text = f"symbol s: 2..4096\ngraph g(%x: f16[3, s, 16], %w: {right}):\n  %0: f16[3, s, s] = {product}\n  return %0\n"
    assert_right(text, "cuda.matmul", 4e-3, sizes={"s": 24})


PRODUCTS_OF_A_BATCH = {
    "without matrix units": "f32[b, 128, 3]; f32[b, 3, 128]; f32[b, 128, 128]",
    "gemv": "f16[b, 1, 256]; f16[b, 256, 8]{2048, 1, 256}; f16[b, 1, 8]",
}


@pytest.mark.parametrize("shapes", PRODUCTS_OF_A_BATCH.values(), ids=PRODUCTS_OF_A_BATCH)
def test_a_batch_may_have_more_matrices_than_a_grid_has_rows_of_blocks(shapes: str) -> None:
    """Blocks count tiles along x, of which there may be 2^31 - 1: along y there are at most 65535."""
    left, right, result = shapes.split("; ")
    text = f"symbol b: 1..1000000\ngraph g(%x: {left}, %w: {right}):\n  %0: {result} = matmul(%x, %w)\n  return %0\n"
    assert_right(text, "cuda.matmul", 4e-3, sizes={"b": 3})
    launches = [node for step in tasks(text) for node in launches_of(step.program.module)]
    assert all(len(launch.grid) == 1 for launch in launches)


PLACES = """
graph g(%x: f16[2, 16, 12]{192, 1, 16}, %w: f16[24, 16, 3]{48, 1, 16}, %p: f16[1, 24, 6]{144, 1, 24}):
  %0: f16[2, 24, 6]{144, 1, 24} = conv(%x, %w, stride=[2], padding=[1], dilation=[1], groups=1)
  %1: f16[2, 24, 6]{144, 1, 24} = add(%0, %p)
  return %1
"""


def test_convolutions_with_epilogue_operands_that_all_images_share_are_right() -> None:
    runs_right(PLACES, "cuda.matmul", 8e-3)


INTERLEAVED = """
graph g(%x: f16[3, 20, 32], %w: f16[24, 32], %b: f16[24]):
  %0: f16[3, 20, 24]{24, 72, 1} = linear(%x, %w, %b)
  return %0
"""


def test_products_whose_rows_lie_in_another_order_than_the_operands_are_right() -> None:
    runs_right(INTERLEAVED, "cuda.matmul", 4e-3)


def test_linear_layers_of_windows_read_a_copy() -> None:
    ctx = context_for()
    registry = ctx.registry
    strides = "{96, 8, 24, 1}"
    text = f"""graph g(%x: f16[2, 3, 4, 8]{strides}, %w: f16[5, 8]):
      %0: f16[2, 3, 4, 5] = linear(%x, %w)
      return %0
    """
    graph = parse_graph(textwrap.dedent(text), registry.operators)
    changed = ContiguousRows().run(graph, ctx)
    assert [node.op.name for node in changed.nodes] == ["copy", "linear"]
    assert changed.nodes[0].outputs[0].tensor.is_contiguous
    given = [ramp((2, 3, 4, 8), np.float16, 0), ramp((5, 8), np.float16, 1)]
    np.testing.assert_array_equal(interpret(changed, given)[0], interpret(graph, given)[0])
    regular = parse_graph(textwrap.dedent(text).replace(strides, ""), registry.operators)
    assert ContiguousRows().run(regular, ctx) is regular


@pytest.mark.parametrize("order", ["%w: f16[1000, 520]", "%w: f16[520, 1000]"])
def test_products_of_rows_between_lines_are_launched_in_clusters_that_share_copies(order: str) -> None:
    """They are made here, and run by the simulator at small sizes (tile/test_pipeline.py)."""
    value = "  %b: f16[520, 1000] = transpose(%w, perm=[1, 0])\n" if "[1000, 520]" in order else ""
    right = "%b" if value else "%w"
    text = f"graph g(%a: f16[2000, 520], {order}):\n{value}  %0: f16[2000, 1000] = matmul(%a, {right})\n  return %0\n"
    (step,) = tasks(text, "sm_90a")
    assert "tensor_load_multicast" in print_module(step.program.module)
    module = block_launches(step.program.module)
    verify_module(module)
    clusters = [launch.cluster for launch in launches_of(module)]
    assert clusters and all(cluster == () or cluster[0].value == 2 for cluster in clusters) and any(clusters)


SWIGLU = """
symbol s: 1..4096 hint 2048
graph g(%a: bf16[{m}, 4096], param %w: bf16[14336, 4096], %g: bf16[{m}, 14336]):
  %0: bf16[{m}, 14336] = linear(%a, %w)
  %1: bf16[{m}, 14336] = silu(%g)
  %2: bf16[{m}, 14336] = mul(%1, %0)
  return %2
"""


@pytest.mark.parametrize(("m", "cluster"), [(2048, 2), (777, 1), ("s", 1)])
def test_pairs_of_blocks_share_copies_where_the_number_of_rows_is_known_to_be_even(m, cluster) -> None:
    (step,) = tasks(SWIGLU.format(m=m), "sm_90a")
    launches = launches_of(block_launches(step.program.module))
    assert max(launch.cluster[0].value if launch.cluster else 1 for launch in launches) == cluster


def test_the_swiglu_of_a_prompt_is_multiplied_by_four_warp_groups_without_spills_or_arrays_in_memory() -> None:
    """Seven tiles of 112 rows hold 777 rows, of which others would leave an eighth empty."""
    step = scheduled_task(SWIGLU.format(m=777), "sm_90a")
    assert step.decision.params.tiles == MatmulTiles(112, 256, 64, 4, (1, 16), is_transposed=True)
    used = [usage for cubin in compiled_kernels(step, "sm_90a") for usage in cubin.usage.values()]
    assert used and all(usage.spill_bytes == usage.stack_bytes == 0 for usage in used)


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_a_swiglu_with_a_bias_is_multiplied_by_threads_that_have_the_registers(element: str) -> None:
    text = SWIGLU.format(m=777).replace("%w: bf16[14336, 4096]", "%w: bf16[14336, 4096], param %b: bf16[14336]")
    text = text.replace("linear(%a, %w)", "linear(%a, %w, %b)").replace("bf16", element)
    step = scheduled_task(text, "sm_90a")
    used = [usage for cubin in compiled_kernels(step, "sm_90a") for usage in cubin.usage.values()]
    assert used and all(usage.spill_bytes == usage.stack_bytes == 0 for usage in used)


def is_warp_specialized(text: str, arch: str = "sm_90a") -> bool:
    """Whether the one task of a graph has a kernel that TMA feeds."""
    (step,) = tasks(text, arch)
    return "cuda.tensor_load." in print_module(step.program.module)


@pytest.mark.parametrize("text", [MATMUL, LINEAR, BATCHED])
def test_products_of_aligned_rows_have_warp_specialized_kernels_on_sm_90a(text) -> None:
    aligned = text.format(m=40, n=24, k=72)
    assert is_warp_specialized(aligned)
    assert not is_warp_specialized(aligned, "sm_89")
    assert not is_warp_specialized(
        text.format(m=40, n=24, k=73) if text is not MATMUL else text.format(m=40, n=25, k=72)
    )
    runs_right(aligned, "cuda.matmul", 8e-3, "sm_90a")


@pytest.mark.parametrize(
    ("turns", "aligned", "arch", "instruction"),
    [
        ("trans_b=True", True, "sm_80", "cuda.mma.m16n8k8.f32.tf32.tf32"),
        ("trans_b=True", True, "sm_90a", "cuda.wgmma.m64n16k8.f32.tf32.tf32"),
        ("trans_b=True", False, "sm_90a", "cuda.mma.m16n8k8.f32.tf32.tf32"),
        ("trans_b=False", True, "sm_90a", "cuda.mma.m16n8k8.f32.tf32.tf32"),
    ],
)
def test_matrix_units_multiply_f32_where_it_may_be_rounded(turns, aligned, arch, instruction) -> None:
    text = """
    graph g(%a: f32[130, {k}], %b: f32[{b}]):
      %0: f32[130, 140] = matmul(%a, %b, {turns}, fp32_precision="{precision}")
      return %0
    """
    k = 72 if aligned else 73
    b = f"140, {k}" if turns == "trans_b=True" else f"{k}, 140"
    given = {"k": k, "b": b, "turns": turns}
    (step,) = tasks(text.format(**given, precision="tf32"), arch)
    assert instruction in print_module(step.program.module)
    runs_right(text.format(**given, precision="tf32"), "cuda.matmul", 2e-2, arch)
    (step,) = tasks(text.format(**given, precision="ieee"), arch)
    assert "tf32" not in print_module(step.program.module)


def test_convolutions_of_f32_are_multiplied_by_matrix_units_where_it_may_be_rounded() -> None:
    text = """
    graph g(%x: f32[1, 8, 12, 12]{{1152, 1, 96, 8}}, %w: f32[40, 8, 3, 3]{{72, 1, 24, 8}}):
      %0: f32[1, 40, 12, 12]{{5760, 1, 480, 40}} = conv(%x, %w, padding=1, fp32_precision="{precision}")
      return %0
    """
    for arch in ("sm_80", "sm_90a"):
        (step,) = tasks(text.format(precision="tf32"), arch)
        assert "cuda.mma.m16n8k8.f32.tf32.tf32" in print_module(step.program.module)
        runs_right(text.format(precision="tf32"), "cuda.matmul", 2e-2, arch)
    (step,) = tasks(text.format(precision="ieee"))
    assert "tf32" not in print_module(step.program.module)


def test_f32_may_be_rounded_where_the_options_allow_it() -> None:
    text = """
    graph g(%x: f32[4, 8], %w: f32[3, 8], %h: f16[4, 8], %v: f16[3, 8], %i: f32[1, 8, 4, 4], %f: f32[3, 8, 1, 1]):
      %0: f32[4, 3] = linear(%x, %w)
      %1: f16[4, 3] = linear(%h, %v)
      %2: f32[1, 3, 4, 4] = conv(%i, %f)
      %row: f32[1, 8] = slice(%x, starts=[0, 0], stops=[1, 8])
      %3: f32[1, 3] = linear(%row, %w)
      %4: f32[3, 1] = matmul(%w, %row, trans_b=True)
      return %0, %1, %2, %3, %4
    """
    registry = load_registry()
    graph = parse_graph(textwrap.dedent(text), registry.operators)

    def precisions(**options: Any) -> list[str]:
        nodes = AllowTf32().run(graph, context_for(options=Options(**options))).nodes
        return [node.attrs["fp32_precision"] for node in nodes if "fp32_precision" in node.attrs]

    assert precisions() == ["ieee"] * 5
    # A single row or column is exact, as cuBLAS has it.
    assert precisions(tf32_products=True) == ["tf32", *["ieee"] * 4]
    assert precisions(tf32_convolutions=True) == ["ieee", "ieee", "tf32", "ieee", "ieee"]


def test_rows_that_overlap_are_not_copied_in_boxes() -> None:
    text = """
    graph g(%x: f16[40, 64]{{{stride}, 1}}, %w: f16[24, 64]):
      %0: f16[40, 24] = linear(%x, %w)
      return %0
    """
    assert is_warp_specialized(text.format(stride=72))
    for stride in (0, 16):
        assert not is_warp_specialized(text.format(stride=stride))


def test_one_row_has_a_map_whatever_its_stride() -> None:
    text = """
    graph g(%x: f16[1, 72], %w: f16[24, 72]):
      %0: f16[1, 24] = linear(%x, %w)
      return %0
    """
    assert is_warp_specialized(text)
    runs_right(text, "cuda.matmul", 8e-3, "sm_90a")


@pytest.mark.parametrize("text", [LINEAR, BATCHED])
def test_long_sums_of_warp_specialized_kernels_are_split(text) -> None:
    """Each part of each matrix is a tile of the grid."""
    long = text.format(m=16, n=24, k=2048)
    (step,) = tasks(long, "sm_90a")
    assert step.program.scratch
    assert is_warp_specialized(long)
    runs_right(long, "cuda.matmul", 3e-2, "sm_90a")


GEMV = """
graph g(%x: f16[{m}, {k}], %w: f16[{n}, {k}], %b: f16[{n}]):
  %0: f16[{m}, {n}] = linear(%x, %w, %b)
  %1: f16[{m}, {n}] = relu(%0)
  return %1
"""
VECTORS = """
graph g(%x: bf16[3, 2, 264], %w: bf16[3, 5, 264]):
  %0: bf16[3, 2, 5] = matmul(%x, %w, trans_b=True)
  return %0
"""


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 9, 256), (2, 20, 1096), (2, 8, 2048), (1, 3, 768), (2, 5, 1032), (1, 6, 3080)]
)
def test_gemvs_need_no_matrix_units(m, n, k) -> None:
    text = GEMV.format(m=m, n=n, k=k)
    runs_right(text, "cuda.matmul", 1e-2)
    (step,) = tasks(text)
    fast, *_ = [f for f in step.program.module.functions if "shuffle_xor" in print_function(f)]
    assert "cuda.mma." not in print_function(fast)


def test_vectors_of_a_batch_are_gemvs() -> None:
    runs_right(VECTORS, "cuda.matmul", 5e-2)


@pytest.mark.parametrize("name", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.thorough(every=4)
def test_products_compile_without_spills(name) -> None:
    for text in (MATMUL, LINEAR):
        for m in (16, 512, 4096):
            compiles(text.format(m=m, n=4096, k=1024), name, name)


VECTOR = """
graph g(%x: f32[1, 200], %w: f32[7, 200], %b: f32[7]):
  %0: f32[1, 7] = linear(%x, %w, %b)
  return %0
"""


def test_products_with_one_row_are_right() -> None:
    runs_right(VECTOR, "gpu.reduce_products", 1e-4)


@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_reductions_compile_without_spills(name) -> None:
    compiles(VECTOR, name, name)


SINGLE = """
graph g(%x: f32[150, 70], %w: f32[70, 130]):
  %0: f32[150, 130] = matmul(%x, %w)
  %1: f32[150, 130] = relu(%0)
  return %1
"""
PIXELS = """
graph g(%x: f16[2, 16, 5, 4]{320, 1, 64, 16}, %w: f16[24, 16, 1, 1], %b: f16[24]):
  %0: f16[2, 24, 5, 4]{480, 1, 96, 24} = conv(%x, %w, %b, stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1)
  return %0
"""
ONE_MATRIX = """
graph g(%x: f16[1, 16, 24], %w: f16[1, 24, 32], %b: f16[1, 16, 32]):
  %0: f16[1, 16, 32] = matmul(%x, %w)
  %1: f16[1, 16, 32] = add(%0, %b)
  return %1
"""


def test_products_of_singles_are_right() -> None:
    runs_right(SINGLE, "cuda.matmul", 1e-4)


def test_one_matrix_of_a_batch_of_one_is_right() -> None:
    runs_right(ONE_MATRIX, "cuda.matmul", 8e-3)


def test_products_of_singles_compile_without_spills() -> None:
    compiles(SINGLE, "sm_80", "sm_80")


def test_convolutions_with_filters_of_one_pixel_are_products() -> None:
    runs_right(PIXELS, "cuda.matmul", 8e-3)


@pytest.mark.parametrize(("m", "k", "n"), [(2, 3, 2), (4, 8, 1), (1, 31, 130)])
def test_little_products_of_singles_are_a_thread_an_element_and_no_fallback(m: int, k: int, n: int) -> None:
    text = f"""
    graph g(%a: f32[{m}, {k}], %b: f32[{k}, {n}], %c: f32[{n}]):
      %0: f32[{m}, {n}] = matmul(%a, %b)
      %1: f32[{m}, {n}] = add(%0, %c)
      return %1
    """
    runs_right(text, "gpu.reduce_products", 1e-5)
