"""Plug-in module of hidet-gpu: intrinsics, schedules and passes of every GPU. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import OptionSpec, PassSpec, ScheduleSpec

if TYPE_CHECKING:
    from hidet.ir.intrinsic import IntrinsicFamily

HIDET_API = 1

_ROWS = (
    *("family:reduction", "family:softmax", "family:normalization", "family:group-normalization"),
    "adaptive_avg_pool",
)
"""Statistics of rows, and what is element-wise in them."""


def hidet_intrinsics() -> Iterable[IntrinsicFamily]:
    """Those of every GPU."""
    from hidet.gpu.intrinsics.family import GPU

    return [GPU]


def hidet_options() -> Iterable[OptionSpec]:
    """What is chosen about products."""
    return [
        OptionSpec(
            name="gpu.split_k",
            type=int,
            default=0,
            affects_cache=False,
            doc="into how many parts the sums of products are split (split-k), where they are long enough; 1 splits "
            "none, 0 leaves it to a model of the device",
        ),
    ]


def hidet_passes() -> Iterable[PassSpec]:
    """Layouts that kernels of GPUs want, and launches as blocks of threads."""
    return [
        PassSpec(
            name="gpu-split-batch-norm",
            level="graph",
            kinds=("gpu",),
            after=("fold-conv-batch-norm",),
            before=("narrow-captures",),
            load="hidet.gpu.passes.split_batch_norm:SplitBatchNorms",
            doc="factors of batch norms are computed once a call, where there are large ones",
        ),
        PassSpec(
            name="gpu-attention-over-parts",
            level="graph",
            kinds=("gpu",),
            after=("recompose",),
            before=("narrow-captures",),
            load="hidet.gpu.passes.attention_over_parts:AttentionOverParts",
            doc="attention of few queries reads a cache and what a step adds to it where they lie",
        ),
        PassSpec(
            name="gpu-im2col-patches",
            level="graph",
            kinds=("gpu",),
            after=("eliminate-dead", "assign-layout"),
            before=("gpu-channels-last",),
            load="hidet.gpu.passes.im2col_patches:Im2colPatches",
            doc="im2col of patches of few channels that lie side by side: products with a patch a row",
        ),
        PassSpec(
            name="gpu-channels-last",
            level="graph",
            kinds=("gpu",),
            after=("eliminate-dead", "assign-layout"),
            before=("split-prepare",),
            load="hidet.gpu.passes.channels_last:ChannelsLast",
            doc="channels-last copies of the images and filters of convolutions",
        ),
        PassSpec(
            name="gpu-depthwise-channels-last",
            level="graph",
            kinds=("gpu",),
            after=("eliminate-dead", "assign-layout"),
            before=("split-prepare",),
            load="hidet.gpu.passes.depthwise_channels_last:DepthwiseChannelsLast",
            doc="channels-last copies of the weights of depthwise convolutions",
        ),
        PassSpec(
            name="gpu-collapse-rows",
            level="graph",
            kinds=("gpu",),
            after=("eliminate-dead", "attention-layout", "gpu-channels-last", "gpu-depthwise-channels-last"),
            before=("split-prepare",),
            load="hidet.gpu.passes.collapse_rows:CollapseRows",
            doc="batch axes collapse into rows: results of products with one matrix lie as their operands' rows",
        ),
        PassSpec(
            name="gpu-contiguous-rows",
            level="graph",
            kinds=("gpu",),
            after=("gpu-collapse-rows",),
            before=("split-prepare",),
            load="hidet.gpu.passes.contiguous_rows:ContiguousRows",
            doc="left operands of GEMMs are given one row stride",
        ),
        PassSpec(
            name="gpu-block-launches",
            level="program",
            kinds=("gpu",),
            load="hidet.gpu.passes.block_launches:BlockLaunches",
            doc="launches over a grid alone run one index a thread",
        ),
        PassSpec(
            name="gpu-invariant-division",
            level="program",
            kinds=("gpu",),
            after=("gpu-block-launches",),
            load="hidet.gpu.passes.invariant_division:InvariantDivision",
            doc="division in 32 bits by what a launch tells is multiplication by a factor that host code finds",
        ),
    ]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """Schedules that need no matrix unit; the fallback nest comes from core."""
    return [
        ScheduleSpec(
            name="gpu.matmul",
            ops=("matmul", "linear", "conv"),
            kinds=("gpu",),
            load="hidet.gpu.schedules.matmul:SimtMatmulRule",
            epilogue="element-wise",
            priority=5,
            doc="matrix products and convolutions without matrix units",
        ),
        ScheduleSpec(
            name="gpu.attention",
            ops=("attention", "attention_with_logsumexp", "varlen_attention", "varlen_attention_with_logsumexp"),
            kinds=("gpu",),
            load="hidet.gpu.schedules.attention:SimtAttentionRule",
            priority=5,
            doc="attention with an online softmax, without matrix units",
        ),
        ScheduleSpec(
            name="gpu.depthwise",
            ops=("conv",),
            kinds=("gpu",),
            load="hidet.gpu.schedules.depthwise:DepthwiseRule",
            epilogue="element-wise",
            priority=5,
            doc="depthwise convolutions, several channels of several pixels a thread",
        ),
        ScheduleSpec(
            name="gpu.narrow_conv",
            ops=("conv",),
            kinds=("gpu",),
            load="hidet.gpu.schedules.pointwise:GroupedConvRule",
            epilogue="element-wise",
            doc="convolutions whose filters see few channels, by an element or a few a thread",
        ),
        ScheduleSpec(
            name="gpu.elementwise",
            ops=("elementwise",),
            kinds=("gpu",),
            load="hidet.gpu.schedules.pointwise:ElementwiseRule",
            horizontal=True,
            doc="element-wise chains and index formulas, 16 bytes a thread and access",
        ),
        ScheduleSpec(
            name="gpu.rows",
            ops=_ROWS,
            kinds=("gpu",),
            load="hidet.gpu.schedules.row_rule:RowRule",
            prologue="gather",
            epilogue="element-wise",
            priority=5,
            doc="statistics of rows and what is element-wise in them: a row is read once",
        ),
        ScheduleSpec(
            name="gpu.scan",
            ops=("family:scan",),
            kinds=("gpu",),
            load="hidet.gpu.schedules.scan:ScanRule",
            prologue="gather",
            epilogue="element-wise",
            doc="scans by a thread, a warp or a block a row; few long rows in parts",
        ),
        ScheduleSpec(
            name="gpu.sort",
            ops=("family:sort",),
            kinds=("gpu",),
            load="hidet.gpu.schedules.sort:SortRule",
            doc="rows ordered in shared memory; long ones by radix sort, or their best found by digits",
        ),
        ScheduleSpec(
            name="gpu.scatter",
            ops=("family:scatter",),
            kinds=("gpu",),
            load="hidet.gpu.schedules.scatter:ScatterRule",
            doc="an update a thread; where several meet, the last one is found first",
        ),
        ScheduleSpec(
            name="gpu.pool",
            ops=("family:pooling",),
            kinds=("gpu",),
            load="hidet.gpu.schedules.pointwise:WindowRule",
            prologue="gather",
            epilogue="element-wise",
            doc="windows, vectorised along channels",
        ),
        ScheduleSpec(
            name="gpu.reduce",
            ops=_ROWS,
            kinds=("gpu",),
            load="hidet.gpu.schedules.reduce:ReduceRule",
            prologue="gather",
            epilogue="element-wise",
            doc="reductions by a warp or a block an element",
        ),
        ScheduleSpec(
            name="gpu.reduce_products",
            ops=("matmul", "linear", "searchsorted"),
            kinds=("gpu",),
            load="hidet.gpu.schedules.reduce:ReduceRule",
            epilogue="element-wise",
            doc="products of few elements and counts, by a warp or a block an element",
        ),
    ]
