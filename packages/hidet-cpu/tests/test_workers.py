"""Batches of modules, compiled by child processes and by this one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hidet.cpu import workers
from hidet.cpu.arch import host_arch
from hidet.cpu.frames import REPLY, REQUEST, read_frame, write_frame
from hidet.cpu.toolchain import compile_object
from hidet.cpu.workers import compile_objects
from hidet.errors import CompileError, OptionError


def module(index: int) -> tuple[str, int]:
    return f"define i64 @kernel{index}() {{\n  ret i64 {index}\n}}\n", 1


BROKEN = ("define i64 @broken() {\n  ret i64 %missing\n}\n", 1)


def fake_worker(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let children run `code` in place of the worker module."""
    real = subprocess.Popen

    def start(command: list[str], **keywords: object) -> subprocess.Popen[bytes]:
        return real([sys.executable, "-S", "-c", code], **keywords)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(subprocess, "Popen", start)


def test_objects_come_back_in_order_whoever_compiled_them() -> None:
    batch = [module(index) for index in range(9)]
    expected = [compile_object(text, host_arch(), level) for text, level in batch]
    assert compile_objects(batch, host_arch(), worker_count=2) == expected
    assert compile_objects(batch, host_arch(), worker_count=0) == expected
    assert compile_objects(iter(batch), host_arch(), worker_count=1) == expected


def test_children_give_the_same_objects_as_this_process() -> None:
    text, level = module(5)
    with workers._Child(host_arch(), 30.0) as child:
        assert child.compile(text, level) == compile_object(text, host_arch(), level)


def test_an_empty_batch_is_nothing() -> None:
    assert compile_objects([], host_arch()) == []


def test_small_batches_start_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "available_cpus", lambda: 8)
    fake_worker(monkeypatch, "raise SystemExit(9)")
    batch = [module(index) for index in range(11)]
    assert len(compile_objects(batch, host_arch())) == 11


@pytest.mark.parametrize(
    ("modules", "cpus", "expected"), [(11, 8, 0), (12, 1, 0), (12, 2, 1), (12, 8, 2), (100, 8, 7), (100, 64, 20)]
)
def test_the_number_of_children_follows_from_modules_and_cpus(
    monkeypatch: pytest.MonkeyPatch, modules: int, cpus: int, expected: int
) -> None:
    monkeypatch.delenv("HIDET_NUM_WORKERS", raising=False)
    monkeypatch.setattr(workers, "available_cpus", lambda: cpus)
    assert workers._wanted_workers(modules, None) == expected


def test_the_environment_overrides_the_number_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_NUM_WORKERS", "3")
    assert workers._wanted_workers(5, None) == 3
    monkeypatch.setenv("HIDET_NUM_WORKERS", "many")
    with pytest.raises(OptionError, match="'many'"):
        workers._wanted_workers(5, None)


def test_a_frozen_application_starts_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert workers._wanted_workers(100, 4) == 0


def test_progress_counts_every_module_once() -> None:
    seen: list[tuple[int, int]] = []
    compile_objects([module(index) for index in range(5)], host_arch(), lambda *counts: seen.append(counts))
    assert seen == [(done, 5) for done in range(1, 6)]


def test_a_generator_is_consumed_while_children_work() -> None:
    seen: list[tuple[int, int]] = []

    def modules() -> Iterator[tuple[str, int]]:
        for index in range(6):
            yield module(index)

    objects = compile_objects(modules(), host_arch(), lambda *counts: seen.append(counts), worker_count=1)
    assert [len(data) > 0 for data in objects] == [True] * 6
    assert [done for done, _ in seen] == [1, 2, 3, 4, 5, 6]


def test_an_error_of_the_generator_passes_through() -> None:
    def modules() -> Iterator[tuple[str, int]]:
        yield module(0)
        raise KeyError("printer")

    with pytest.raises(KeyError, match="printer"):
        compile_objects(modules(), host_arch(), worker_count=1)


@pytest.mark.parametrize("worker_count", [0, 1])
def test_a_module_that_llvm_refuses_is_an_error(worker_count: int) -> None:
    with pytest.raises(CompileError, match="'broken', line 2"):
        compile_objects([module(0), BROKEN, module(1)], host_arch(), worker_count=worker_count)


def test_a_refusal_in_a_child_reads_as_here() -> None:
    with workers._Child(host_arch(), 30.0) as child:
        with pytest.raises(CompileError) as there:
            child.compile(*BROKEN)
        assert len(child.compile(*module(1))) > 0
    with pytest.raises(CompileError) as here:
        compile_object(BROKEN[0], host_arch(), BROKEN[1])
    assert str(there.value) == str(here.value)


def test_a_child_that_dies_is_an_error_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_worker(monkeypatch, "import os, sys; sys.stdin.buffer.read(8); os.write(2, b'bus error'); os._exit(7)")
    with (
        workers._Child(host_arch(), 30.0) as child,
        pytest.raises(CompileError, match="code 7 on kernel 'kernel4': bus error"),
    ):
        child.compile(*module(4))


def test_a_child_that_stalls_is_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_worker(monkeypatch, "import time; time.sleep(60)")
    with workers._Child(host_arch(), 0.1) as child, pytest.raises(CompileError, match=r"'kernel4' within 0\.1 s"):
        child.compile(*module(4))


def test_a_batch_ends_with_the_error_of_a_dead_child(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_worker(monkeypatch, "raise SystemExit(3)")
    batch = workers._Batch(host_arch(), None, 30.0)
    with batch, pytest.raises(CompileError, match="kernel0"):
        batch.grow_to(1)
        batch.expect(1)
        batch.submit(0, module(0))
        batch.collect(block=True)


def test_when_no_process_can_be_started_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert len(compile_objects([module(index) for index in range(3)], host_arch(), worker_count=2)) == 3


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts children in /proc")
def test_no_child_outlives_its_batch() -> None:
    compile_objects([module(index) for index in range(4)], host_arch(), worker_count=2)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_worker_needs_neither_the_working_directory_nor_start_up_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llvmlite.py").write_text("raise SystemExit('the wrong llvmlite')")
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    with workers._Child(host_arch(), 30.0) as child:
        assert len(child.compile(*module(1))) > 0


def test_a_worker_imports_nothing_of_the_compiler() -> None:
    search_path = os.pathsep.join(workers._import_path())
    code = (
        "import sys, hidet.cpu.worker, hidet.cpu.toolchain\n"
        "print(*sorted(m for m in sys.modules if 'hidet' in m or m in ('numpy', 'torch', 'pluggy')))"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": search_path}, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        "hidet",
        "hidet.cpu",
        "hidet.cpu.arch",
        "hidet.cpu.frames",
        "hidet.cpu.toolchain",
        "hidet.cpu.worker",
        "hidet.errors",
    ]


def test_frames_are_read_as_written_and_a_cut_stream_ends() -> None:
    stream = io.BytesIO()
    write_frame(stream, REQUEST, 3, b"text")
    whole = stream.getvalue()
    assert read_frame(io.BytesIO(whole), REQUEST) == (3, b"text")
    for size in range(len(whole)):
        assert read_frame(io.BytesIO(whole[:size]), REQUEST) is None
    assert read_frame(io.BytesIO(REPLY.pack(1, 2) + b"no"), REPLY) == (1, b"no")
