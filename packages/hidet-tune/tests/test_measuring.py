"""What a measuring process does with trials, on the host and on a driver in Python whose kernels take a known time."""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hidet import dtypes
from hidet.cache import open_cache
from hidet.context import CompileContext, Options, make_context
from hidet.cuda import devices
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver, Launch
from hidet.ir import build, stmt
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.types import PointerType
from hidet.plugins.host import load_registry
from hidet.schedule.rule import Program
from hidet.target import KernelUsage
from hidet.tuning import measuring
from hidet.tuning.child import die_first
from hidet.tuning.device_calls import MOST_CALLS, MOST_COPIES
from hidet.tuning.measuring import Measurer
from hidet.tuning.measuring_child import serve
from hidet.tuning.trial import Buffer, ProgramText, TaskMemory, Trial, program_text, settings_of

SIZE = 256
MEMORY = TaskMemory((Buffer("float32", SIZE),), (Buffer("float32", SIZE),))
FINE, WRONG, LOST, HUNGRY = range(4)
"""What a kernel does: what it should, something else, or it loses the device; the last asks for too much memory."""


def square(repeats: int = 1, fault: int = FINE, scratch: int = 0) -> ProgramText:
    """A program that squares `SIZE` numbers, `repeats` times."""
    source, result = (Var(name, PointerType(dtypes.f32)) for name in ("source", "result"))
    spare = Var("spare", PointerType(dtypes.u8))
    item, again, i, n, times, kind = (build.size_var(name) for name in ("g", "t", "i", "n", "times", "kind"))
    value = build.load(source, i)
    wrong = build.const(1.0 if fault == WRONG else 0.0, dtypes.f32)
    write = stmt.Store(result, (i,), value * value + wrong)
    body = stmt.For(again, build.index(0), times, stmt.For(i, build.index(0), n, write))
    given = (source, result, *([spare] if scratch else []), n, times, kind)
    kernel = Function("square", given, body, kind="kernel", grid_vars=(item,))
    entry = Function("entry", given, stmt.Launch("square", (build.index(1),), given), kind="host")
    made = program_text(
        Program(Module((kernel, entry), "entry"), (SIZE, repeats, fault), scratch=(scratch,) if scratch else ())
    )
    assert made is not None
    return made


def trial(candidate: ProgramText | None, rounds: int = 3) -> Trial:
    return Trial(MEMORY, square(8), candidate, rounds)


@dataclass
class TimedDriver(FakeDriver):
    """Kernels are those of `square`, which take a microsecond a repetition. lost: launches find a lost device.

    used: where calls that were replayed have read.
    """

    recorded_words: int = 5
    now: float = 0.0
    lost: bool = False
    used: list[int] = field(default_factory=list)
    _times: dict[int, float] = field(default_factory=dict)

    def work(self, launch: Launch) -> None:
        source, result, count, times, fault = map(launch.word, range(5))
        self.now += 1e-3 * times
        self.used.append(source)
        x = np.ctypeslib.as_array((ctypes.c_float * count).from_address(source))
        np.ctypeslib.as_array((ctypes.c_float * count).from_address(result))[:] = x * x + (fault == WRONG)
        if fault == LOST:
            self.refused["cuStreamSynchronize"] = 700

    def cuDeviceGetAttribute(self, result: int, number: int, device: int) -> int:
        return super().cuDeviceGetAttribute(result, number, device) if number != 38 else _put(result, 16 * SIZE * 8)

    def cuEventRecord(self, event: int, stream: int | None) -> int:
        self._times[event] = self.now
        return 0

    def cuEventElapsedTime_v2(self, result: int, start: int, end: int) -> int:
        ctypes.c_float.from_address(result).value = self._times[end] - self._times[start]
        return 0


def _put(place: int, value: int) -> int:
    ctypes.c_int32.from_address(place).value = value
    return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[TimedDriver]:
    made = TimedDriver()
    made.on_launch = made.work
    functions = made.driver()
    monkeypatch.setattr(devices, "load_driver", lambda: functions)
    devices._make_device.cache_clear()
    yield made
    devices._make_device.cache_clear()


