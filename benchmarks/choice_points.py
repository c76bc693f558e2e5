"""Programs of a task by points of its rule's space: built, compiled, checked and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from benchmarks.choice_cases import DTYPES, Case
from hidet import dims
from hidet.compiler.modules import compile_module
from hidet.context import CompileContext
from hidet.errors import CompileError, ScheduleError
from hidet.fusion.fuse import fuse
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.func import Function, Module
from hidet.ir.scalar_numpy import round_to_tf32
from hidet.ir.stmt import Invoke
from hidet.ir.structural import structural_hash
from hidet.ir.types import element_dtype
from hidet.passes.manager import run_graph_passes
from hidet.runtime.module import CompiledModule
from hidet.schedule.claims import claims
from hidet.schedule.rule import Choice, Program
from hidet.schedule.select import ScheduledGraph, ScheduledTask, select_schedules
from hidet.schedule.shared_programs import build as build_choice
from hidet.schedule.shortlist import predicted, shortlist, space_of
from hidet.testing.numerics import Sample, Verdict, check_output
from hidet.testing.scheduled import run_scheduled

Array = np.ndarray[Any, Any]
_NumpyType = np.dtype[Any]

_CACHE_BYTES = 120e6
"""More than twice the second-level cache of the largest GPU."""
_MOST_INPUTS = 40
_TURN = 1e-3
_SUM_ALLOWANCE = 4e-7
"""Relative error of the order of sums, times the root of their terms."""


@dataclass(frozen=True, eq=False)
class Point:
    """A program of a case's task. knobs: the values of the space's knobs that its parameters come of, in words.
    predicted: seconds by the cost model; None without one. by_published: as it is before the device is measured."""

    knobs: str
    predicted: float | None
    by_published: float | None
    program: Program


@dataclass(frozen=True, eq=False)
class Points:
    """What may be chosen for a case's last task, which is the measured one.

    points: the default first, then others as the cost model ranks them. failed: those that could not be built, with the
    reason.
    """

    rule: str
    scheduled: ScheduledGraph
    points: tuple[Point, ...]
    failed: tuple[str, ...] = ()

    @property
    def steps(self) -> list[ScheduledTask]:
        """All tasks of the case: those before the last one make what it reads."""
        return [step for step in self.scheduled.steps if isinstance(step, ScheduledTask)]

    @property
    def inputs(self) -> int:
        """How many arrays of the task's memory are inputs."""
        return len(self.steps[-1].task.inputs)


class Timer(Protocol):
    """A program on its memory."""

    def result(self) -> Array:
        """What one call gives: the task's first output, flat."""

    def seconds(self, budget: float) -> float:
        """Of a call, the shortest of those that `budget` seconds are spent on."""


def points_of(case: Case, ctx: CompileContext, most: int | None) -> Points:
    """The programs of a case's last task, at most `most` besides the default; None for the whole space."""
    scheduled = select_schedules(fuse(run_graph_passes(case.graph(ctx), ctx), ctx), ctx)
    measured = [step for step in scheduled.steps if isinstance(step, ScheduledTask)][-1]
    claim = next(claims(measured.task, ctx, []))
    points: list[Point] = []
    failed: list[str] = []
    # Of another machine only what is published is known.
    elsewhere = replace(ctx, machine="another")
    words = {
        params: "; ".join(f"{name} {value}" for name, value in values.items())
        for values, params in space_of(claim.rule, claim.match, ctx).points()
    }
    for params in shortlist(claim.rule, claim.match, ctx, most or 0, level=2 if most is None else 1):
        try:
            built = build_choice(Choice(claim.spec.name, claim.rule, claim.match, params), ctx)
        except ScheduleError as error:
            failed.append(f"{words.get(params, params)}: {error.message}")
            continue
        expected, published = (predicted(claim.rule, claim.match, params, each) for each in (ctx, elsewhere))
        points.append(Point(words.get(params, str(params)), expected, published, built.program))
    return Points(claim.spec.name, scheduled, tuple(points), tuple(failed))


