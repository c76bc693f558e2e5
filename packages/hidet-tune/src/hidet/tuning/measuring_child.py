"""The process that runs programs which may crash or never end: a line of JSON for each trial, and one for its outcome.
The first line is for its settings, which it answers with `READY`.

Started by `hidet.tuning.measuring`; ends when its input does.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.compiler.modules import compile_module
from hidet.context import CompileContext, make_context
from hidet.ir.parser import parse_module
from hidet.ir.types import element_dtype
from hidet.runtime.module import CompiledModule
from hidet.tuning.trial import Buffer, Outcome, ProgramText, Settings, TaskMemory, Trial, trial_from

Array = np.ndarray[Any, Any]

READY = "ready"
"""The first line, after which trials are asked for."""

TURN = 1e-3
"""Seconds of calls in a turn, at least one call."""

_ALIGNMENT = 64


def main() -> None:
    """Answer trials on standard input. What programs print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    settings = Settings(**json.loads(sys.stdin.readline()))
    # Code of candidates that nobody will use stays out of the kernel cache.
    ctx = make_context(settings.target, {**settings.options, "threads": settings.threads, "cache": False})
    runner = _Runner(ctx)
    answers.write(READY + "\n")
    for line in sys.stdin:
        try:
            outcome = runner.run(trial_from(json.loads(line)))
        except Exception as error:  # noqa: BLE001  # whatever a candidate raises is why it is not used
            outcome = Outcome(failure=f"{type(error).__name__}: {error}")
        answers.write(json.dumps(asdict(outcome)) + "\n")


class _Runner:
    """Compiled programs, the last default kept, because it is measured beside every point of its task."""

    def __init__(self, ctx: CompileContext) -> None:
        self.ctx = ctx
        self._compiled: dict[str, CompiledModule] = {}

    def run(self, trial: Trial) -> Outcome:
        programs = [trial.default, *([] if trial.candidate is None else [trial.candidate])]
        self._compiled = {p.digest: self._compiled.get(p.digest) or self._compile(p) for p in programs}
        memories = [_Memory(trial.memory, program, trial.seed) for program in programs]
        calls = [self._call(program, memory) for program, memory in zip(programs, memories, strict=True)]
        for call in calls:
            call()
        if trial.candidate is not None:
            failure = _difference(memories[0], memories[-1], trial.memory.terms)
            if failure:
                return Outcome(failure=failure)
        counts = [_calls_of_a_turn(call) for call in calls]
        seconds: list[list[float]] = [[] for _ in calls]
        order = list(range(len(calls)))
        for number in range(trial.rounds):
            # Whoever comes first in a round comes last in the next one.
            for place in order if number % 2 == 0 else reversed(order):
                seconds[place].append(_seconds_of_a_call(calls[place], counts[place]))
        return Outcome(tuple(seconds[0]), tuple(seconds[1]) if trial.candidate is not None else ())

    def _compile(self, program: ProgramText) -> CompiledModule:
        return compile_module(parse_module(program.module, self.ctx.registry.intrinsic_rows()), self.ctx)

    def _call(self, program: ProgramText, memory: _Memory) -> Callable[[], object]:
        module = self._compiled[program.digest]
        types = [param.type for param in module.ir_module.function(module.ir_module.entry).params]
        arrays = [
            array.view(element_dtype(type_).numpy())
            for array, type_ in zip(memory.arrays, types, strict=False)  # numbers follow
        ]
        function, numbers = module[module.ir_module.entry], program.arguments
        return lambda: function(*arrays, *numbers)


class _Memory:
    """Inputs, the same for the same seed, and outputs and scratch memory that hold NaN, or all bits, at first."""

    def __init__(self, task: TaskMemory, program: ProgramText, seed: int) -> None:
        generator = np.random.default_rng(seed)
        inputs = [_random(buffer, generator) for buffer in task.inputs]
        shared = dict(task.in_place)
        self.outputs = [
            inputs[shared[number]] if number in shared else _filled(buffer)
            for number, buffer in enumerate(task.outputs)
        ]
        scratch = [_aligned(nbytes) for nbytes in program.scratch]
        self.arrays: Sequence[Array] = (*inputs, *self.outputs, *scratch)


def _random(buffer: Buffer, generator: np.random.Generator) -> Array:
    array = _filled(buffer)
    dtype = dtypes.dtype(buffer.dtype)
    if dtype.is_float:
        array[:] = np.asarray(generator.standard_normal(array.shape))
    else:
        array[:] = generator.integers(0, 2 if dtype.is_bool else buffer.bound, array.shape)
    return array


def _filled(buffer: Buffer) -> Array:
    dtype = dtypes.dtype(buffer.dtype).numpy()
    return _aligned(buffer.elements * dtype.itemsize).view(dtype)


def _aligned(nbytes: int) -> Array:
    """Bytes of ones at a multiple of what programs may rely on."""
    memory = np.full(nbytes + _ALIGNMENT, 0xFF, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes]


def _difference(default: _Memory, candidate: _Memory, terms: int) -> str:
    """How the results of a candidate differ from the default's by more than the order of sums explains; "" for not."""
    for number, (right, found) in enumerate(zip(default.outputs, candidate.outputs, strict=True)):
        dtype = dtypes.from_numpy(right.dtype)
        if not dtype.is_float:
            if not np.array_equal(right, found):
                return f"wrong results: output {number} differs"
            continue
        expected, got = right.astype(np.float64), found.astype(np.float64)
        is_finite = np.isfinite(expected)
        if not np.array_equal(expected[~is_finite], got[~is_finite], equal_nan=True):
            return f"wrong results: output {number} differs in infinities or NaN"
        if not is_finite.any():
            continue
        summed = dtypes.f64 if dtype == dtypes.f64 else dtypes.f32
        limit = 4 * dtype.unit_roundoff + 8 * math.sqrt(terms) * summed.unit_roundoff
        scale = float(np.abs(expected[is_finite]).max())
        worst = float(np.abs(expected - got)[is_finite].max())
        if not worst <= limit * scale:
            return (
                f"wrong results: output {number} differs by {worst / (scale or 1.0):.1e}, expected {limit:.1e} at most"
            )
    return ""


def _calls_of_a_turn(call: Callable[[], object]) -> int:
    return max(1, math.ceil(TURN / max(_seconds_of_a_call(call, 1), 1e-7)))


def _seconds_of_a_call(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    main()
