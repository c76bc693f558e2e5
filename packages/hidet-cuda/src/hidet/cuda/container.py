"""Machine code of one module as bytes: an object file of its host functions and cubins of its kernels.

8 bytes   length of the header
header    JSON: lengths of the parts, and what launching each kernel needs
parts     the object file (may be empty), then the cubins
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

from hidet.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel: its name in machine code, the number of its cubin, shared memory it needs beyond what it declares, and
    what it takes.

    asks_for_shared: launches ask for shared memory besides, as much as only they know.
    """

    name: str
    symbol: str
    cubin: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    asks_for_shared: bool = False


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """Host code of a module (None when it has no host functions), cubins, and their kernels."""

    host: bytes | None
    cubins: tuple[bytes, ...]
    kernels: tuple[KernelRecord, ...]


def pack(module: CompiledModule) -> bytes:
    """The module as bytes."""
    parts = [module.host or b"", *module.cubins]
    header = {"lengths": [len(part) for part in parts], "kernels": [asdict(kernel) for kernel in module.kernels]}
    text = json.dumps(header).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def unpack(data: bytes) -> CompiledModule:
    """The module that `pack` made bytes of. ArtifactError for other bytes."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        parts: list[bytes] = []
        place = 8 + length
        for size in header["lengths"]:
            parts.append(data[place : place + size])
            place += size
        if place != len(data):
            raise ValueError(f"{len(data)} bytes, expected {place}")
        kernels = tuple(KernelRecord(**record) for record in header["kernels"])
        outside = [kernel.name for kernel in kernels if kernel.cubin not in range(len(parts) - 1)]
        if outside:
            raise ValueError(f"kernel {outside[0]} is in none of {len(parts) - 1} cubins")
        return CompiledModule(parts[0] or None, tuple(parts[1:]), kernels)
    except (struct.error, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise ArtifactError(f"this is no code of the CUDA target: {error}") from error
