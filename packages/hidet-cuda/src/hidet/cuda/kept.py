"""Objects that are kept until a driver releases a lock of theirs, for what only the driver knows the end of."""

from __future__ import annotations

import ctypes
import threading
from typing import Any


class KeptObjects:
    """Objects that graphs of other libraries need, each until its graph and all that was made from it are destroyed.

    The driver says so by a call in a thread of its own, which must neither call it nor wait. What it calls there is the
    release of a lock of Python, which needs no interpreter. Which locks are free, and their objects to be dropped, is
    looked at when hidet waits for the device, or allocates there: never while somebody records, when memory must not be
    freed.
    """

    def __init__(self) -> None:
        self._items: list[tuple[DriverLock, object]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, owner: object, lock: DriverLock) -> None:
        """Keep an object until the driver releases a lock."""
        with self._lock:
            self._items.append((lock, owner))

    def drop_unneeded(self) -> None:
        """Drop what no graph needs any more."""
        if not self._items:
            return
        with self._lock:
            is_over = [released.is_over() for released, _ in self._items]
            dropped = [item for item, over in zip(self._items, is_over, strict=True) if over]
            self._items = [item for item, over in zip(self._items, is_over, strict=True) if not over]
        # Whatever freeing them runs, it does not hold the lock.
        del dropped


class DriverLock:
    """A lock that is taken, and released by the driver: by a call of `RELEASE` with `address`."""

    def __init__(self) -> None:
        self.address = _ALLOCATE_LOCK()
        if not self.address:
            raise MemoryError("no memory for a lock")
        _ACQUIRE_LOCK(self.address, 0)

    def is_over(self) -> bool:
        """Whether it was released. Once it was, it is gone."""
        if not _ACQUIRE_LOCK(self.address, 0):
            return False
        _RELEASE_LOCK(self.address)
        _FREE_LOCK(self.address)
        return True


def _python_function(name: str, result: Any, *arguments: Any) -> Any:
    # A prototype of its own, because attributes of ctypes.pythonapi belong to everybody.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_ALLOCATE_LOCK = _python_function("PyThread_allocate_lock", ctypes.c_void_p)
_ACQUIRE_LOCK = _python_function("PyThread_acquire_lock", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_RELEASE_LOCK = _python_function("PyThread_release_lock", None, ctypes.c_void_p)
_FREE_LOCK = _python_function("PyThread_free_lock", None, ctypes.c_void_p)
RELEASE = ctypes.cast(ctypes.pythonapi["PyThread_release_lock"], ctypes.c_void_p).value
"""Address of the C function that releases the lock at an address."""
