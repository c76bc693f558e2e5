"""Convolutions as matrix products: their layouts, and their kernels run by the simulator and compiled."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hidet import dims
from hidet.cuda.nvrtc import compile_cubin
from hidet.cuda.schedules.matmul import MatmulRule
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.schedules import assert_right, context_for, sources_of
from hidet.fusion.fuse import fuse
from hidet.gpu.passes.block_launches import block_launches
from hidet.gpu.passes.channels_last import ChannelsLast
from hidet.gpu.schedules import product, product_launch
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.ir.interpret import run_module
from hidet.ir.verify import verify_module
from hidet.plugins.host import load_registry
from hidet.schedule.rule import Program
from hidet.schedule.select import ScheduledTask, select_schedules
from hidet.schedule.task import Task
from hidet.testing.interpret import interpret

TOLERANCE = {"f16": 1e-2, "bf16": 8e-2, "f32": 1e-4, "f64": 1e-10}


def parsed(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text), load_registry().operators)


def only_task(graph: Graph, arch: str = "sm_80") -> ScheduledTask:
    ctx = context_for(arch)
    (step,) = select_schedules(fuse(graph, ctx), ctx).steps
    assert isinstance(step, ScheduledTask)
    assert step.rule_name == "cuda.matmul"
    return step


def in_memory(array: np.ndarray[Any, Any], strides: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Memory that holds an array with these strides, and the array's view of it."""
    reach = 1 + sum((extent - 1) * stride for extent, stride in zip(array.shape, strides, strict=True))
    memory = np.zeros(reach, array.dtype)
    view = np.lib.stride_tricks.as_strided(memory, array.shape, [stride * array.itemsize for stride in strides])
    view[...] = array
    return memory, view


def is_right(graph: Graph, task: Task, program: Program, tolerance: float) -> None:
    """A program gives what its graph means; results and scratch memory are full of NaN before."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.tensor.shape).astype(v.tensor.dtype.numpy()) for v in graph.inputs]  # type: ignore[arg-type]
    (expected,) = interpret(graph, arrays)
    held = {v.name: in_memory(a, v.tensor.element_strides)[0] for v, a in zip(graph.inputs, arrays, strict=True)}
    (output,) = task.outputs
    empty = np.full_like(expected, np.nan)
    memory, result = in_memory(empty, output.type.element_strides)
    scratch = [np.full(int(nbytes) // 4, np.nan, np.float32) for nbytes in program.scratch]  # type: ignore[arg-type]
    module = block_launches(program.module)
    verify_module(module)
    sizes = [dims.as_dim(dim) for dim in program.arguments]
    run_module(module, [*[held[tensor.value.name] for tensor in task.inputs], memory, *scratch, *sizes])
    right = np.asarray(expected).astype(np.float64)
    np.testing.assert_allclose(result.astype(np.float64), right, rtol=tolerance, atol=tolerance)


def convolution(
    n: int, channels: int, space: tuple[int, ...], filters: int, taps: tuple[int, ...], dtype: str = "f16", **more: Any
) -> str:
    """A convolution, a residual and a relu on channels-last tensors; `first` asks for a channels-first result."""
    rank = len(space)
    stride, before, spread = (
        more.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    groups = more.get("groups", 1)
    out = [(e + 2 * before - spread * (t - 1) - 1) // stride + 1 for e, t in zip(space, taps, strict=True)]

    def last(count: int, depth: int, extents: Any) -> str:
        steps = [depth * int(np.prod(extents[at + 1 :])) for at in range(rank)]
        shape, strides = [count, depth, *extents], [depth * int(np.prod(extents)), 1, *steps]
        return f"{dtype}[{', '.join(map(str, shape))}]{{{', '.join(map(str, strides))}}}"

    result, weight = last(n, filters, out), last(filters, channels // groups, taps)
    final = result.split("{")[0] if more.get("first") else result
    attributes = ", ".join(
        f"{name}={[value] * rank}" for name, value in (("stride", stride), ("padding", before), ("dilation", spread))
    )
    return f"""
    graph g(%x: {last(n, channels, space)}, %w: {weight}, %b: {dtype}[{filters}], %r: {result}):
      %0: {result} = conv(%x, %w, %b, {attributes}, groups={groups})
      %1: {result} = add(%0, %r)
      %2: {final} = relu(%1)
      return %2
    """


CASES = {
    "three by three": convolution(2, 8, (5, 4), 24, (3, 3), padding=1),
    "strided": convolution(1, 16, (7, 6), 8, (3, 3), stride=2, padding=1),
    "one pixel, strided": convolution(2, 16, (5, 5), 8, (1, 1), stride=2),
    "dilated": convolution(1, 8, (7, 7), 8, (3, 2), dilation=2, padding=2),
    "four channels": convolution(1, 4, (9, 8), 8, (7, 7), stride=2, padding=3),
    "three channels": convolution(1, 3, (5, 5), 8, (3, 3), padding=1),
    "along one axis": convolution(2, 8, (11,), 8, (3,), padding=1),
    "in space": convolution(1, 8, (3, 4, 3), 8, (2, 3, 2), padding=1),
    "groups": convolution(2, 16, (5, 4), 32, (3, 3), padding=1, groups=2),
    "channels first": convolution(2, 8, (5, 4), 24, (3, 3), padding=1, first=True),
    "channels first, one pixel": convolution(2, 8, (5, 4), 24, (1, 1), first=True),
    "brain floats": convolution(1, 8, (4, 4), 8, (3, 3), "bf16"),
    "singles": convolution(2, 3, (6, 5), 10, (3, 3), "f32", padding=1, stride=2),
    "singles in groups": convolution(1, 8, (5, 5), 12, (3, 3), "f32", groups=2),
    "doubles": convolution(1, 5, (5, 5), 9, (3, 3), "f64"),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_are_right(name: str) -> None:
    text = CASES[name]
    graph = parsed(text)
    step = only_task(graph)
    is_right(graph, step.task, step.program, TOLERANCE[text.split("%x: ")[1].split("[")[0]])


SPLIT = """
graph g(%x: {0}[40, 520], %w: {0}[24, 520], %b: {0}[24]):
  %0: {0}[40, 24] = linear(%x, %w, %b)
  %1: {0}[40, 24] = relu(%0)
  return %1