def answers_of(ctx: CompileContext, *messages: object) -> list[dict[str, Any]]:
    """What a measuring process would answer."""
    out = io.StringIO()
    serve(ctx, [json.dumps(message) for message in messages], out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def outcomes_on_device(*trials: Trial) -> list[dict[str, Any]]:
    """Answers to trials on the driver in Python."""
    cache = open_cache(enabled=False)
    ctx = CompileContext(
        target=CudaTarget("sm_80"), registry=load_registry(), options=Options(cache=False), cache=cache
    )
    return answers_of(ctx, *(asdict(each) for each in trials))[1:]


def test_on_a_device_calls_take_the_devices_time(driver: TimedDriver) -> None:
    (answer,) = outcomes_on_device(trial(square(2)))
    outcome = answer["outcome"]
    assert outcome["failure"] == "" and not answer["is_last"]
    np.testing.assert_allclose(outcome["default_seconds"], [8e-6] * 3, rtol=1e-4)
    np.testing.assert_allclose(outcome["seconds"], [2e-6] * 3, rtol=1e-4)


def test_calls_go_from_copy_to_copy_for_twice_the_cache(driver: TimedDriver) -> None:
    outcomes_on_device(trial(None, rounds=1))
    turn = driver.used[-125:]
    copies = 2 * 16 * 8 * SIZE // MEMORY.inputs[0].nbytes // 2
    assert copies == 32 == MOST_COPIES
    assert len(set(turn)) == copies and turn[:copies] == turn[copies : 2 * copies]
    assert len(driver.used) == 2 + 2 * 125 and MOST_CALLS > 125


def test_a_candidate_with_wrong_results_is_not_timed(driver: TimedDriver) -> None:
    wrong, fine = outcomes_on_device(trial(square(1, WRONG)), trial(square(1)))
    assert wrong["outcome"]["failure"].startswith("wrong results: output 0 differs by ")
    assert wrong["outcome"]["seconds"] == []
    assert fine["outcome"]["failure"] == ""


def test_a_candidate_that_loses_the_device_is_the_last_of_its_process(driver: TimedDriver) -> None:
    answers = outcomes_on_device(trial(square(1, LOST)), trial(square(1)))
    assert len(answers) == 1
    assert answers[0]["is_last"]
    assert answers[0]["outcome"]["failure"].startswith("DeviceLost: the CUDA device failed in kernel ")


def test_memory_that_the_device_has_not_is_the_candidates_failure(driver: TimedDriver) -> None:
    driver.free_bytes = 1 << 20
    hungry, fine = outcomes_on_device(trial(square(1, scratch=1 << 24)), trial(square(1)))
    assert hungry["outcome"]["failure"].startswith("DeviceOutOfMemory: cannot allocate ")
    assert fine["outcome"]["failure"] == "" and not hungry["is_last"]


def test_a_candidate_that_spills_more_than_the_default_is_refused(driver: TimedDriver, monkeypatch) -> None:
    spilled = iter([16, 32, 16, 0])  # of the default, then of each candidate
    monkeypatch.setattr(CudaTarget, "usage", lambda *_: {"square": KernelUsage(255, next(spilled), 0)})
    answers = outcomes_on_device(trial(square(1)), trial(square(2)), trial(square(3)))
    assert [answer["outcome"]["failure"] for answer in answers] == [
        "spills: 32 bytes a thread do not fit into registers, 16 of the default",
        "",
        "",
    ]


def test_the_host_refuses_scratch_memory_that_the_machine_has_not() -> None:
    ctx = make_context("cpu", {"threads": 1, "cache": False})
    hungry, fine = answers_of(ctx, asdict(trial(square(1, scratch=1 << 55))), asdict(trial(square(1))))[1:]
    assert hungry["outcome"]["failure"].startswith("OutOfMemory: ")
    assert fine["outcome"]["failure"] == "" and len(fine["outcome"]["seconds"]) == 3


def test_the_system_ends_a_measuring_process_first(tmp_path, monkeypatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("pathlib.Path.write_text", lambda path, text: written.append(f"{path} {text}"))
    die_first()
    assert written == ["/proc/self/oom_score_adj 1000"]


@pytest.fixture
def measurer() -> Iterator[Measurer]:
    settings = settings_of(make_context("cpu", {"cache": False}), threads=1)
    with Measurer(settings, 20.0) as made:
        yield made


def test_a_process_that_somebody_kills_is_started_again_and_no_candidate_is_blamed(measurer: Measurer) -> None:
    assert measurer.run(trial(None)).failure == ""
    first = measurer._process
    os.kill(first.pid, signal.SIGKILL)
    outcome = measurer.run(trial(square(1)))
    assert outcome.failure == "" and len(outcome.seconds) == 3
    assert measurer._process is not first
    assert measurer.device != ""


@pytest.mark.parametrize("ending", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_a_candidate_that_ends_its_process_is_refused_with_the_signal(
    measurer: Measurer, ending: signal.Signals
) -> None:
    assert measurer.run(trial(None)).failure == ""
    process = measurer._process
    process.send_signal(ending)
    process.wait()
    assert measurer.run(trial(square(1))).failure == f"crashed: signal {int(ending)}"
    assert measurer.run(trial(square(1))).failure == ""


def test_a_trial_that_the_budget_ends_blames_nobody(measurer: Measurer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "AGAIN_SECONDS", 0.1)
    with pytest.raises(TimeoutError, match=r"not ended within 0\.3 s"):
        measurer.run(trial(square(1 << 50)), most=0.2)
    assert measurer.run(trial(square(1))).failure == ""


def test_a_trial_that_ends_soon_after_its_time_ends_no_process(measurer: Measurer) -> None:
    assert measurer.run(trial(None)).failure == ""
    process = measurer._process
    assert measurer.run(trial(square(1)), most=1e-6).failure == ""
    assert measurer._process is process


def test_numbers_of_devices_are_part_of_what_a_process_measures_on() -> None:
    ctx = make_context("cpu", {"cache": False})
    assert settings_of(ctx, 2).target == "cpu"
    assert settings_of(replace(ctx, target=CudaTarget("1")), 2).target == "cuda:1"


STARTS = """
import time
from hidet.tuning.measuring import Measurer
from hidet.tuning.trial import Settings

measurer = Measurer(Settings("cpu", 1), 60.0)
measurer._ready_process()
print(measurer._process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux offers")
def test_a_measuring_process_that_hangs_ends_with_the_one_that_started_it() -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True)
    measuring = int(starter.stdout.readline())
    os.kill(measuring, signal.SIGSTOP)  # it reads nothing any more
    starter.kill()
    starter.wait()
    starter.stdout.close()
    status = Path(f"/proc/{measuring}/stat")
    end = time.monotonic() + 20
    while time.monotonic() < end and is_alive(status):
        time.sleep(0.05)
    assert not is_alive(status)


def is_alive(status: Path) -> bool:
    """Whether a process is there, and not only waits for somebody to learn of its end."""
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
