"""`hidet.runtime.storage`: the memory that tensors lie in, by the names of hidet 0.6."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from hidet import dtypes
from hidet.api.tensors.create import empty
from hidet.api.tensors.tensor import Tensor
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
    """Bytes of a device, as a tensor of them.

    device: where they are. addr: of the first one. num_bytes: how many there are.
    """

    def __init__(self, elements: Tensor) -> None:
        self._elements = elements
        self.device, self.num_bytes = elements.device, elements.nbytes

    @staticmethod
    def new(device: str = "cpu", num_bytes: int = 0) -> Storage:
        """So many bytes."""
        return Storage(empty([num_bytes], "uint8", device))

    @property
    def addr(self) -> int:
        """Of the first byte."""
        return int(self._elements.torch().data_ptr() if self.device != "cpu" else self._elements.storage.ctypes.data)

    def cpu(self) -> Storage:
        """The bytes on the host."""
        return Storage(self._elements.cpu())

    def cuda(self, dst_id: int = 0) -> Storage:
        """The bytes on a GPU."""
        return Storage(self._elements.cuda(dst_id))

    def copy(self) -> Storage:
        """The bytes in memory of their own."""
        return Storage(self._elements.copy())

    def as_array(self, num_elements: int, dtype: Any) -> Tensor:
        """The first bytes as a tensor of elements, over the same memory on the host."""
        kind = dtypes.dtype(dtype)
        return Tensor(self._elements.storage[: num_elements * kind.nbytes].view(kind.numpy()), self.device)


def load_compiled_module(module_dir: str) -> Any:
    """UnsupportedOp: modules are not saved; building one again takes its code from the kernel cache."""
    raise UnsupportedOp("hidet.runtime.load_compiled_module", hint="module.build(), which finds its code in the cache")


MODULE = sys.modules[__name__]
"""What `hidet.runtime.storage` is."""
