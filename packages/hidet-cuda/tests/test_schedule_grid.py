"""Every schedule that the compiler chooses for a grid of operators, element types, shapes and layouts.

A row of the grid is an operator with what surrounds it: its programs at a small size run in the interpreter and are
compared with what the graph means; at that size and a large one they compile for every architecture, without spills and
without remarks of the assembler. A new schedule is a new row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hidet.context import Options
from hidet.cuda.nvrtc import Cubin
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import compile_cubins, context_for
from hidet.gpu.codegen.source import KernelSource
from hidet.gpu.passes.block_launches import block_launches
from hidet.gpu.testing.grid import CASES, GRID, TOLERANCE, argument, graph_of
from hidet.graph.graph import Graph
from hidet.ir.structural import structural_hash
from hidet.schedule.claims import FALLBACK
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.testing.interpret import interpret
from hidet.testing.scheduled import run_scheduled, scheduled_graph

# Sizes by type: bf16 differs from f16 in the names of instructions alone.
BOTH = ("small", "large")
COMPILED: dict[str, dict[str, tuple[str, ...]]] = {
    "sm_80": {"f16": BOTH, "f32": BOTH, "bf16": ("small",), "f64": ("large",), "i64": ("large",), "i8": ("large",)},
    "sm_89": {"f16": ("large",), "f32": ("large",)},
    "sm_90a": {"f16": ("large",), "f32": ("large",), "f64": ("large",), "i64": ("large",), "i8": ("large",)},
    "sm_100a": {"f16": ("large",)},
}


def chosen(graph: Graph, arch: str) -> ScheduledGraph:
    """What the compiler chooses for the architecture."""
    return scheduled_graph(graph, context_for(arch, options=Options(verify=True)))


def tasks(scheduled: ScheduledGraph) -> Iterator[ScheduledTask]:
    return (step for step in scheduled.steps if isinstance(step, ScheduledTask))


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.thorough(every=8)
def test_chosen_schedules_are_right_in_the_interpreter(name, dtype):
    graph = graph_of(name, dtype, GRID[name].small)
    random = np.random.default_rng(3)
    arrays = [argument(value, random) for value in graph.inputs]
    scheduled = chosen(graph, "sm_80")
    assert GRID[name].is_nest or all(step.rule_name != FALLBACK for step in tasks(scheduled))
    (found,) = run_scheduled(scheduled, arrays, block_launches)
    (right,) = (np.asarray(array).astype(np.float64) for array in interpret(graph, arrays))
    scale = max(1.0, float(np.abs(right).max()))
    tolerance = TOLERANCE[graph.outputs[0].tensor.dtype.short]
    np.testing.assert_allclose(found.astype(np.float64), right, rtol=0, atol=tolerance * scale)


PARTS = 4
"""Into which the cases of an architecture are cut, so that a run may compile some of them."""


@pytest.mark.thorough(every=PARTS + 1)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("arch", COMPILED)
@pytest.mark.thorough(every=4)
def test_chosen_schedules_compile_without_spills(arch, part):
    """Equal programs are compiled once. The fallback nest, which is no schedule, has to compile only."""
    target = CudaTarget(arch)
    sources: dict[str, KernelSource] = {}
    users: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    for name, dtype, sizes in list(compiled_cases(arch))[part::PARTS]:
        steps = list(tasks(chosen(graph_of(name, dtype, sizes), arch)))
        assert GRID[name].is_nest or all(step.rule_name != FALLBACK for step in steps)
        for step in steps:
            digest = structural_hash(step.program.module)
            if digest not in seen:
                seen.add(digest)
                for source in target.sources(block_launches(step.program.module)):
                    sources[source.text] = source
                    users[source.text] = (f"{name} of {dtype}: {step.rule_name}", step.rule_name)
    cubins = compile_cubins(list(sources.values()), arch)
    found = [problem for user, cubin in zip(users.values(), cubins, strict=True) for problem in problems(*user, cubin)]
    assert not found, "\n".join(found)


def compiled_cases(arch: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """What is compiled for an architecture: COMPILED says how much of the grid."""
    for name, dtype in CASES:
        for size in COMPILED[arch].get(dtype, ()):
            yield name, dtype, getattr(GRID[name], size)


def problems(user: str, rule: str, cubin: Cubin) -> Iterator[str]:
    """What a schedule's machine code should not have."""
    for kernel, usage in cubin.usage.items():
        if usage.spill_bytes and rule != FALLBACK:
            yield f"{user}: {kernel} spills {usage.spill_bytes} bytes"
    for remark in cubin.remarks:
        yield f"{user}: the assembler says {remark}"