def memory_of(points: Points, case: Case, ctx: CompileContext, seed: int = 0) -> list[Array]:
    """Arrays of the measured task's inputs, made by the tasks before it, then of its outputs; all flat."""
    kept: list[Array] = []
    measured = points.steps[-1]

    def run(step: ScheduledTask, module: Module, arguments: Sequence[Any]) -> None:
        types = [param.type for param in module.function(module.entry).params]
        arrays = [
            given.view(element_dtype(type_).numpy())
            for given, type_ in zip(arguments, types, strict=True)
            if isinstance(given, np.ndarray)
        ]
        if step is measured:
            kept.extend(arrays[: len(step.task.inputs) + len(step.task.outputs)])
            return
        numbers, memory = arguments[len(arrays) :], ctx.target.memory
        function = compile_module(module, ctx)[module.entry]
        if memory is None:
            function(*arrays, *numbers)
            return
        placed = [memory.place(array) for array in arrays]
        function(*placed, *numbers)
        memory.synchronize()
        for array, other in zip(arrays, placed, strict=True):
            array[...] = memory.download(other)

    run_scheduled(points.scheduled, [_numpy(x) for x in case.inputs(seed, "cpu")], run=run)
    return kept


def compile_points(points: Points, ctx: CompileContext) -> Points:
    """The points with those left away, as failed, whose programs do not compile; the machine code of all others is in
    the kernel cache. CompileError for the default, and for what makes its inputs."""
    for step in points.steps[:-1]:
        compile_module(step.program.module, ctx, loads_at_first_call=True)
    compiled: list[Point] = []
    failed = list(points.failed)
    for point in points.points:
        try:
            compile_module(_timed_module(point.program, ctx), ctx, loads_at_first_call=True)
        except CompileError as error:
            if point is points.points[0]:
                raise
            failed.append(f"{point.knobs}: {error.message}")
        else:
            compiled.append(point)
    return replace(points, points=tuple(compiled), failed=tuple(failed))


def timers_of(points: Points, memory: Sequence[Array], ctx: CompileContext) -> list[Timer]:
    """The program of each point, compiled and loaded, all on the same memory, as `memory_of` gives it. Points whose
    programs are equal share a timer."""
    on_host = ctx.target.memory is None
    placed: Any = _HostMemory(memory, points.inputs) if on_host else _DeviceMemory(memory, points.inputs)
    found: dict[object, Timer] = {}
    timers = []
    for point in points.points:
        program = point.program
        numbers = tuple(dims.evaluate(size, {}) for size in program.arguments)
        scratch = tuple(dims.evaluate(size, {}) for size in program.scratch)
        key = (structural_hash(program.module), numbers, scratch)
        if key not in found:
            module = _timed_module(program, ctx)
            types = [param.type for param in module.function(module.entry).params]
            elements = [element_dtype(type_).numpy() for type_ in types[: len(types) - len(numbers)]]
            compiled = compile_module(module, ctx)
            found[key] = placed.timer(compiled, elements, scratch, numbers)
        timers.append(found[key])
    return timers


def _timed_module(program: Program, ctx: CompileContext) -> Module:
    """The module of a program, on a CPU with a function that calls it again and again: a call from Python takes
    longer than small programs do."""
    module = program.module
    if ctx.target.memory is not None:
        return module
    entry, count = module.function(module.entry), build.size_var("count")
    k = IRBuilder()
    params = tuple(replace(param) for param in entry.params)
    with k.for_range("call", count):
        k.emit(Invoke(entry.name, params))
    repeat = Function("repeat", (*params, count), k.body, kind="host")
    return replace(module, functions=(*module.functions, repeat))


class _HostMemory:
    """Arrays of a task on the host, its data in the caches as far as they fit."""

    def __init__(self, memory: Sequence[Array], inputs: int) -> None:
        self._arrays = [_aligned(array) for array in memory]
        self.output = self._arrays[inputs]

    def timer(
        self, compiled: CompiledModule, elements: Sequence[_NumpyType], scratch: Sequence[int], numbers: Sequence[int]
    ) -> CpuTimer:
        """A program on these arrays and scratch memory of its own."""
        arrays = [*self._arrays, *(_aligned(np.zeros(nbytes, np.uint8)) for nbytes in scratch)]
        views = [array.view(dtype) for array, dtype in zip(arrays, elements, strict=True)]
        return CpuTimer(lambda count: compiled["repeat"](*views, *numbers, count), self.output)


class CpuTimer:
    """A program on the host. call: makes so many calls of it."""

    def __init__(self, call: Callable[[int], object], output: Array) -> None:
        self._call, self._output, self._count = call, output, 0

    def result(self) -> Array:
        self._output.view(np.uint8)[:] = 0xFF
        self._call(1)
        return self._output.copy()

    def seconds(self, budget: float) -> float:
        if not self._count:
            self._count = 1
            while (taken := self._timed()) < _TURN:
                self._count = max(2 * self._count, min(64 * self._count, int(_TURN / taken * self._count)))
        end, best = time.perf_counter() + budget, self._timed()
        while time.perf_counter() < end:
            best = min(best, self._timed())
        return best / self._count

    def _timed(self) -> float:
        start = time.perf_counter()
        self._call(self._count)
        return max(time.perf_counter() - start, 1e-9)


