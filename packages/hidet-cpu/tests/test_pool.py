"""The thread pool: every iteration runs exactly once, whoever calls, however often, and whatever else goes on."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hidet.cache import KernelCache
from hidet.cpu import pool as pool_module
from hidet.cpu import pool_code
from hidet.cpu.arch import arch_from_text, host_arch
from hidet.cpu.loader import LIBC_SYMBOLS, LoadedCode, load_objects
from hidet.cpu.object_symbols import read_symbols
from hidet.cpu.pool import ThreadPool, pool_symbols, shared_pool
from hidet.cpu.toolchain import compile_object
from hidet.errors import CodegenError, OptionError

threaded = pytest.mark.skipif(not pool_code.has_threads(host_arch()), reason="the pool has no workers on this system")

# `mark` adds 1 to counters[begin..end); `mark_rows` does so for 8 counters an iteration, in a nested region.
KERNELS = """
declare void @hidet_parallel(ptr, ptr, ptr, i64)
%row = type { ptr, ptr }

define void @mark(ptr %counters, i64 %begin, i64 %end) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i32, ptr %counters, i64 %i
  %old = load i32, ptr %p
  %new = add i32 %old, 1
  store i32 %new, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @mark_rows(ptr %row, i64 %begin, i64 %end) nounwind {
entry:
  %pool = load ptr, ptr %row
  %counters.p = getelementptr %row, ptr %row, i32 0, i32 1
  %counters = load ptr, ptr %counters.p
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %first = mul i64 %i, 8
  %inner = getelementptr i32, ptr %counters, i64 %first
  call void @hidet_parallel(ptr %pool, ptr @mark, ptr %inner, i64 8)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @repeat(ptr %pool, ptr %counters, i64 %count, i64 %times) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @hidet_parallel(ptr %pool, ptr @mark, ptr %counters, i64 %count)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

Region = Callable[[int, int], None]
_PARALLEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_REGION_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_REPEAT_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(scope="module")
def kernels() -> LoadedCode:
    return load_objects([compile_object(KERNELS, host_arch(), 1)], pool_symbols())


def parallel(pool: ThreadPool, function: int, arguments: int, count: int) -> None:
    _PARALLEL_TYPE(pool_symbols()[pool_code.PARALLEL])(pool.address, function, arguments, count)


def parallel_python(pool: ThreadPool, region: Region, count: int) -> None:
    """Run a Python function as the body of a region."""
    callback = _REGION_TYPE(lambda _, begin, end: region(begin, end))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    parallel(pool, address, 0, count)


def marked(pool: ThreadPool, kernels: LoadedCode, count: int, times: int = 1) -> list[int]:
    """How often each of `count` iterations ran in `times` regions, and two guards that must stay 0."""
    counters = (ctypes.c_int32 * (max(count, 0) + 2))()
    start = ctypes.addressof(counters) + 4
    _REPEAT_TYPE(kernels.address("repeat"))(pool.address, start, count, times)
    return list(counters)


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20.0
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def field(pool: ThreadPool, offset: int) -> int:
    return ctypes.c_int32.from_address(pool.address + offset).value


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [-5, 0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 1000, 12345])
def test_every_iteration_runs_exactly_once(kernels: LoadedCode, num_threads: int, count: int) -> None:
    pool = shared_pool(num_threads)
    assert marked(pool, kernels, count, times=5) == [0, *[5] * max(count, 0), 0]


def test_without_a_pool_the_caller_runs_alone(kernels: LoadedCode) -> None:
    calls: list[tuple[int, int]] = []
    parallel_python(ThreadPool(0, 1), lambda begin, end: calls.append((begin, end)), 1000)
    assert calls == [(0, 1000)]


def test_thousands_of_short_regions_lose_nothing(kernels: LoadedCode) -> None:
    assert marked(shared_pool(4), kernels, 37, times=20_000) == [0, *[20_000] * 37, 0]


