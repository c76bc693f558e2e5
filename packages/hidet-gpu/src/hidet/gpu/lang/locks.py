"""Locks and turns in global memory, for blocks that run at the same time. All threads of a block call them."""

# Types of scripts are no types of Python.
# mypy: disable-error-code="valid-type, no-untyped-def, assignment"

from hidet.gpu.lang.rows import find_row
from hidet.lang.function import translate
from hidet.lang.types import kind_named

_i32 = kind_named("i32")
_thread, _syncthreads = find_row("gpu.thread_idx"), find_row("gpu.syncthreads")
_compare_exchange, _fence = find_row("gpu.atomic_compare_exchange"), find_row("gpu.threadfence")
_load_acquire, _store_release = find_row("gpu.load_acquire"), find_row("gpu.store_release")


def acquire_lock(lock: ~_i32):
    """Wait until no other block has the lock, take it, and see what was written under it.

    lock: an element of global memory, 0 when nobody has it.
    """
    if _thread.x == 0 and _thread.y == 0 and _thread.z == 0:
        while _compare_exchange(lock, 0, 1) != 0:
            pass
        _fence()
    _syncthreads()


def release_lock(lock: ~_i32):
    """Give the lock back; who takes it next sees what this block wrote."""
    _syncthreads()
    if _thread.x == 0 and _thread.y == 0 and _thread.z == 0:
        _fence()
        _compare_exchange(lock, 1, 0)


def acquire_seq_semaphore(semaphore: ~_i32, turn: _i32):
    """Wait until the semaphore says that it is this turn, and see what was written in the turns before."""
    if _thread.x == 0 and _thread.y == 0 and _thread.z == 0:
        while _load_acquire(semaphore) != turn:
            pass
    _syncthreads()


def release_seq_semaphore(semaphore: ~_i32, turn: _i32):
    """Let the block whose turn it is go on; it sees what this block wrote."""
    _syncthreads()
    if _thread.x == 0 and _thread.y == 0 and _thread.z == 0:
        _store_release(semaphore, turn)


# Not by `hidet.script`, which would put them into the module that a user fills when this file is imported.
acquire_lock, release_lock = translate(acquire_lock, None), translate(release_lock, None)
acquire_seq_semaphore = translate(acquire_seq_semaphore, None)
release_seq_semaphore = translate(release_seq_semaphore, None)
