"""Where a block stands in its cluster, where a thread runs, and clocks."""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import i32, u32, u64
from hidet.ir.intrinsic import Intrinsic, table

_AXES = ("x", "y", "z")

_REGISTERS = (
    ("block_idx_in_cluster", "%cluster_ctaid", "index of the block in its cluster along axis {}"),
    ("cluster_dim", "%cluster_nctaid", "blocks of a cluster along axis {}"),
    ("cluster_idx", "%clusterid", "index of the cluster in the grid along axis {}"),
    ("cluster_grid_dim", "%nclusterid", "clusters of the grid along axis {}"),
)

INDEX = table(
    *(
        Intrinsic(
            name=f"cuda.{name}.{axis}",
            family=CUDA,
            group="index",
            doc=doc.format(axis),
            ptx=f"{ptx}",
            result=i32,
            arch=90,
        )
        for name, ptx, doc in _REGISTERS
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