def test_eight_callers_may_share_one_pool(kernels: LoadedCode) -> None:
    pool = shared_pool(3)
    results: list[list[int]] = []
    counts = [1, 2, 5, 16, 33, 64, 100, 501]
    threads = [
        threading.Thread(target=lambda count=count: results.append(marked(pool, kernels, count, times=3000)))
        for count in counts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results, key=len) == [[0, *[3000] * count, 0] for count in counts]
    assert field(pool, pool_code.OWNER) == 0 and field(pool, pool_code.STATE) == 0


def test_a_nested_region_runs_in_its_caller(kernels: LoadedCode) -> None:
    pool = shared_pool(2)
    counters = (ctypes.c_int32 * (50 * 8))()
    row = (ctypes.c_void_p * 2)(pool.address, ctypes.addressof(counters))
    for _ in range(20):
        parallel(pool, kernels.address("mark_rows"), ctypes.addressof(row), 50)
    assert list(counters) == [20] * 400


@threaded
@pytest.mark.parametrize(("num_threads", "count"), [(2, 2), (2, 9), (3, 1000), (4, 3), (4, 18)])
def test_chunks_depend_on_the_count_and_the_threads_alone(num_threads: int, count: int) -> None:
    pool = shared_pool(num_threads)
    runs = []
    for _ in range(5):
        calls: list[tuple[int, int]] = []
        parallel_python(pool, lambda begin, end, calls=calls: calls.append((begin, end)), count)  # type: ignore[misc]
        runs.append(sorted(calls))
    assert all(run == runs[0] for run in runs)
    sizes = [end - begin for begin, end in runs[0]]
    assert sum(sizes) == count and max(sizes) - min(sizes) <= 1
    assert len(sizes) <= pool_code.MAX_CHUNKS_PER_THREAD * num_threads
    assert [begin for begin, _ in runs[0]] == [0, *[end for _, end in runs[0]]][:-1]


@threaded
def test_threads_really_work_side_by_side() -> None:
    barrier = threading.Barrier(2, timeout=20.0)
    seen: list[int] = []

    def meet(begin: int, end: int) -> None:
        barrier.wait()
        seen.append(threading.get_native_id())

    parallel_python(shared_pool(2), meet, 2)
    assert len(set(seen)) == 2


@threaded
def test_the_caller_takes_over_the_chunks_of_a_worker_that_is_late() -> None:
    pool = shared_pool(2)
    caller = threading.get_native_id()
    worker_entered = threading.Event()
    others_done = threading.Event()
    by_thread: dict[int, int] = {}

    def work(begin: int, end: int) -> None:
        thread = threading.get_native_id()
        if thread == caller:
            assert worker_entered.wait(20.0)
        elif not worker_entered.is_set():
            worker_entered.set()
            assert others_done.wait(20.0)
        by_thread[thread] = by_thread.get(thread, 0) + end - begin
        if by_thread.get(caller, 0) == 7:
            others_done.set()

    parallel_python(pool, work, 8)
    assert by_thread.pop(caller) == 7
    assert list(by_thread.values()) == [1]


@threaded
def test_a_second_caller_does_not_wait_for_the_first() -> None:
    pool = shared_pool(2)
    first_runs, second_done = threading.Event(), threading.Event()

    def wait_for_second(begin: int, end: int) -> None:
        first_runs.set()
        assert second_done.wait(20.0)

    first = threading.Thread(target=parallel_python, args=(pool, wait_for_second, 2))
    first.start()
    assert first_runs.wait(20.0)
    calls: list[tuple[int, int]] = []
    parallel_python(pool, lambda begin, end: calls.append((begin, end)), 100)
    second_done.set()
    first.join()
    assert calls == [(0, 100)]


