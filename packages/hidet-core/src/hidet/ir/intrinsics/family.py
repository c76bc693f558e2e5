"""The family of the intrinsics of NVIDIA's GPUs."""

from __future__ import annotations

from hidet.ir.intrinsic import IntrinsicFamily

CUDA = IntrinsicFamily(
    name="cuda",
    doc="threads, warps, shared memory and matrix units of NVIDIA's GPUs (PTX ISA)",
    load="hidet.ir.intrinsics:INTRINSICS",
    meanings="hidet.ir.simulator.semantics:MEANINGS",
)
