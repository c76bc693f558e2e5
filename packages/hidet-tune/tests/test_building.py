"""Processes that compile programs ahead of measurements."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hidet import dtypes
from hidet.cache import KernelCache
from hidet.context import make_context
from hidet.cpu.target import CpuTarget
from hidet.ir import build, stmt
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.types import PointerType
from hidet.schedule.rule import Program
from hidet.tuning.building import Builders
from hidet.tuning.executor import LocalExecutor
from hidet.tuning.loaded import compile_program
from hidet.tuning.trial import ProgramText, Settings, program_text, settings_of

LONG = 30.0


def program(value: float) -> ProgramText:
    """One that writes a number."""
    result = Var("result", PointerType(dtypes.f32))
    body = stmt.Store(result, (build.index(0),), build.const(value, dtypes.f32))
    made = program_text(Program(Module((Function("entry", (result,), body, kind="host"),), "entry")))
    assert made is not None
    return made


@pytest.fixture
def builders(tmp_path: Path) -> Iterator[Builders]:
    settings = settings_of(make_context("cpu", {}), threads=1)
    with Builders(settings, str(tmp_path), 2) as made:
        yield made


def entries(folder: Path) -> int:
    return len(list(KernelCache(folder).entries()))


def test_programs_that_are_announced_are_in_the_cache_of_the_one_that_measures(builders, tmp_path, monkeypatch) -> None:
    programs = [program(float(number)) for number in range(4)]
    builders.announce(programs)
    for each in programs:
        builders.wait(each, LONG)
    ctx = make_context("cpu", {"threads": 1})
    there = replace(ctx, cache=KernelCache(tmp_path))
    monkeypatch.setattr(CpuTarget, "compile", lambda *_: pytest.fail("it was compiled again"))
    for each in programs:
        assert compile_program(each, there, ctx.registry.intrinsic_rows()).binaries


def test_a_program_that_nobody_has_announced_is_compiled_when_it_is_waited_for(builders, tmp_path) -> None:
    builders.wait(program(1.0), LONG)
    assert entries(tmp_path) == 1


def test_a_program_that_cannot_be_compiled_keeps_nobody_waiting(builders, tmp_path) -> None:
    start = time.monotonic()
    builders.wait(replace(program(1.0), module="def", code="broken"), LONG)
    assert time.monotonic() - start < LONG
    builders.wait(program(1.0), LONG)
    assert entries(tmp_path) == 1


def test_a_builder_that_is_killed_is_started_again(builders, tmp_path) -> None:
    builders.wait(program(1.0), LONG)
    for process in list(builders._processes):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    # What a process is asked that has ended may be lost; whoever measures it compiles it then.
    builders.wait(program(2.0), LONG)
    builders.wait(program(3.0), LONG)
    builders.wait(program(4.0), LONG)
    assert entries(tmp_path) >= 2


def test_waiting_ends_with_the_time_that_there_is(tmp_path) -> None:
    builders = Builders(Settings("cpu", 1), str(tmp_path), 0)
    with builders:
        start = time.monotonic()
        builders.wait(program(1.0), 0.1)
        assert 0.1 <= time.monotonic() - start < LONG


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_closing_ends_all_processes(tmp_path) -> None:
    settings = settings_of(make_context("cpu", {}), threads=1)
    with Builders(settings, str(tmp_path), 2) as builders:
        builders.wait(program(1.0), LONG)
        processes = [process.pid for process in builders._processes]
    end = time.monotonic() + LONG
    while time.monotonic() < end and any(Path(f"/proc/{number}").exists() for number in processes):
        time.sleep(0.05)
    assert processes and not any(Path(f"/proc/{number}").exists() for number in processes)


def test_on_a_cpu_nothing_is_compiled_beside_a_measurement() -> None:
    executor = LocalExecutor(Settings("cpu", 1), LONG)
    assert executor._builders is None