@threaded
def test_a_caller_that_waits_long_sleeps_until_the_worker_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_SPIN", "0")
    pool = pool_module._make_pool(2, pin=False, cache=None)
    caller = threading.get_native_id()
    entered, leave = threading.Event(), threading.Event()
    done: list[int] = []

    def work(begin: int, end: int) -> None:
        if threading.get_native_id() == caller_of_region[0]:
            assert entered.wait(20.0)
        else:
            entered.set()
            assert leave.wait(20.0)
        done.append(begin)

    caller_of_region = [caller]

    def call() -> None:
        caller_of_region[0] = threading.get_native_id()
        parallel_python(pool, work, 2)

    thread = threading.Thread(target=call)
    thread.start()
    waiting = 1 << 29
    assert wait_until(lambda: field(pool, pool_code.STATE) == waiting | 1)
    leave.set()
    thread.join(20.0)
    assert not thread.is_alive()
    assert sorted(done) == [0, 1] and field(pool, pool_code.STATE) == 0


@pytest.fixture
def long_spinning_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPool]:
    monkeypatch.setenv("HIDET_SPIN", "60000000")
    pool = pool_module._make_pool(3, pin=False, cache=None)
    yield pool
    pool.quiesce()


@threaded
def test_idle_workers_spin_until_they_are_quiesced(long_spinning_pool: ThreadPool, kernels: LoadedCode) -> None:
    pool = long_spinning_pool
    for _ in range(3):
        assert marked(pool, kernels, 30) == [0, *[1] * 30, 0]
        time.sleep(0.005)
        assert field(pool, pool_code.SLEEPERS) == 0
        pool.quiesce()
        assert wait_until(lambda: field(pool, pool_code.SLEEPERS) == 2)


@threaded
def test_compiled_code_may_quiesce_too(long_spinning_pool: ThreadPool, kernels: LoadedCode) -> None:
    pool = long_spinning_pool
    quiesce = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(pool_symbols()[pool_code.QUIESCE])
    quiesce(None)
    marked(pool, kernels, 30)
    quiesce(pool.address)
    assert wait_until(lambda: field(pool, pool_code.SLEEPERS) == 2)


@threaded
def test_workers_sleep_by_themselves_and_wake_again(monkeypatch: pytest.MonkeyPatch, kernels: LoadedCode) -> None:
    monkeypatch.setenv("HIDET_SPIN", "0")
    pool = pool_module._make_pool(4, pin=False, cache=None)
    for _ in range(20):
        assert marked(pool, kernels, 30) == [0, *[1] * 30, 0]
        assert wait_until(lambda: field(pool, pool_code.SLEEPERS) == 3)


@threaded
def test_workers_start_with_the_first_region(kernels: LoadedCode) -> None:
    pool = pool_module._make_pool(3, pin=False, cache=None)
    before = len(os.listdir("/proc/self/task"))
    marked(pool, kernels, 1)
    assert len(os.listdir("/proc/self/task")) == before, "one iteration needs no worker"
    marked(pool, kernels, 2)
    assert len(os.listdir("/proc/self/task")) == before + 2


@threaded
def test_workers_may_be_pinned_to_the_cpus_of_the_process() -> None:
    pool = shared_pool(3, pin=True)
    assert pool is not shared_pool(3)
    allowed = sorted(os.sched_getaffinity(0))
    caller = threading.get_native_id()
    masks: set[frozenset[int]] = set()

    def look(begin: int, end: int) -> None:
        time.sleep(0.002)
        if threading.get_native_id() != caller:
            masks.add(frozenset(os.sched_getaffinity(0)))

    expected = {frozenset({allowed[index % len(allowed)]}) for index in (1, 2)}
    for _ in range(50):
        parallel_python(pool, look, 12)
    assert masks == expected
    assert sorted(os.sched_getaffinity(0)) == allowed


def test_pools_are_shared_by_all_who_ask_for_the_same() -> None:
    assert shared_pool(2) is shared_pool(2)
    assert shared_pool(2) is not shared_pool(3)
    assert shared_pool(1).address == 0
    assert shared_pool().num_threads >= 1


