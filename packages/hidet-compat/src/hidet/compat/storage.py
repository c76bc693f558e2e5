"""`hidet.runtime.storage`: the memory that tensors lie in, by the names of hidet 0.6."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from hidet.errors import UnsupportedOp


class MemoryPool:
    """What hidet keeps of the memory of a device. The host's is Python's."""

    def __init__(self, device: str) -> None:
        self.device = device

    def clear(self) -> None:
        """Give memory that nobody uses back."""
        if self.device.startswith("cuda"):
            self._cuda().empty_cache()

    def status(self) -> str:
        """How much memory is used and held, as a text."""
        return f"{self.device}: {self._cuda().memory_statistics() if self.device.startswith('cuda') else 'not counted'}"

    def __str__(self) -> str:
        return self.status()

    def _cuda(self) -> Any:
        return importlib.import_module("hidet.cuda")


def current_memory_pool(device: str = "cpu") -> MemoryPool:
    """The pool of a device."""
    return MemoryPool(str(device))


class Storage:
    """No class any more: memory on the host is a numpy array, and that of a device an array of its target."""

    @staticmethod
    def new(device: object = None, num_bytes: int = 0) -> Any:
        """UnsupportedOp: tensors are made with their memory."""
        raise UnsupportedOp("hidet.runtime.Storage", hint="hidet.empty([num_bytes], 'uint8', device).storage")

    def __init__(self, *given: object, **named: object) -> None:
        """UnsupportedOp, as `new`."""
        self.new()


def load_compiled_module(module_dir: str) -> Any:
    """UnsupportedOp: modules are not saved; building one again takes its code from the kernel cache."""
    raise UnsupportedOp("hidet.runtime.load_compiled_module", hint="module.build(), which finds its code in the cache")


MODULE = sys.modules[__name__]
"""What `hidet.runtime.storage` is."""
