"""The thread pool's machine code, as textual LLVM IR over pthread_create, sched_yield and the futex system call.

A parallel region hands `count` iterations to `fn(args, begin, end)`. They are cut into chunks whose borders depend on
`count` and the number of threads alone. Each thread owns a run of consecutive chunks, so that it meets in its own cache
what it wrote in the region before, and takes over the chunks of others when its own are done. The caller is thread 0
and needs no other: it waits only for workers that have entered, never for one that sleeps or was not scheduled.

    generation  counts regions; idle workers watch it, first spinning, then in futex
    state       OPEN while workers may enter | WAITING when the caller sleeps | number of workers inside
    next[t]     how many of the chunks of thread t are taken

A worker enters by raising `state` with compare-and-swap while it is OPEN, so the caller may close the region, wait for
the count to fall to zero and reuse the pool. Only the holder of `owner` opens regions; who does not get it (another
thread's region is running, or this is a nested call) runs all iterations itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template

from hidet.cpu.arch import CpuArch
from hidet.errors import CodegenError

PARALLEL = "hidet_parallel"
"""`void hidet_parallel(ptr pool, ptr fn, ptr args, i64 count)` with `void fn(ptr args, i64 begin, i64 end)`."""

PAUSE = "hidet_pause"
"""`void hidet_pause(i64 count)`: executes `count` of the pauses that the pool spins with, to be timed."""

# Byte offsets in the pool. Two lines of 64 bytes per group of fields: x86 cores fetch lines in pairs.
LINE = 128
GENERATION = 0
STATE = 4
FN = 16
ARGS = 24
QUOTIENT = 32
REMAINDER = 40
CHUNKS_PER_OWNER = 48
OWNERS = 56
OWNER = LINE
SLEEPERS = 2 * LINE
NUM_THREADS = 3 * LINE
STARTED = 3 * LINE + 4
SPIN = 3 * LINE + 8
SLOTS = 4 * LINE
# Byte offsets in the slot of one thread; at 0 is the number of its chunks that are taken.
SLOT_SIZE = 2 * LINE
SLOT_POOL = 64
SLOT_INDEX = 72
SLOT_SEEN = 76
SLOT_MASK_BYTES = 80
SLOT_MASK = LINE
MASK_CAPACITY = LINE
"""Bytes of a slot's CPU mask, bit c of which allows CPU c; enough for 1024 CPUs."""

MAX_CHUNKS_PER_THREAD = 4
"""More chunks balance uneven work better but cost a call each."""

_OPEN = 1 << 30
_WAITING = 1 << 29
_YIELD_MASK = 1023  # pauses between two calls of sched_yield, which let others run on an oversubscribed machine
_STACK_BYTES = 8 << 20  # of address space; memory is used as it is touched


@dataclass(frozen=True, slots=True)
class _LinuxAbi:
    """System call numbers (Linux, asm/unistd.h) and the LLVM intrinsic that a spinning core rests with."""

    futex: int
    sched_setaffinity: int
    pause: str  # its declaration without "declare"
    pause_call: str


# On aarch64 `yield` is a no-op on most cores; `isb` drains the pipeline and takes about as long as x86's `pause`.
_LINUX_ABIS = {
    "x86_64": _LinuxAbi(202, 203, "void @llvm.x86.sse2.pause()", "void @llvm.x86.sse2.pause()"),
    "aarch64": _LinuxAbi(98, 122, "void @llvm.aarch64.isb(i32)", "void @llvm.aarch64.isb(i32 15)"),
}

_SERIAL = f"""
define void @{PARALLEL}(ptr %pool, ptr %fn, ptr %args, i64 %count) nounwind {{
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %run, label %done
run:
  call void %fn(ptr %args, i64 0, i64 %count)
  br label %done
done:
  ret void
}}
define void @{PAUSE}(i64 %count) nounwind {{
  ret void
}}
"""


def has_threads(arch: CpuArch) -> bool:
    """Whether the pool has worker threads on this machine; without them the caller runs every region alone."""
    return arch.operating_system == "linux" and arch.isa in _LINUX_ABIS


def pool_text(arch: CpuArch) -> str:
    """LLVM IR of the pool for `arch`: the threaded one on Linux, elsewhere one that runs every region in the caller."""
    return _linux_text(_LINUX_ABIS[arch.isa]) if has_threads(arch) else _SERIAL


def pool_bytes(num_threads: int) -> int:
    """Bytes of zeroed memory, aligned to `LINE`, that a pool of that many threads (callers included) takes."""
    if not 1 <= num_threads <= 4096:
        raise CodegenError(f"a thread pool of {num_threads} threads was asked for, expected 1 to 4096")
    return SLOTS + num_threads * SLOT_SIZE


def _linux_text(abi: _LinuxAbi) -> str:
    template = Template(Path(__file__).with_name("pool_linux.ll").read_text())
    return template.substitute(
        PARALLEL=PARALLEL,
        PAUSE=PAUSE,
        GENERATION=GENERATION,
        STATE=STATE,
        FN=FN,
        ARGS=ARGS,
        QUOTIENT=QUOTIENT,
        REMAINDER=REMAINDER,
        CHUNKS_PER_OWNER=CHUNKS_PER_OWNER,
        OWNERS=OWNERS,
        OWNER=OWNER,
        SLEEPERS=SLEEPERS,
        NUM_THREADS=NUM_THREADS,
        STARTED=STARTED,
        SPIN=SPIN,
        SLOTS=SLOTS,
        SLOT_SIZE=SLOT_SIZE,
        SLOT_POOL=SLOT_POOL,
        SLOT_INDEX=SLOT_INDEX,
        SLOT_SEEN=SLOT_SEEN,
        SLOT_MASK_BYTES=SLOT_MASK_BYTES,
        SLOT_MASK=SLOT_MASK,
        MAX_CHUNKS_PER_THREAD=MAX_CHUNKS_PER_THREAD,
        OPEN=_OPEN,
        NOT_OPEN=~_OPEN,
        WAITING=_WAITING,
        WAITING_FOR_LAST=_WAITING | 1,
        YIELD_MASK=_YIELD_MASK,
        STACK_BYTES=_STACK_BYTES,
        MOST=(1 << 31) - 1,
        FUTEX=abi.futex,
        SCHED_SETAFFINITY=abi.sched_setaffinity,
        PAUSE_DECLARATION=abi.pause,
        PAUSE_CALL=abi.pause_call,
    )