"""
SPLIT_BATCH = """
graph g(%x: f16[2, 16, 520], %w: f16[2, 520, 18]):
  %0: f16[2, 16, 18] = matmul(%x, %w)
  return %0
"""


SPLITS = {
    "halves": SPLIT.format("f16"),
    "brain floats": SPLIT.format("bf16"),
    "batch": SPLIT_BATCH,
    "image": convolution(1, 64, (3, 3), 16, (3, 3), padding=1),
    "groups": convolution(1, 64, (3, 3), 64, (3, 3), padding=1, groups=2),
    "singles": convolution(1, 24, (3, 3), 16, (3, 3), "f32", padding=1),
}


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("split_k", [2, 7])
@pytest.mark.thorough(every=2)
def test_split_k_products_are_right(name: str, split_k: int) -> None:
    graph, rule = parsed(SPLITS[name]), MatmulRule()
    task = only_task(graph).task
    match = rule.match(task, context_for())
    assert match is not None
    params = replace(rule.default(match, context_for()), split_k=split_k)
    program = rule.build(match, params, context_for())
    assert len(program.scratch) == 1
    is_right(graph, task, program, TOLERANCE[SPLITS[name].split("%x: ")[1].split("[")[0]])


def test_long_sums_of_few_elements_are_split() -> None:
    assert only_task(parsed(convolution(1, 512, (7, 7), 512, (3, 3), padding=1))).program.scratch != ()
    assert only_task(parsed(convolution(64, 256, (56, 56), 256, (1, 1)))).program.scratch == ()


FROM_THE_CALLER = """
graph g(%x: f16[2, 3, 9, 8], param %w: f16[16, 3, 3, 3], param %b: f16[16], param %v: f16[8, 16, 3, 3]):
  %0: f16[2, 16, 5, 4]{320, 1, 64, 16} = conv(%x, %w, %b, stride=[2, 2], padding=[1, 1], dilation=[1, 1], groups=1)
  %1: f16[2, 8, 5, 4]{160, 1, 32, 8} = conv(%0, %v, stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1)
  %2: f16[2, 8, 5, 4] = relu(%1)
  return %2
