"""Plug-in module of the CUDA target: what hidet-cuda offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hidet.errors import LaunchError
from hidet.plugins.specs import CheckSpec, OptionSpec, PassSpec, ScheduleSpec, TargetSpec

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.ir.intrinsic import IntrinsicFamily

HIDET_API = 1


def hidet_intrinsics() -> Iterable[IntrinsicFamily]:
    """Those of NVIDIA's GPUs, and tensor maps."""
    from hidet.cuda.intrinsic_families import CUDA, LAUNCHES, TENSOR_MAPS

    return [CUDA, LAUNCHES, TENSOR_MAPS]


def hidet_targets() -> Iterable[TargetSpec]:
    """NVIDIA GPUs."""
    return [
        TargetSpec(
            name="cuda",
            kind="gpu",
            devices=("cuda",),
            load="hidet.cuda.target:CudaTarget",
            machines="hidet.cuda.checks:list_devices",
            doc="An NVIDIA GPU, through NVRTC",
        )
    ]


def hidet_graph_facts(ctx: CompileContext) -> str | None:
    """What schedules know of the device besides its architecture; None where it is not there, which the step says that
    needs it."""
    target: Any = ctx.target
    if target.name != "cuda":
        return ""
    try:
        return repr(target.facts)
    except LaunchError:
        return None


def hidet_options() -> Iterable[OptionSpec]:
    """What products are computed by."""
    return [
        OptionSpec(
            name="cuda.fp16_accumulation",
            type=bool,
            default=False,
            affects_cache=False,
            doc="products of f16 on matrix units are summed in f16, which loses digits, in the place of f32",
        ),
        OptionSpec(
            name="cuda.ftz",
            type=bool,
            default=False,
            affects_cache=True,
            targets=("cuda",),
            doc="numbers of f32 nearer to zero than 2^-126 count as zero",
        ),
        OptionSpec(
            name="cuda.prec_div",
            type=bool,
            default=True,
            affects_cache=True,
            targets=("cuda",),
            doc="quotients of f32 are rounded as IEEE 754 has it; else they may be off by two units in the last place",
        ),
        OptionSpec(
            name="cuda.matrix_units",
            type=bool,
            default=True,
            affects_cache=False,
            doc="whether products and attention of 16-bit floats and tf32 are computed by matrix units",
        ),
    ]


def hidet_passes() -> Iterable[PassSpec]:
    """What kernels on matrix units want, and launches of sm_90."""
    return [
        PassSpec(
            name="cuda-gate-linears",
            level="graph",
            targets=("cuda",),
            after=("narrow-captures",),
            before=("eliminate-dead", "cuda-stack-linears"),
            load="hidet.cuda.passes.gate_linears:GateLinears",
            doc="gated linear units (SwiGLU, GEGLU) are one product with two weights",
        ),
        PassSpec(
            name="cuda-stack-linears",
            level="graph",
            targets=("cuda",),
            after=("narrow-captures", "gpu-attention-over-parts"),
            before=("eliminate-dead",),
            load="hidet.cuda.passes.stack_linears:StackLinears",
            doc="linears of the same rows, as of queries, keys and values, are one product",
        ),
        PassSpec(
            name="cuda-allow-tf32",
            level="graph",
            targets=("cuda",),
            after=("gpu-im2col-patches", "gpu-contiguous-rows"),
            before=("split-prepare",),
            load="hidet.cuda.passes.allow_tf32:AllowTf32",
            doc="products and convolutions of f32 run on matrix units where tf32 is allowed",
        ),
        PassSpec(
            name="cuda-windows-as-channels",
            level="graph",
            targets=("cuda",),
            after=("assign-layout", "gpu-im2col-patches"),
            before=("gpu-channels-last",),
            load="hidet.cuda.passes.windows_as_channels:WindowsAsChannels",
            doc="convolutions of few channels that step over columns see windows of lines as channels",
        ),
        PassSpec(
            name="cuda-rows-along-k",
            level="graph",
            targets=("cuda",),
            after=("gpu-contiguous-rows", "cuda-allow-tf32"),
            before=("split-prepare",),
            load="hidet.cuda.passes.rows_along_k:RowsAlongK",
            doc="products of 8-bit numbers read rows along k, as matrix units take them",
        ),
        PassSpec(
            name="cuda-pad-leading-dim",
            level="graph",
            targets=("cuda",),
            after=("gpu-contiguous-rows", "cuda-allow-tf32"),
            before=("split-prepare",),
            load="hidet.cuda.passes.pad_leading_dim:PadLeadingDim",
            doc="large products of rows of odd lengths read copies whose leading dimensions are padded to 16 bytes",
        ),
        PassSpec(
            name="cuda-float-options",
            level="program",
            targets=("cuda",),
            after=("gpu-block-launches",),
            load="hidet.cuda.passes.float_options:FloatOptions",
            doc="options of CUDA's compiler about numbers near zero and quotients, where they are asked for",
        ),
        PassSpec(
            name="cuda-overlapped-launches",
            level="program",
            targets=("cuda",),
            after=("gpu-block-launches",),
            load="hidet.cuda.passes.overlapped_launches:OverlappedLaunches",
            doc="kernels start while the one before them ends, from sm_90 on",
        ),
        PassSpec(
            name="cuda-spread-blocks",
            level="program",
            targets=("cuda",),
            after=("cuda-overlapped-launches",),
            load="hidet.cuda.passes.spread_blocks:SpreadBlocks",
            doc="blocks of kernels that start early ask for shared memory so that no multiprocessor has too many",
        ),
    ]


def hidet_schedules() -> Iterable[ScheduleSpec]:
    """Products and attention on matrix units; hidet-gpu has the schedules of every GPU."""
    return [
        ScheduleSpec(
            name="cuda.matmul",
            ops=(
                "matmul",
                "linear",
                "stacked_linear",
                "gated_linear",
                "conv",
                "conv_padded_channels",
                "block_scaled_matmul",
            ),
            targets=("cuda",),
            load="hidet.cuda.schedules.matmul:MatmulRule",
            epilogue="element-wise",
            priority=10,
            doc="matrix products and convolutions, of 16-bit floats and tf32 on tensor cores",
        ),
        ScheduleSpec(
            name="cuda.packed_product",
            ops=("matmul", "linear"),
            targets=("cuda",),
            load="hidet.cuda.schedules.packed_product:PackedProductRule",
            prologue="chosen",
            epilogue="element-wise",
            priority=20,
            doc="products of up to eight rows with weights of 4 and 8 bits, which are read as they are packed",
        ),
        ScheduleSpec(
            name="cuda.attention",
            ops=("attention", "attention_with_logsumexp", "varlen_attention", "varlen_attention_with_logsumexp"),
            targets=("cuda",),
            load="hidet.cuda.schedules.attention:AttentionRule",
            priority=10,
            doc="attention with an online softmax, of 16-bit floats on tensor cores",
        ),
    ]


def hidet_checks() -> Iterable[CheckSpec]:
    """The driver, and the compiler."""
    return [
        CheckSpec(name="cuda.driver", load="hidet.cuda.checks:check_driver", doc="NVIDIA's driver"),
        CheckSpec(name="cuda.nvrtc", load="hidet.cuda.checks:check_nvrtc", doc="the compiler of CUDA C++"),
    ]
