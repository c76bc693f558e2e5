"""Where a thread stands: its index in the block, that of the block in the grid and cluster, and their extents."""

from __future__ import annotations

from hidet.dtypes import i32, u32, u64
from hidet.gpu.intrinsics.family import CUDA, GPU
from hidet.ir.intrinsic import Intrinsic, table

_AXES = ("x", "y", "z")

_REGISTERS = (
    (GPU, "thread_idx", "%tid", "index of the thread in its block along axis {}", 80),
    (GPU, "block_dim", "%ntid", "threads of a block along axis {}", 80),
    (GPU, "block_idx", "%ctaid", "index of the block in the grid along axis {}", 80),
    (GPU, "grid_dim", "%nctaid", "blocks of the grid along axis {}", 80),
    (CUDA, "block_idx_in_cluster", "%cluster_ctaid", "index of the block in its cluster along axis {}", 90),
    (CUDA, "cluster_dim", "%cluster_nctaid", "blocks of a cluster along axis {}", 90),
    (CUDA, "cluster_idx", "%clusterid", "index of the cluster in the grid along axis {}", 90),
    (CUDA, "cluster_grid_dim", "%nclusterid", "clusters of the grid along axis {}", 90),
)

INDEX = table(
    *(
        Intrinsic(
            name=f"{family.name}.{name}.{axis}",
            family=family,
            group="index",
            doc=doc.format(axis),
            ptx=f"{ptx}",
            result=i32,
            arch=arch,
        )
        for family, name, ptx, doc, arch in _REGISTERS
        for axis in _AXES
    ),
    Intrinsic(
        name="cuda.block_rank_in_cluster",
        family=CUDA,
        group="index",
        doc="rank of the block in its cluster",
        ptx="%cluster_ctarank",
        result=i32,
        arch=90,
    ),
    Intrinsic(
        name="cuda.cluster_size",
        family=CUDA,
        group="index",
        doc="blocks of a cluster",
        ptx="%cluster_nctarank",
        result=i32,
        arch=90,
    ),
    Intrinsic(
        name="gpu.lane_idx",
        family=GPU,
        group="index",
        doc="index of the thread in its warp",
        ptx="%laneid",
        result=i32,
    ),
    Intrinsic(
        name="cuda.sm_idx",
        family=CUDA,
        group="index",
        doc="the multiprocessor the thread runs on, which may change",
        ptx="%smid",
        result=u32,
        effect="reads",
    ),
    Intrinsic(
        name="cuda.clock",
        family=CUDA,
        group="index",
        doc="a counter of the multiprocessor's clock",
        ptx="%clock64",
        result=u64,
        effect="writes",
    ),
    Intrinsic(
        name="cuda.global_timer",
        family=CUDA,
        group="index",
        doc="nanoseconds on a clock that all multiprocessors share",
        ptx="%globaltimer",
        result=u64,
        effect="writes",
    ),
)
