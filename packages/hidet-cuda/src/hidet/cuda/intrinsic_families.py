"""The families of intrinsics of this wheel. Their rows are loaded when somebody asks for them."""

from __future__ import annotations

from hidet.gpu.intrinsics.family import SIMULATOR
from hidet.ir.intrinsic import IntrinsicFamily

CUDA = IntrinsicFamily(
    name="cuda",
    doc="clusters, asynchronous copies and matrix units of NVIDIA's GPUs (PTX ISA)",
    load="hidet.cuda.intrinsics:CUDA_INTRINSICS",
    meanings="hidet.cuda.simulator:MEANINGS",
    simulator=SIMULATOR,
)

TENSOR_MAPS = IntrinsicFamily(
    name="cuda.tensor_map",
    doc="tensor maps of sm_90, made by host code",
    load="hidet.cuda.tensor_map:ROWS",
    meanings="hidet.cuda.simulator.tensor_map:MEANINGS",
)

LAUNCHES = IntrinsicFamily(
    name="cuda.launch",
    doc="what host code tells a kernel of its launch",
    load="hidet.cuda.launch_flags:ROWS",
    meanings="hidet.cuda.launch_flags:MEANINGS",
)
