"""The two families of intrinsics of this wheel: those of every GPU, and those of NVIDIA's."""

from __future__ import annotations

from hidet.ir.intrinsic import IntrinsicFamily

_MEANINGS = "hidet.gpu.simulator.semantics:MEANINGS"
_SIMULATOR = "hidet.gpu.simulator.launch:run_launch"

GPU = IntrinsicFamily(
    name="gpu",
    doc="indices, barriers, exchange between the threads of a warp, atomics: what every GPU has",
    load="hidet.gpu.intrinsics:GPU_INTRINSICS",
    meanings=_MEANINGS,
    simulator=_SIMULATOR,
)

CUDA = IntrinsicFamily(
    name="cuda",
    doc="clusters, asynchronous copies and matrix units of NVIDIA's GPUs (PTX ISA)",
    load="hidet.gpu.intrinsics:CUDA_INTRINSICS",
    meanings=_MEANINGS,
    simulator=_SIMULATOR,
)


def family_of(name: str) -> IntrinsicFamily:
    """The family that an intrinsic called "gpu.…" or "cuda.…" is of."""
    return {"gpu": GPU, "cuda": CUDA}[name.partition(".")[0]]