"""


def test_images_and_filters_become_channels_last_with_enough_channels() -> None:
    graph = parsed(FROM_THE_CALLER)
    changed = ChannelsLast().run(graph, context_for())
    convolutions = [node for node in changed.nodes if node.op.name == "conv"]
    types = [[str(value.type) for value in node.inputs[:2] if value is not None] for node in convolutions]
    assert types == [
        ["f16[2, 4, 9, 8]{288, 1, 32, 4}", "f16[16, 4, 3, 3]{36, 1, 12, 4}"],
        ["f16[2, 16, 5, 4]{320, 1, 64, 16}", "f16[8, 16, 3, 3]{144, 1, 48, 16}"],
    ]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.tensor.shape).astype(np.float16) for v in graph.inputs]  # type: ignore[arg-type]
    np.testing.assert_array_equal(interpret(changed, arrays)[0], interpret(graph, arrays)[0])


SYMBOLIC = """
symbol n: 1..
symbol h: 1..
symbol w: 1..
graph g(%x: f16[n, 64, h, w], param %f: f16[64, 64, 3, 3], param %b: f16[64]):
  %0: f16[n, 64, h, w] = conv(%x, %f, %b, stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1)
  %1: f16[n, 64, h, w] = relu(%0)
  return %1
"""


def test_convolutions_of_symbolic_images_are_tensor_core_products() -> None:
    """defects.md G3."""
    ctx = context_for("sm_90a")
    scheduled = select_schedules(fuse(ChannelsLast().run(parsed(SYMBOLIC), ctx), ctx), ctx)
    tasks = [step for step in scheduled.steps if isinstance(step, ScheduledTask)]
    (made,) = [step for step in tasks if step.task.op_name == "conv"]
    assert made.rule_name == "cuda.matmul"
    assert {step.rule_name for step in tasks} <= {"cuda.matmul", "gpu.elementwise"}
    assert any("mma" in source.text for source in CudaTarget("sm_90a").sources(block_launches(made.program.module)))


LAST = """
symbol n: 1.. hint 2
symbol h: 1.. hint 5
symbol w: 1.. hint 4
graph g(%x: f16[n, 16, h, w]{16*h*w, 1, 16*w, 16}, param %f: f16[24, 16, 3, 3]{144, 1, 48, 16}):
  %0: f16[n, 24, h, w]{24*h*w, 1, 24*w, 24} = conv(%x, %f, stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1)
  return %0
"""


def test_taps_of_symbolic_images_are_copied_by_sixteen_bytes() -> None:
    assert_right(LAST, "cuda.matmul", 1e-2, sizes={"n": 2, "h": 5, "w": 4}, arch="sm_90a")
    assert any("cuda_copy_async_16" in source for source in sources_of(LAST, "sm_90a"))


@pytest.mark.parametrize("most", [1 << 29, 8])
def test_symbolic_images_are_counted_in_32_bits_where_their_sizes_are_small_at_the_call(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "SMALL", most)
    monkeypatch.setattr(product_launch, "SMALL", most)
    assert_right(LAST, "cuda.matmul", 1e-2, sizes={"n": 2, "h": 5, "w": 4}, arch="sm_90a")
    *small, large = sources_of(LAST, "sm_90a")
    assert all("int number" in source for source in small if "mma" in source)
    assert "long long number" in large


def test_convolutions_that_lie_well_are_left_alone() -> None:
    graph = parsed(CASES["three by three"])
    assert ChannelsLast().run(graph, context_for()) is graph


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.thorough(every=3)
def test_kernels_of_resnet_compile_without_spills(arch: str) -> None:
    target = CudaTarget(arch)
    for text in (
        convolution(8, 4, (224, 224), 64, (7, 7), stride=2, padding=3),
        convolution(128, 256, (14, 14), 256, (3, 3), padding=1),
        convolution(1, 512, (7, 7), 512, (3, 3), padding=1),
        convolution(128, 64, (56, 56), 256, (1, 1)),
        convolution(1, 64, (7, 7), 64, (3, 3), "f32", padding=1),
    ):
        for source in target.sources(block_launches(only_task(parsed(text), arch).program.module)):
            cubin = compile_cubin(source, arch)
            assert [kernel for kernel, usage in cubin.usage.items() if usage.spill_bytes] == []
            assert cubin.remarks == ()
