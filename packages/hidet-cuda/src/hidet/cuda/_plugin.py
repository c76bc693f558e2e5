"""Plug-in module of the CUDA target: what hidet-cuda offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from hidet.plugins.specs import PassSpec, ScheduleSpec, TargetSpec

HIDET_API = 1

_ROWS = (
    *("family:reduction", "family:softmax", "family:normalization", "family:group-normalization"),
    "adaptive_avg_pool",
)
"""Statistics of rows, and what is element-wise in them."""


def hidet_targets() -> Iterable[TargetSpec]:
    """NVIDIA GPUs."""
    return [
        TargetSpec(
            name="cuda",
            kind="gpu",
            devices=("cuda",),
            load="hidet.cuda.target:CudaTarget",
            doc="An NVIDIA GPU, through NVRTC",
        )
    ]


def hidet_passes() -> Iterable[PassSpec]:
    """Layouts that kernels want, and what thread IR needs before it is CUDA C++."""
    return [
        PassSpec(
            name="cuda-split-batch-norm",
            level="graph",
            targets=("cuda",),
            after=("fold-conv-batch-norm",),
            before=("narrow-captures",),
            load="hidet.gpu.passes.split_batch_norm:SplitLargeBatchNorms",
            doc="factors of batch norms of large tensors are computed once a call",
        ),
        PassSpec(
            name="cuda-im2col-patches",
            level="graph",
            targets=("cuda",),
            after=("eliminate-dead", "assign-layout"),
            before=("cuda-channels-last",),
            load="hidet.gpu.passes.im2col_patches:Im2colPatches",
            doc="im2col of patches of few channels that lie side by side: products with a patch a row",
        ),
        PassSpec(
            name="cuda-channels-last",
            level="graph",
            targets=("cuda",),
            after=("eliminate-dead", "assign-layout"),
            before=("split-prepare",),
            load="hidet.gpu.passes.channels_last:ChannelsLast",
            doc="channels-last copies of the images and filters of convolutions",
        ),
        PassSpec(
            name="cuda-depthwise-channels-last",
            level="graph",
            targets=("cuda",),
            after=("eliminate-dead", "assign-layout"),
            before=("split-prepare",),
            load="hidet.gpu.passes.depthwise_channels_last:DepthwiseChannelsLast",
            doc="channels-last copies of the weights of depthwise convolutions",
        ),
        PassSpec(
            name="cuda-collapse-rows",
            level="graph",
            targets=("cuda",),
            after=("eliminate-dead", "attention-layout"),
            before=("split-prepare",),
            load="hidet.gpu.passes.collapse_rows:CollapseRows",
            doc="batch axes collapse into rows: results of products with one matrix lie as their operands' rows",
        ),
        PassSpec(
            name="cuda-contiguous-rows",
            level="graph",
            targets=("cuda",),
            after=("cuda-collapse-rows",),
            before=("split-prepare",),
            load="hidet.gpu.passes.contiguous_rows:ContiguousRows",
            doc="left operands of GEMMs are given one row stride",
        ),
        PassSpec(
            name="cuda-allow-tf32",
            level="graph",
            targets=("cuda",),
            after=("eliminate-dead", "assign-layout"),
            before=("split-prepare",),
            load="hidet.cuda.passes.allow_tf32:AllowTf32",
            doc="products and convolutions of f32 run on matrix units where tf32 is allowed",
        ),
        PassSpec(
            name="cuda-pad-leading-dim",
            level="graph",
            targets=("cuda",),
            after=("cuda-contiguous-rows", "cuda-allow-tf32"),
            before=("split-prepare",),
            load="hidet.cuda.passes.pad_leading_dim:PadLeadingDim",
            doc="large products of rows of odd lengths read copies whose leading dimensions are padded to 16 bytes",
        ),
        PassSpec(
            name="cuda-block-launches",
            level="program",
            targets=("cuda",),
            load="hidet.gpu.passes.block_launches:BlockLaunches",
            doc="launches over a grid alone run one index a thread",
        ),
        PassSpec(
            name="cuda-overlapped-launches",
            level="program",
            targets=("cuda",),
            after=("cuda-block-launches",),
            load="hidet.cuda.passes.overlapped_launches:OverlappedLaunches",
            doc="kernels start while the one before them ends, from sm_90 on",
        ),
    ]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """The CUDA schedule pack; the fallback nest comes from core."""
    return [
        ScheduleSpec(
            name="cuda.matmul",
            ops=("matmul", "linear", "conv"),
            targets=("cuda",),
            load="hidet.cuda.schedules.matmul:MatmulRule",
            epilogue="element-wise",
            priority=10,
            doc="matrix products and convolutions, of 16-bit floats and tf32 on tensor cores",
        ),
        ScheduleSpec(
            name="cuda.depthwise",
            ops=("conv",),
            targets=("cuda",),
            load="hidet.gpu.schedules.depthwise:DepthwiseRule",
            epilogue="element-wise",
            priority=5,
            doc="depthwise convolutions, several channels of several pixels a thread",
        ),
        ScheduleSpec(
            name="cuda.narrow_conv",
            ops=("conv",),
            targets=("cuda",),
            load="hidet.gpu.schedules.pointwise:GroupedConvRule",
            epilogue="element-wise",
            doc="convolutions whose filters see few channels, by an element or a few a thread",
        ),
        ScheduleSpec(
            name="cuda.attention",
            ops=("attention", "attention_with_logsumexp"),
            targets=("cuda",),
            load="hidet.cuda.schedules.attention:AttentionRule",
            doc="attention with an online softmax, of 16-bit floats on tensor cores",
        ),
        ScheduleSpec(
            name="cuda.elementwise",
            ops=("elementwise",),
            targets=("cuda",),
            load="hidet.gpu.schedules.pointwise:ElementwiseRule",
            doc="element-wise chains and index formulas, 16 bytes a thread and access",
        ),
        ScheduleSpec(
            name="cuda.rows",
            ops=_ROWS,
            targets=("cuda",),
            load="hidet.gpu.schedules.row_rule:RowRule",
            prologue="gather",
            epilogue="element-wise",
            priority=5,
            doc="statistics of rows and what is element-wise in them: a row is read once",
        ),
        ScheduleSpec(
            name="cuda.scan",
            ops=("family:scan",),
            targets=("cuda",),
            load="hidet.gpu.schedules.scan:ScanRule",
            prologue="gather",
            epilogue="element-wise",
            doc="scans by a thread, a warp or a block a row; few long rows in parts",
        ),
        ScheduleSpec(
            name="cuda.sort",
            ops=("family:sort",),
            targets=("cuda",),
            load="hidet.gpu.schedules.sort:SortRule",
            doc="rows ordered in shared memory; long ones by radix sort, or their best found by digits",
        ),
        ScheduleSpec(
            name="cuda.scatter",
            ops=("family:scatter",),
            targets=("cuda",),
            load="hidet.gpu.schedules.scatter:ScatterRule",
            doc="an update a thread; where several meet, the last one is found first",
        ),
        ScheduleSpec(
            name="cuda.pool",
            ops=("family:pooling",),
            targets=("cuda",),
            load="hidet.gpu.schedules.pointwise:WindowRule",
            prologue="gather",
            epilogue="element-wise",
            doc="windows, vectorised along channels",
        ),
        ScheduleSpec(
            name="cuda.reduce",
            ops=_ROWS,
            targets=("cuda",),
            load="hidet.gpu.schedules.reduce:ReduceRule",
            prologue="gather",
            epilogue="element-wise",
            doc="reductions by a warp or a block an element",
        ),
        ScheduleSpec(
            name="cuda.reduce_products",
            ops=("matmul", "linear", "searchsorted"),
            targets=("cuda",),
            load="hidet.gpu.schedules.reduce:ReduceRule",
            epilogue="element-wise",
            doc="products of few elements and counts, by a warp or a block an element",
        ),
    ]
