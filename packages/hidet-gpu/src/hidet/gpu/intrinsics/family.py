"""The family of the intrinsics of NVIDIA's GPUs."""

from __future__ import annotations

from hidet.ir.intrinsic import IntrinsicFamily

CUDA = IntrinsicFamily(
    name="cuda",
    doc="threads, warps, shared memory and matrix units of NVIDIA's GPUs (PTX ISA)",
    load="hidet.gpu.intrinsics:INTRINSICS",
    meanings="hidet.gpu.simulator.semantics:MEANINGS",
    simulator="hidet.gpu.simulator.launch:run_launch",
)
