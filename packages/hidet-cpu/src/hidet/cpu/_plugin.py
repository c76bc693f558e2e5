"""Plug-in module of the CPU target: what hidet-cpu offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hidet.plugins.specs import CheckSpec, PassSpec, ScheduleSpec, TargetSpec

if TYPE_CHECKING:
    from hidet.graph.operator import OperatorSpec

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """Operators on packed weights."""
    from hidet.cpu.ops import SPECS

    return SPECS


def hidet_targets() -> Iterable[TargetSpec]:
    """The machine this process runs on."""
    return [
        TargetSpec(
            name="cpu",
            kind="cpu",
            aliases=("llvm",),
            devices=("cpu",),
            load="hidet.cpu.target:CpuTarget",
            doc="This CPU, through LLVM",
        )
    ]


def hidet_graph_facts() -> str:
    """Nothing: the target's name for its machine, and its constants, tell all that schedules look at."""
    return ""


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
            name="threads-to-loops",
            level="program",
            targets=("cpu",),
            before=("expand-math",),
            load="hidet.cpu.passes.threads_to_loops:ThreadsToLoops",
            doc="kernels for blocks of threads run one thread after the other",
        ),
        PassSpec(
            name="split-batch-norm",
            level="graph",
            targets=("cpu",),
            after=("fold-conv-batch-norm",),
            before=("narrow-captures",),
            load="hidet.passes.graph.split_batch_norm:SplitBatchNorm",
            doc="factors of batch norms are computed once a call",
        ),
        PassSpec(
            name="cpu-multiply-patches",
            level="graph",
            targets=("cpu",),
            after=("fold-conv-batch-norm",),
            before=("narrow-captures",),
            load="hidet.cpu.passes.multiply_patches:MultiplyPatches",
            doc="patch embeddings become matrix products",
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
    element_wise, fused_both = {"epilogue": "element-wise"}, {"prologue": "gather", "epilogue": "element-wise"}
    table: Iterable[tuple[str, str, str, Mapping[str, Any], str]] = (
        ("elementwise", "elementwise", "elementwise:ElementwiseRule", {}, "fused element-wise chains, vectorised"),
        (
            "reduce",
            "family:reduction",
            "reduce:ReduceRule",
            fused_both,
            "reductions along or across rows, long rows in parts",
        ),
        (
            "scan",
            "family:scan",
            "scan:ScanRule",
            fused_both,
            "scans, along several rows or across them at once",
        ),
        (
            "softmax",
            "family:softmax",
            "softmax:SoftmaxRule",
            fused_both,
            "softmax along any axis, one pass over memory",
        ),
        (
            "normalize",
            "family:normalization family:group-normalization",
            "normalize:NormalizeRule",
            fused_both,
            "statistics of rows and what is element-wise in them, one pass over memory",
        ),
        (
            "matmul",
            "matmul linear cpu.linear_packed",
            "matmul:MatmulRule",
            element_wise,
            "register-tiled matrix products on packed panels",
        ),
        (
            "depthwise",
            "conv cpu.depthwise_packed",
            "depthwise:DepthwiseRule",
            {**element_wise, "priority": 10},
            "convolutions with one filter a channel, vectorised along channels",
        ),
        (
            "conv",
            "conv cpu.conv_packed conv_transpose cpu.conv_transpose_packed",
            "conv:ConvRule",
            element_wise,
            "convolutions as matrix products whose rows are addresses of pixels",
        ),
        (
            "pool",
            "family:pooling",
            "pool:PoolRule",
            element_wise,
            "windows reduced along taps, vectorised along channels",
        ),
        (
            "attention",
            "attention attention_with_logsumexp varlen_attention varlen_attention_with_logsumexp",
            "attention:AttentionRule",
            {"prologue": "none", "epilogue": "none"},
            "attention by blocks of queries and keys",
        ),
    )
    return [
        ScheduleSpec(
            name=f"cpu.{name}",
            ops=tuple(ops.split()),
            targets=("cpu",),
            load=f"hidet.cpu.schedules.{load}",
            doc=doc,
            **abilities,
        )
        for name, ops, load, abilities, doc in table
    ]


def hidet_checks() -> Iterable[CheckSpec]:
    """The processor."""
    return [
        CheckSpec(name="cpu.processor", load="hidet.cpu.checks:check_processor", doc="SIMD, matrix units, threads"),
    ]
