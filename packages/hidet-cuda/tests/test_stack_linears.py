"""Linears of the same rows that become one product, and its kernels."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from hidet.context import CompileContext, make_context
from hidet.cuda.passes.stack_linears import StackLinears
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import compile_cubins
from hidet.gpu.passes.block_launches import block_launches
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.printer import print_graph
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret
from hidet.testing.scheduled import run_scheduled, scheduled_graph


def _context(arch: str, **options: object) -> CompileContext:
    """options: of plug-ins, with "_" for "."."""
    given = {name.replace("_", ".", 1): value for name, value in options.items()}
    return make_context(f"cuda:{arch}", {"verify": True, "cache": False, **given})


def _graph(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text), load_registry().operators)


def _rewritten(text: str, **options: object) -> str:
    """The graph after the pass, without its first and last lines."""
    printed = print_graph(StackLinears().run(_graph(text), _context("sm_90a", **options)))
    return "\n".join(line.strip() for line in printed.splitlines()[1:-1])


THREE = """
    graph g(%x: f16[2, 9, 128], param %q: f16[192, 128], param %k: f16[64, 128], param %v: f16[64, 128]{tail}):
      %0: f16[2, 9, 192] = linear(%x, %q{bias_q})
      %1: f16[2, 9, 3, 64] = reshape(%0, shape=[2, 9, 3, 64])
      %2: f16[2, 9, 64] = linear(%x, %k{bias_k})
      %3: f16[9, 2, 64] = transpose(%2, perm=[1, 0, 2])
      %4: f16[2, 9, 64] = linear(%x, %v{bias_v})
      %5: f16[9, 2, 64] = transpose(%4, perm=[1, 0, 2])
      %6: f16[9, 4, 64] = concat(%3, %5, axis=1)
      return %1, %6
