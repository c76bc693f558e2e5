"""Compiles a batch of LLVM IR modules in child processes and in this one at once.

llvmlite serialises all calls of one process, so large batches go to children; few modules are faster done here.
This process takes modules from the same queue, so that it is busy while the children (`hidet.child_process`) start. A
child that dies or stalls costs one CompileError that names the kernel.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import llvmlite

from hidet import option
from hidet.child_process import ChildProcess, can_start_children, import_path
from hidet.cpu.arch import CpuArch
from hidet.cpu.frames import COMPILED, REPLY, REQUEST, read_frame, write_frame
from hidet.cpu.toolchain import compile_object, kernel_name
from hidet.cpus import available_cpus
from hidet.errors import CompileError

IN_PROCESS_BELOW = 12
"""Batches of fewer modules are compiled in this process: starting a child costs as much as several small modules."""

_MODULES_PER_WORKER = 5  # a child takes about as long to start as this many small modules to compile
_Module = tuple[str, int]


def compile_objects(
    modules: Iterable[tuple[str, int]],
    arch: CpuArch,
    progress: Callable[[int, int], None] | None = None,
    *,
    worker_count: int | None = None,
    timeout_s: float = 120.0,
) -> list[bytes]:
    """Object files of many (text, opt_level) modules, in their order.

    modules: may be a generator; what it yields is compiled by children while it goes on.
    progress: called in this thread with (modules done, modules known so far) after each module.
    worker_count: child processes; None is `hidet.option.num_local_workers`, HIDET_NUM_WORKERS, or chosen
        from the CPUs at hand, none below `IN_PROCESS_BELOW` modules.
    timeout_s: seconds that a child may spend on one module before it is killed.
    Raises CompileError for the first module that LLVM refuses or that kills or stalls its child; the rest is given up.
    """
    with _Batch(arch, progress, timeout_s) as batch:
        if isinstance(modules, Sequence):
            batch.grow_to(_wanted_workers(len(modules), worker_count))
            # Longest first: the last module to end decides, so it should be a short one.
            order = sorted(range(len(modules)), key=lambda index: -len(modules[index][0]))
            batch.expect(len(modules))
            for index in order:
                batch.submit(index, modules[index])
        else:
            for index, module in enumerate(modules):
                batch.expect(index + 1)
                batch.submit(index, module)
                batch.grow_to(_wanted_workers(index + 1, worker_count))
                batch.collect()
        return batch.finish()


def _wanted_workers(module_count: int, worker_count: int | None) -> int:
    if worker_count is None:
        worker_count = option.chosen_workers()
    if not can_start_children():
        return 0
    if worker_count is not None:
        return min(worker_count, module_count)
    if module_count < IN_PROCESS_BELOW:
        return 0
    return min(available_cpus() - 1, module_count // _MODULES_PER_WORKER)


class _Batch:
    """Modules to compile, results so far, and the children at work. Used by one thread as a context manager."""

    def __init__(self, arch: CpuArch, progress: Callable[[int, int], None] | None, timeout_s: float) -> None:
        self._arch = arch
        self._progress = progress
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[int, _Module]] = deque()
        self._available = threading.Semaphore(0)  # counts `_waiting`, plus one for each child once the batch is over
        self._answers: queue.SimpleQueue[tuple[int, bytes | CompileError]] = queue.SimpleQueue()
        self._objects: dict[int, bytes] = {}
        self._expected = 0
        self._children: list[tuple[_Child, threading.Thread]] = []

    def __enter__(self) -> _Batch:
        return self

    def __exit__(self, *exception: object) -> None:
        self._waiting.clear()
        for child, _ in self._children:
            child.kill()
            self._available.release()
        for _, thread in self._children:
            thread.join()

    def expect(self, total: int) -> None:
        self._expected = total

    def submit(self, index: int, module: _Module) -> None:
        self._waiting.append((index, module))
        self._available.release()

    def grow_to(self, count: int) -> None:
        while len(self._children) < count:
            try:
                child = _Child(self._arch, self._timeout_s)
            except OSError:
                return  # no process to be had: the work is done here all the same
            thread = threading.Thread(target=self._drive, args=(child,), daemon=True)
            self._children.append((child, thread))
            thread.start()

    def collect(self, block: bool = False) -> None:
        """Take over the answers that have come in; with `block`, wait for one first."""
        while True:
            try:
                index, answer = self._answers.get(block)
            except queue.Empty:
                return
            block = False
            if isinstance(answer, CompileError):
                raise answer
            self._record(index, answer)

    def finish(self) -> list[bytes]:
        """Compile here what no child has taken, wait for the children, and return all objects in order."""
        while (task := self._take(block=False)) is not None:
            index, (text, opt_level) = task
            self._record(index, compile_object(text, self._arch, opt_level))
            self.collect()
        while len(self._objects) < self._expected:
            self.collect(block=True)
        return [self._objects[index] for index in range(self._expected)]

    def _record(self, index: int, data: bytes) -> None:
        self._objects[index] = data
        if self._progress is not None:
            self._progress(len(self._objects), self._expected)

    def _take(self, block: bool) -> tuple[int, _Module] | None:
        if not self._available.acquire(blocking=block):
            return None
        try:
            return self._waiting.popleft()
        except IndexError:
            return None  # the batch is over

    def _drive(self, child: _Child) -> None:
        """Feed one child, in a thread of its own, until nothing is left or it fails."""
        with child:
            while (task := self._take(block=True)) is not None:
                index, (text, opt_level) = task
                try:
                    self._answers.put((index, child.compile(text, opt_level)))
                except CompileError as error:
                    self._answers.put((index, error))
                    return


class _Child:
    """One worker process, started at once; leaving its context ends it and closes its pipes."""

    def __init__(self, arch: CpuArch, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        # -S and -P keep start-up files and the user's working directory out: the path given here is all it needs.
        self._process = ChildProcess("hidet.cpu.worker", ["-S", "-P"], _import_path(), environment={})
        self._greeting = json.dumps(dataclasses.asdict(arch)).encode()

    def compile(self, text: str, opt_level: int) -> bytes:
        """The object file of one module. Raises CompileError if LLVM refuses it or the process dies or stalls."""
        requests = self._process.requests
        try:
            with self._process.limited(self._timeout_s):
                if self._greeting:
                    write_frame(requests, REQUEST, 0, self._greeting)
                    self._greeting = b""
                write_frame(requests, REQUEST, opt_level, text.encode())
                reply = read_frame(self._process.answers, REPLY)
        except (OSError, ValueError):
            reply = None  # the pipe broke, or `kill` closed it
        if reply is None:
            raise self._failure(kernel_name(text))
        status, body = reply
        if status == COMPILED:
            return body
        refusal = json.loads(body)
        raise CompileError(refusal["message"], hint=refusal["hint"])

    def kill(self) -> None:
        """End the process, from any thread; a `compile` under way fails."""
        self._process.kill()

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self._process.close()

    def _failure(self, name: str) -> CompileError:
        stalled = CompileError(
            f"LLVM did not finish kernel {name!r} within {self._timeout_s:g} s",
            hint="the kernel may be unrolled too far; HIDET_DUMP=<folder> keeps its text",
        )
        return self._process.failure(f"kernel {name!r}", stalled)


def _import_path() -> list[str]:
    """Where this process found hidet and llvmlite, then its other folders; a child with -S looks nowhere else."""
    return import_path(llvmlite.__path__)
