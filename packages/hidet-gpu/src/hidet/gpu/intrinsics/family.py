"""The family of intrinsics of this wheel: what every GPU has."""

from __future__ import annotations

from hidet.ir.intrinsic import IntrinsicFamily

SIMULATOR = "hidet.gpu.simulator.launch:run_launch"
"""What runs launches of kernels that call intrinsics of a GPU, whoever offers them."""

GPU = IntrinsicFamily(
    name="gpu",
    doc="indices, barriers, exchange between the threads of a warp, atomics: what every GPU has",
    load="hidet.gpu.intrinsics:INTRINSICS",
    meanings="hidet.gpu.simulator.semantics:MEANINGS",
    simulator=SIMULATOR,
)
