"""Gated linear units that become one product, and its kernels."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from hidet.context import CompileContext, make_context
from hidet.cuda.passes.gate_linears import GateLinears
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import compile_cubins
from hidet.gpu.passes.block_launches import block_launches
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.printer import print_graph
from hidet.plugins.host import load_registry
from hidet.schedule.select import ScheduledGraph
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
    printed = print_graph(GateLinears().run(_graph(text), _context("sm_90a", **options)))
    return "\n".join(line.strip() for line in printed.splitlines()[1:-1])


UNIT = """
    graph g(%x: f16[9, 128], param %g: f16[72, 128], param %u: f16[72, 128], param %b: f16[72]):
      %0: f16[9, 72] = linear(%x, %g, %b)
      %1: f16[9, 72] = silu(%0)
      %2: f16[9, 72] = linear(%x, %u)
      %3: f16[9, 72] = mul(%1, %2)
      return %3
"""


def test_a_gated_linear_unit_is_one_operator() -> None:
    assert _rewritten(UNIT).endswith("%4: f16[9, 72] = gated_linear(%x, %g, %u, %b, none)")


def test_the_factors_may_stand_the_other_way_round() -> None:
    assert "gated_linear(%x, %g, %u, %b" in _rewritten(UNIT.replace("mul(%1, %2)", "mul(%2, %1)"))


@pytest.mark.parametrize(
    ("text", "activation"),
    [
        ("gelu(%0)", "gelu"),
        ('gelu(%0, approximate="tanh")', "gelu_tanh"),
        ("relu(%0)", "relu"),
        ("sigmoid(%0)", "sigmoid"),
    ],
)
def test_activations_of_gates(text: str, activation: str) -> None:
    assert f"activation='{activation}'" in _rewritten(UNIT.replace("silu(%0)", text))


@pytest.mark.parametrize(
    "changed",
    [
        ("f16", "f32"),  # not on tensor cores
        ("silu(%0)", "tanh(%0)"),  # not an activation of gates
        ("linear(%x, %u)", "linear(%x, %g)\n      %5: f16[9, 72] = relu(%2)"),  # read by others as well
        ("return %3", "return %3, %2"),
        (", param %u: f16[72, 128]", ", %u: f16[72, 128]"),  # not a weight
        ("128", "100"),  # rows that do not begin at multiples of 16 bytes
        ("linear(%x, %u)", "linear(%3, %u)"),
    ],
)
def test_other_graphs_stay(changed: tuple[str, str]) -> None:
    text = UNIT.replace(*changed)
    if changed[1] == "linear(%3, %u)":
        # Of other rows.
        text = UNIT.replace("(%x: f16[9, 128],", "(%x: f16[9, 128], %y: f16[9, 128],").replace("%x, %u", "%y, %u")
    assert "gated_linear" not in _rewritten(text)


def test_without_matrix_units_nothing_is_joined() -> None:
    assert "gated_linear" not in _rewritten(UNIT, cuda_matrix_units=False)


GATED = """
    graph g(%x: T[{m}, {k}], param %g: T[{n}, {k}], param %u: T[{n}, {k}], param %b: T[{n}], param %c: T[{n}]):
      %0: T[{m}, {n}] = gated_linear(%x, %g, %u, %b, %c, activation="{activation}")
      return %0
"""


def _scheduled(arch: str, m: int, n: int, k: int, dtype: str, activation: str) -> tuple[Graph, ScheduledGraph]:
    text = GATED.format(m=m, n=n, k=k, activation=activation).replace("T[", f"{dtype}[")
    scheduled = scheduled_graph(_graph(text), _context(arch))
    assert [step.rule_name for step in scheduled.steps] == ["cuda.matmul"]  # type: ignore[union-attr]  # tasks alone
    return _graph(text), scheduled


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 72, 256), (2, 40, 264), (20, 136, 128), (130, 72, 72)])
@pytest.mark.parametrize(("dtype", "activation"), [("f16", "silu"), ("bf16", "gelu_tanh")])
def test_kernels_multiply_with_both_weights(arch: str, m: int, n: int, k: int, dtype: str, activation: str) -> None:
    graph, scheduled = _scheduled(arch, m, n, k, dtype, activation)
    random = np.random.default_rng(m)
    arrays = [
        (random.standard_normal([int(extent) for extent in value.tensor.shape]) / 8).astype(value.tensor.dtype.numpy())
        for value in graph.inputs
    ]
    (found,) = run_scheduled(scheduled, arrays, block_launches)
    (right,) = (np.asarray(array).astype(np.float64) for array in interpret(graph, arrays))
    np.testing.assert_allclose(found.astype(np.float64), right, rtol=0, atol=1e-3 if dtype == "f16" else 8e-3)


@pytest.mark.parametrize("m", [1, 8, 64, 128, 777, 2048])
@pytest.mark.thorough(every=2)
def test_kernels_have_registers_for_both_sums(m: int) -> None:
    _, scheduled = _scheduled("sm_90a", m, 14336, 4096, "bf16", "gelu_tanh")
    (step,) = scheduled.steps
    sources = CudaTarget("sm_90a").sources(block_launches(step.program.module))  # type: ignore[union-attr]  # a task
    assert not any(usage.spill_bytes for cubin in compile_cubins(sources, "sm_90a") for usage in cubin.usage.values())