"""
PLAIN = THREE.format(tail="", bias_q="", bias_k="", bias_v="")


def test_projections_of_the_same_rows_are_one_product_whose_parts_are_views() -> None:
    found = _rewritten(PLAIN)
    assert "f16[2, 9, 320] = stacked_linear(%x, %q, none, %k, %v)" in found
    assert found.count("slice(") == 3 and " linear(" not in found


def test_biases_are_put_together() -> None:
    tail = ", param %a: f16[192], param %b: f16[64], param %c: f16[64]"
    found = _rewritten(THREE.format(tail=tail, bias_q=", %a", bias_k=", %b", bias_v=", %c"))
    assert "f16[320] = concat(%a, %b, %c)" in found
    assert "= stacked_linear(%x, %q, %7, %k, %v)" in found


def test_a_projection_without_a_bias_has_zeros_beside_those_with_one() -> None:
    tail = ", param %a: f16[192], param %b: f16[64]"
    found = _rewritten(THREE.format(tail=tail, bias_q=", %a", bias_k="", bias_v=", %b"))
    assert "%7: f16[64] = full(" in found and "%8: f16[320] = concat(%a, %7, %b)" in found
    assert "= stacked_linear(%x, %q, %8, %k, %v)" in found


def test_linears_with_another_product_between_them_stay_apart() -> None:
    text = """
    graph g(%x: f16[9, 128], %y: f16[9, 128], param %a: f16[64, 128], param %b: f16[64, 128], param %c: f16[64, 128]):
      %0: f16[9, 64] = linear(%x, %a)
      %1: f16[9, 64] = linear(%y, %b)
      %2: f16[9, 64] = linear(%x, %c)
      %3: f16[9, 192] = concat(%0, %1, %2, axis=1)
      return %3
    """
    assert "stacked_linear" not in _rewritten(text)


def test_products_of_f32_stay_apart() -> None:
    assert "stacked_linear" not in _rewritten(PLAIN.replace("f16", "f32"))


def test_matrices_that_are_no_weights_stay_apart() -> None:
    found = _rewritten(PLAIN.replace("param %k: f16[64, 128], param %v", "%k: f16[64, 128], %v"))
    assert "stacked_linear" not in found


def test_without_matrix_units_nothing_is_joined() -> None:
    assert "stacked_linear" not in _rewritten(PLAIN, cuda_matrix_units=False)


def test_a_linear_that_something_element_wise_follows_keeps_its_kernel() -> None:
    text = """
    graph g(%x: f16[9, 128], param %gate: f16[256, 128], param %up: f16[256, 128]):
      %0: f16[9, 256] = linear(%x, %gate)
      %1: f16[9, 256] = silu(%0)
      %2: f16[9, 256] = linear(%x, %up)
      %3: f16[9, 256] = mul(%1, %2)
      return %3
    """
    assert "stacked_linear" not in _rewritten(text)


def test_what_reads_a_result_at_other_places_is_a_kernel_of_its_own_anyway() -> None:
    found = _rewritten(
        """
        graph g(%x: f16[9, 128], param %q: f16[64, 128], param %k: f16[64, 128]):
          %0: f16[9, 64] = linear(%x, %q)
          %1: f16[9, 64] = flip(%0, axes=[1])
          %2: f16[9, 64] = linear(%x, %k)
          %3: f16[64, 9] = transpose(%2, perm=[1, 0])
          return %1, %3
        """
    )
    assert "stacked_linear" in found


def test_results_of_the_graph_and_weights_that_it_writes_stay_apart() -> None:
    text = """
    graph g(%x: f16[9, 128], param %a: f16[64, 128], param %b: f16[64, 128]):
      %0: f16[9, 64] = linear(%x, %a)
      %1: f16[9, 64] = linear(%x, %b)
      return %0, %1
    """
    assert "stacked_linear" not in _rewritten(text)


def test_a_weight_whose_rows_are_no_whole_tiles_stays_apart() -> None:
    found = _rewritten(PLAIN.replace("192", "200").replace("3, 64]", "1, 200]"))
    assert "= linear(%x, %q)" in found and "= stacked_linear(%x, %k, none, %v)" in found


def test_at_most_four_are_joined() -> None:
    lines = [f"%{n}: f16[9, 64] = linear(%x, %w{n})" for n in range(6)]
    weights = ", ".join(f"param %w{n}: f16[64, 128]" for n in range(6))
    joined = f"%6: f16[9, 384] = concat({', '.join(f'%{n}' for n in range(6))}, axis=1)"
    body = "\n  ".join([*lines, joined, "return %6"])
    found = _rewritten(f"graph g(%x: f16[9, 128], {weights}):\n  {body}\n")
    assert "stacked_linear(%x, %w0, none, %w1, %w2, %w3)" in found and "stacked_linear(%x, %w4, none, %w5)" in found


STACKED = """
    graph g(%x: T[{m}, {k}], param %q: T[192, {k}], param %b: T[320], param %k: T[64, {k}], param %v: T[64, {k}]):
      %0: T[{m}, 320] = stacked_linear(%x, %q, %b, %k, %v)
      return %0
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("m", "k"), [(1, 256), (2, 264), (20, 128), (130, 72)])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_kernels_multiply_each_part_with_its_own_weight(arch: str, m: int, k: int, dtype: str) -> None:
    graph = _graph(STACKED.format(m=m, k=k).replace("T[", f"{dtype}["))
    random = np.random.default_rng(m)
    arrays = [
        (random.standard_normal([int(n) for n in value.tensor.shape]) / 8).astype(value.tensor.dtype.numpy())
        for value in graph.inputs
    ]
    scheduled = scheduled_graph(graph, _context(arch))
    assert [step.rule_name for step in scheduled.steps] == ["cuda.matmul"]  # type: ignore[union-attr]  # tasks alone
    (found,) = run_scheduled(scheduled, arrays, block_launches)
    (right,) = (np.asarray(array).astype(np.float64) for array in interpret(graph, arrays))
    np.testing.assert_allclose(found.astype(np.float64), right, rtol=0, atol=2e-2)


@pytest.mark.parametrize("m", [1, 8, 777, 2048])
def test_the_thread_that_copies_has_registers_to_choose_among_weights(m: int) -> None:
    graph = _graph(
        f"graph g(%x: bf16[{m}, 4096], param %q: bf16[4096, 4096], param %k: bf16[1024, 4096], "
        f"param %v: bf16[1024, 4096]):\n"
        f"  %0: bf16[{m}, 6144] = stacked_linear(%x, %q, none, %k, %v)\n  return %0\n"
    )
    (step,) = scheduled_graph(graph, _context("sm_90a")).steps
    sources = CudaTarget("sm_90a").sources(block_launches(step.program.module))  # type: ignore[union-attr]  # a task
    assert not any(usage.spill_bytes for cubin in compile_cubins(sources, "sm_90a") for usage in cubin.usage.values())
