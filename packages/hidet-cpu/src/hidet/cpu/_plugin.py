"""Plug-in module of the CPU target: what hidet-cpu offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import PassSpec, ScheduleSpec, TargetSpec

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """Operators on packed weights."""
    from hidet.cpu.ops import SPECS

    return SPECS


def hidet_targets() -> Iterable[TargetSpec]:
    """The machine this process runs on."""
    return [TargetSpec(name="cpu", aliases=("llvm",), load="hidet.cpu.target:CpuTarget", doc="This CPU, through LLVM")]


def hidet_passes() -> Iterable[PassSpec]:
    """Packing of weights, and lowerings of thread IR that LLVM does not do without a library."""
    return [
        PassSpec(
            name="expand-math",
            level="program",
            targets=("cpu",),
            load="hidet.cpu.passes.expand_math:ExpandMath",
            doc="mathematical functions become code of the module",
        ),
        PassSpec(
            name="cpu-pack-weights",
            level="graph",
            targets=("cpu",),
            after=("eliminate-dead", "assign-layout"),
            before=("split-prepare",),
            load="hidet.cpu.passes.pack_weights:PackWeights",
            doc="weights of matrix products and convolutions are packed once",
        ),
    ]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """The CPU schedule pack; the fallback nest comes from core."""
    return [
        ScheduleSpec(
            name="cpu.elementwise",
            ops=("elementwise",),
            targets=("cpu",),
            load="hidet.cpu.schedules.elementwise:ElementwiseRule",
            doc="fused element-wise chains, vectorised",
        ),
        ScheduleSpec(
            name="cpu.reduce",
            ops=(
                *("sum", "prod", "mean", "amax", "amin", "any", "all", "count_nonzero", "norm", "logsumexp"),
                *("argmax", "argmin", "max_with_index", "min_with_index", "var", "std", "var_mean", "std_mean"),
            ),
            targets=("cpu",),
            prologue="load",
            epilogue="element-wise",
            load="hidet.cpu.schedules.reduce:ReduceRule",
            doc="folds along or across rows, long rows in parts",
        ),
        ScheduleSpec(
            name="cpu.scan",
            ops=("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"),
            targets=("cpu",),
            prologue="load",
            epilogue="element-wise",
            load="hidet.cpu.schedules.scan:ScanRule",
            doc="running folds, along several rows or across them at once",
        ),
        ScheduleSpec(
            name="cpu.softmax",
            ops=("softmax", "log_softmax"),
            targets=("cpu",),
            prologue="load",
            epilogue="element-wise",
            load="hidet.cpu.schedules.softmax:SoftmaxRule",
            doc="softmax along any axis, one pass over memory",
        ),
        ScheduleSpec(
            name="cpu.normalize",
            ops=(
                "layer_norm",
                "layer_norm_with_statistics",
                "rms_norm",
                "group_norm",
                "group_norm_with_statistics",
                "instance_norm",
                "l2_normalize",
            ),
            targets=("cpu",),
            prologue="load",
            epilogue="element-wise",
            load="hidet.cpu.schedules.normalize:NormalizeRule",
            doc="statistics of rows and what is element-wise in them, one pass over memory",
        ),
        ScheduleSpec(
            name="cpu.matmul",
            ops=("matmul", "linear", "cpu.linear_packed"),
            targets=("cpu",),
            epilogue="element-wise",
            load="hidet.cpu.schedules.matmul:MatmulRule",
            doc="register-tiled matrix products on packed panels",
        ),
        ScheduleSpec(
            name="cpu.depthwise",
            ops=("conv", "cpu.depthwise_packed"),
            targets=("cpu",),
            priority=10,
            epilogue="element-wise",
            load="hidet.cpu.schedules.depthwise:DepthwiseRule",
            doc="convolutions with one filter a channel, vectorised along channels",
        ),
        ScheduleSpec(
            name="cpu.conv",
            ops=("conv", "cpu.conv_packed", "conv_transpose", "cpu.conv_transpose_packed"),
            targets=("cpu",),
            epilogue="element-wise",
            load="hidet.cpu.schedules.conv:ConvRule",
            doc="convolutions as matrix products whose rows are addresses of pixels",
        ),
        ScheduleSpec(
            name="cpu.pool",
            ops=(
                "max_pool",
                "max_pool_with_indices",
                "avg_pool",
                "lp_pool",
                "adaptive_avg_pool",
                "adaptive_max_pool",
            ),
            targets=("cpu",),
            epilogue="element-wise",
            load="hidet.cpu.schedules.pool:PoolRule",
            doc="windows reduced along taps, vectorised along channels",
        ),
        ScheduleSpec(
            name="cpu.attention",
            ops=("attention", "attention_with_logsumexp"),
            targets=("cpu",),
            prologue="none",
            epilogue="none",
            load="hidet.cpu.schedules.attention:AttentionRule",
            doc="attention by blocks of queries and keys",
        ),
    ]
