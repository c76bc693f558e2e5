"""Machine code of one module as bytes: an object file of its host functions and cubins of its kernels.

The parts are the object file (may be empty), then the cubins; the header tells what launching each kernel needs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hidet.errors import ArtifactError
from hidet.gpu.container import pack_parts, unpack_parts


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
    return pack_parts({"kernels": [asdict(kernel) for kernel in module.kernels]}, [module.host or b"", *module.cubins])


def unpack(data: bytes) -> CompiledModule:
    """The module that `pack` made bytes of. ArtifactError for other bytes."""
    header, parts = unpack_parts(data, "CUDA")
    try:
        kernels = tuple(KernelRecord(**record) for record in header["kernels"])
        outside = [kernel.name for kernel in kernels if kernel.cubin not in range(len(parts) - 1)]
        if outside:
            raise ValueError(f"kernel {outside[0]} is in none of {len(parts) - 1} cubins")
        return CompiledModule(parts[0] or None, tuple(parts[1:]), kernels)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ArtifactError(f"this is no code of the CUDA target: {error}") from error