@pytest.mark.parametrize("num_threads", [0, -1, 5000])
def test_an_impossible_number_of_threads_is_refused(num_threads: int) -> None:
    with pytest.raises(CodegenError, match=f"{num_threads} threads"):
        shared_pool(num_threads)


@threaded
def test_a_spin_time_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_SPIN", "long")
    with pytest.raises(OptionError, match="'long'"):
        pool_module._make_pool(2, pin=False, cache=None)


def test_oversubscribed_pools_hardly_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIDET_SPIN", raising=False)
    monkeypatch.setattr(pool_module, "available_cpus", lambda: 4)
    assert pool_module._spin_us(5) < pool_module._spin_us(4) / 10


def test_the_code_of_the_pool_is_kept_in_the_cache(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    first = pool_module._pool_functions(cache)
    assert cache.status().entries == 1
    second = pool_module._pool_functions(KernelCache(tmp_path))
    assert first.names == second.names == {pool_code.PARALLEL, pool_code.QUIESCE, pool_code.PAUSE}


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "aarch64-generic", "neoverse-n1"])
def test_the_pool_compiles_for_each_linux_cpu_and_needs_only_allowed_functions(cpu: str) -> None:
    arch = arch_from_text(cpu)
    symbols = read_symbols(compile_object(pool_code.pool_text(arch), arch, 2))
    assert set(symbols.undefined) <= LIBC_SYMBOLS
    assert set(symbols.defined) == {pool_code.PARALLEL, pool_code.QUIESCE, pool_code.PAUSE}


def test_without_threads_the_same_functions_run_regions_in_the_caller() -> None:
    code = load_objects([compile_object(pool_code._SERIAL, host_arch(), 1)])
    calls: list[tuple[int, int]] = []
    callback = _REGION_TYPE(lambda _, begin, end: calls.append((begin, end)))
    run = _PARALLEL_TYPE(code.address(pool_code.PARALLEL))
    for count in (-1, 0, 1, 9):
        run(None, ctypes.cast(callback, ctypes.c_void_p), None, count)
    assert calls == [(0, 1), (0, 9)]


FORKING = """
import ctypes, os, sys, threading
from hidet.cpu.pool import pool_symbols, shared_pool

fork_inside_region = sys.argv[1] == "inside"
run_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
body_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
run = run_type(pool_symbols()["hidet_parallel"])
pool = shared_pool(3)
barrier_parties = 3

def meet_all_threads():
    barrier = threading.Barrier(barrier_parties, timeout=20)
    met = []
    @body_type
    def body(_, begin, end):
        barrier.wait()
        met.append(begin)
    run(pool.address, body, None, 3)
    return sorted(met) == [0, 1, 2]

assert meet_all_threads()
if fork_inside_region:
    inside, leave = threading.Event(), threading.Event()
    @body_type
    def hold(_, begin, end):
        inside.set()
        leave.wait(20)
    other = threading.Thread(target=run, args=(pool.address, hold, None, 3))
    other.start()
    assert inside.wait(20)
child = os.fork()
if child == 0:
    os._exit(0 if meet_all_threads() else 3)
_, status = os.waitpid(child, 0)
if fork_inside_region:
    leave.set()
    other.join()
assert meet_all_threads()
print("child", os.waitstatus_to_exitcode(status))
"""


@threaded
@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_forked_child_gets_workers_of_its_own(where: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, where]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr, result.returncode) == ("child 0\n", "", 0)


EXITING = """
import ctypes
from hidet.cpu.pool import pool_symbols, shared_pool
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(lambda *_: None)
run(pool_symbols()["hidet_parallel"])(shared_pool(4).address, body, None, 1000)
"""


@threaded
def test_a_process_with_spinning_workers_exits_cleanly() -> None:
    environment = {**os.environ, "HIDET_SPIN": "60000000"}
    command = [sys.executable, "-c", EXITING]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