class _DeviceMemory:
    """Tensors of a task on a GPU, as many times as together fit into no cache."""

    def __init__(self, memory: Sequence[Array], inputs: int) -> None:
        nbytes = sum(array.nbytes for array in memory)
        count = max(2, min(_MOST_INPUTS, int(_CACHE_BYTES // max(nbytes, 1)) + 1))
        self._sets = [[_on_device(array) for array in memory] for _ in range(count)]
        self._output, self._dtype = self._sets[0][inputs], memory[inputs].dtype

    def timer(
        self, compiled: CompiledModule, elements: Sequence[_NumpyType], scratch: Sequence[int], numbers: Sequence[int]
    ) -> CudaTimer:
        """A program on these tensors and scratch memory of its own."""
        extra = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in scratch]
        kinds = [_torch_dtype(dtype) for dtype in elements]
        calls = []
        for tensors in self._sets:
            views = [tensor.view(kind) for tensor, kind in zip((*tensors, *extra), kinds, strict=True)]
            calls.append(partial(compiled[compiled.ir_module.entry], *views, *numbers))
        return CudaTimer(calls, self._output, self._dtype)


class CudaTimer:
    """A program on a GPU: replays of a CUDA graph of its calls. output: of the first of them, as bytes."""

    def __init__(self, calls: Sequence[Callable[[], object]], output: torch.Tensor, dtype: _NumpyType) -> None:
        self._calls, self._output, self._dtype = calls, output, dtype
        self._graph: torch.cuda.CUDAGraph | None = None

    def result(self) -> Array:
        self._output.fill_(0xFF)
        self._calls[0]()
        torch.cuda.synchronize()
        return self._output.cpu().numpy().view(self._dtype)

    def seconds(self, budget: float) -> float:
        if self._graph is None:
            self._graph = self._captured()
        stream = torch.cuda.current_stream()
        end, best = time.perf_counter() + budget, float("inf")
        while best == float("inf") or time.perf_counter() < end:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
            first.record(stream)  # type: ignore[no-untyped-call]  # as above
            self._graph.replay()
            last.record(stream)  # type: ignore[no-untyped-call]  # as above
            last.synchronize()  # type: ignore[no-untyped-call]  # as above
            best = min(best, first.elapsed_time(last) / 1e3)  # type: ignore[no-untyped-call]  # as above
        return best / len(self._calls)

    def _captured(self) -> torch.cuda.CUDAGraph:
        own, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            for call in self._calls:
                call()
            with torch.cuda.graph(graph, stream=own):
                for call in self._calls:
                    call()
        graph.replay()
        torch.cuda.synchronize()
        return graph


@dataclass(frozen=True, eq=False)
class Reference:
    """What a case's result is: by torch in the elements' type, for tf32 of rounded inputs, and in float64."""

    eager: Array
    exact: Array
    terms: int

    def check(self, result: Array) -> Verdict:
        """Judge a result, which is flat."""
        allowance = _SUM_ALLOWANCE * self.terms**0.5
        return check_output("result", [Sample(result.ravel(), self.eager.ravel(), self.exact.ravel())], allowance)


def reference_of(case: Case, device: str, seed: int = 0) -> Reference:
    """A case's result by torch."""
    inputs = case.inputs(seed, device)
    exact = case.compute(*(x.double() for x in inputs)).contiguous().cpu().numpy()
    if case.dtype == "tf32":
        # cuBLAS does not round where it has no kernel that does, as for odd sizes and one row.
        rounded = [torch.from_numpy(round_to_tf32(x.cpu().numpy())).to(x.device) for x in inputs]
        eager = case.compute(*(x.double() for x in rounded)).float().contiguous().cpu().numpy()
    else:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                eager = _numpy(case.compute(*inputs).contiguous().cpu())
        finally:
            torch.set_float32_matmul_precision(before)
    return Reference(eager, exact, max(1, case.multiply_adds // max(1, exact.size)))


def _numpy(tensor: torch.Tensor) -> Array:
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    found: Array = tensor.numpy()
    return found


def _on_device(array: Array) -> torch.Tensor:
    """Its bytes."""
    return torch.from_numpy(array.view(np.uint8).copy()).cuda()


def _torch_dtype(dtype: _NumpyType) -> torch.dtype:
    found = DTYPES.get({"float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(dtype.name, ""))
    return found or getattr(torch, dtype.name)


def _aligned(array: Array) -> Array:
    """A copy from a multiple of 64 bytes on."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + array.nbytes].view(array.dtype)
    found[:] = array
    return found
