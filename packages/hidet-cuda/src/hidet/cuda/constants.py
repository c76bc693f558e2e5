"""What cost models know of NVIDIA's GPUs before one was measured: data sheets, by compute capability."""

from __future__ import annotations

from dataclasses import dataclass

from hidet.cuda.arch import OLDEST
from hidet.target.constants import DeviceConstants, MemoryLevel

_LATENCY_CYCLES = 4
_SHARED_BYTES_PER_CYCLE = 128
_L2_BYTES_PER_CYCLE = 64
"""Of a multiprocessor that reads alone; all together get `_Sheet.cache`."""
_LAUNCH, _BLOCK = 2.5e-6, 50e-9
_MEMORY_LATENCY_CYCLES = 800


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A device of one capability.

    gigahertz: boost clock. memory: GB/s. cache: bytes a cycle of all multiprocessors from the second-level cache; l2:
    MiB of it. matrix, fma, double: multiply-adds of f16 by matrix units, of f32 and of f64, a cycle of a
    multiprocessor.
    """

    name: str
    gigahertz: float
    memory: float
    cache: float
    l2: int
    matrix: int
    fma: int
    double: int


_SHEETS = {
    80: _Sheet("A100", 1.41, 1555, 5120, 40, 1024, 64, 32),
    86: _Sheet("A40", 1.74, 696, 2688, 6, 512, 128, 2),
    87: _Sheet("Orin", 1.3, 204, 512, 4, 512, 128, 2),
    89: _Sheet("L40", 2.49, 864, 4096, 96, 512, 128, 2),
    90: _Sheet("H100", 1.755, 3350, 5280, 50, 2048, 128, 64),
    100: _Sheet("B200", 1.85, 8000, 8192, 126, 4096, 128, 64),
    103: _Sheet("B300", 1.85, 8000, 8192, 126, 4096, 128, 2),
    120: _Sheet("RTX 5090", 2.41, 1792, 5120, 96, 512, 128, 2),
}


def published_constants(capability: int, multiprocessors: int, shared_bytes: int) -> DeviceConstants:
    """Those of a usual device of compute capability `capability` / 10, of the one before where that is not known.

    shared_bytes: shared memory of a multiprocessor, which is what its own level of memory keeps.
    """
    sheet = _SHEETS[max((known for known in _SHEETS if known <= capability), default=OLDEST)]
    clock = sheet.gigahertz * 1e9
    matrix = {"float16": sheet.matrix, "bfloat16": sheet.matrix, "tfloat32": sheet.matrix // 2}
    fma = {"float32": sheet.fma, "float64": sheet.double}
    shared, l2 = clock * _SHARED_BYTES_PER_CYCLE, clock * _L2_BYTES_PER_CYCLE
    memory = sheet.memory * 1e9
    return DeviceConstants(
        device=sheet.name,
        cores=multiprocessors,
        launch=_LAUNCH,
        item=_BLOCK,
        fma={name: rate * clock for name, rate in fma.items()},
        matrix={name: rate * clock for name, rate in matrix.items()},
        fma_latency=_LATENCY_CYCLES / clock,
        memory_latency=_MEMORY_LATENCY_CYCLES / clock,
        levels=(
            MemoryLevel("shared", shared_bytes, shared, multiprocessors * shared),
            MemoryLevel("L2", sheet.l2 << 20, l2, sheet.cache * clock),
            MemoryLevel("memory", 0, min(l2, memory), memory),
        ),
    )
