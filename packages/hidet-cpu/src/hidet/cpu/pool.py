"""Thread pools for parallel regions of compiled code; `hidet.cpu.pool_code` has the machine code and the protocol.

Python only makes pools and hands out their addresses. Pools are shared by all graphs of a process
and live as long as it does: their workers are detached threads that may look at them until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import time
from collections.abc import Mapping

from hidet.cache import CacheKey, KernelCache
from hidet.cpu import pool_code
from hidet.cpu.arch import host_arch
from hidet.cpu.loader import LoadedCode, load_objects
from hidet.cpu.toolchain import compile_object, toolchain_version
from hidet.cpus import available_cpus
from hidet.errors import CodegenError, OptionError

_SPIN_US = 1000.0
"""How long idle workers spin, in microseconds: longer than the pause between two calls of a model in a loop."""
_SPIN_OVERSUBSCRIBED_US = 20.0
_LONGEST_SPIN = (1 << 31) - 1
_PAUSES_TIMED = 1000


class ThreadPool:
    """Threads that compiled code shares its loops among. Made by `shared_pool`.

    address: what `hidet_parallel` takes as its pool; 0 when there are no workers, so that the caller runs alone.
    num_threads: threads that work on a region, its caller included.
    """

    __slots__ = ("address", "num_threads")

    def __init__(self, address: int, num_threads: int) -> None:
        self.address = address
        self.num_threads = num_threads

    def forget_workers(self) -> None:
        """Start anew in a forked child, where no worker exists and a region of the parent may seem to be running."""
        if self.address:
            fields = (pool_code.STATE, pool_code.OWNER, pool_code.SLEEPERS, pool_code.STARTED)
            for offset in fields:
                ctypes.c_int32.from_address(self.address + offset).value = 0


def shared_pool(num_threads: int | None = None, *, pin: bool = False, cache: KernelCache | None = None) -> ThreadPool:
    """The process's pool of `num_threads` threads; the same one at each call with the same arguments.

    num_threads: threads that work on a region, its caller included; None takes the CPUs that this process may use.
    pin: bind each worker to one CPU of the process's affinity mask.
    cache: where the pool's machine code is kept between processes; None compiles it in each.
    Either way the code is loaded once a process.
    Workers start with the first region. HIDET_SPIN sets how many microseconds idle workers spin before they sleep.
    Raises CodegenError for an impossible number of threads, OptionError for a HIDET_SPIN that is no number.
    """
    wanted = available_cpus() if num_threads is None else num_threads
    pool_code.pool_bytes(wanted)
    pools = _process_pools()
    known = pools.get((wanted, pin))
    return known if known is not None else pools.setdefault((wanted, pin), _make_pool(wanted, pin, cache))


def pool_symbols(cache: KernelCache | None = None) -> Mapping[str, int]:
    """Address of the function that compiled code calls (`hidet_parallel`), to link it against.

    cache: as of `shared_pool`.
    """
    return {pool_code.PARALLEL: _pool_functions(cache).address(pool_code.PARALLEL)}


@functools.cache
def _process_pools() -> dict[tuple[int, bool], ThreadPool]:
    pools: dict[tuple[int, bool], ThreadPool] = {}

    def forget_all_workers() -> None:
        for pool in pools.values():
            pool.forget_workers()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget_all_workers)
    return pools


def _make_pool(num_threads: int, pin: bool, cache: KernelCache | None) -> ThreadPool:
    if num_threads == 1 or not pool_code.has_threads(host_arch()):
        return ThreadPool(0, 1)
    spin = min(_LONGEST_SPIN, int(_spin_us(num_threads) * 1000.0 / _pause_ns(_pool_functions(cache))))
    address = _immortal_memory(pool_code.pool_bytes(num_threads))
    ctypes.c_int32.from_address(address + pool_code.NUM_THREADS).value = num_threads
    ctypes.c_uint32.from_address(address + pool_code.SPIN).value = spin
    cpus = sorted(os.sched_getaffinity(0)) if pin else []
    for index in range(1, num_threads if cpus else 1):
        cpu = cpus[index % len(cpus)]
        if cpu < 8 * pool_code.MASK_CAPACITY:
            slot = address + pool_code.SLOTS + index * pool_code.SLOT_SIZE
            ctypes.c_int64.from_address(slot + pool_code.SLOT_MASK_BYTES).value = pool_code.MASK_CAPACITY
            ctypes.c_uint8.from_address(slot + pool_code.SLOT_MASK + cpu // 8).value = 1 << cpu % 8
    return ThreadPool(address, num_threads)


def _spin_us(num_threads: int) -> float:
    text = os.environ.get("HIDET_SPIN", "")
    if not text:
        # A spinning worker without a CPU of its own keeps the very thread waiting that it waits for.
        return _SPIN_US if num_threads <= available_cpus() else _SPIN_OVERSUBSCRIBED_US
    try:
        spin_us = float(text)
    except ValueError as error:
        raise OptionError(f"HIDET_SPIN is {text!r}, expected a number of microseconds", hint="try 100") from error
    return max(0.0, spin_us)


def _pool_functions(cache: KernelCache | None) -> LoadedCode:
    loaded = _process_code()
    if not loaded:
        loaded.append(_load_pool_functions(cache))
    return loaded[0]


@functools.cache
def _process_code() -> list[LoadedCode]:
    """The pool's machine code once it is loaded; whoever needs it first says where it is kept between processes."""
    return []


def _load_pool_functions(cache: KernelCache | None) -> LoadedCode:
    arch = host_arch()
    text = pool_code.pool_text(arch)
    key = CacheKey.of(
        code="thread pool",
        text=hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
        cpu=arch.name,
        triple=arch.triple,
        features=arch.features,
        toolchain=toolchain_version(),
    )
    data = None if cache is None else cache.get(key)
    if data is None:
        data = compile_object(text, arch, 2)
        if cache is not None:
            cache.put(key, data)
    code = load_objects([data])
    # Never unloaded, not even when the interpreter shuts down: workers run this code until the process ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return code


@functools.cache
def _pause_ns(code: LoadedCode) -> float:
    """Nanoseconds of one pause of the spin loops: 10 to 140 cycles, depending on the CPU."""
    pause = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address(pool_code.PAUSE))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter_ns()
        pause(_PAUSES_TIMED)
        best = min(best, time.perf_counter_ns() - start)
    return max(1.0, best / _PAUSES_TIMED)


def _immortal_memory(size: int) -> int:
    """Zeroed memory, aligned to a cache line pair, that is never freed because detached workers refer to it."""
    libc = ctypes.CDLL(None)
    pointer = ctypes.c_void_p()
    code = libc.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(pool_code.LINE), ctypes.c_size_t(size))
    if code != 0 or pointer.value is None:
        raise CodegenError(f"no memory for a thread pool: {size} bytes were refused with error {code}")
    ctypes.memset(pointer.value, 0, size)
    return pointer.value
