"""Names in other modules than those that have them now."""

from __future__ import annotations

from collections.abc import Mapping

_CREATION = (
    *("asarray", "randn", "empty", "zeros", "ones", "symbol", "randint", "randn_like", "empty_like", "zeros_like"),
    *("ones_like", "symbol_like", "full", "full_like", "from_dlpack", "from_torch"),
)

_OPERATORS = (
    *("cuda_batch_matmul", "hip_batch_matmul", "matmul_x86", "matmul_cublas", "conv1d_gemm", "conv2d_gemm"),
    *("conv3d_gemm", "conv2d_channel_last", "conv2d_winograd", "conv2d_gemm_fp16", "conv2d_gemm_fp16_channel_last"),
    *("conv2d_gemm_image_transform", "conv2d_transpose_gemm", "barrier", "wait_tensor", "fused_operator"),
    *("all_reduce", "all_gather", "reduce_scatter"),
)
PLACES: Mapping[str, str] = {
    **{f"hidet.graph.{name}": f"hidet.api.tensors.create:{name}" for name in _CREATION},
    **{f"hidet.ops.{name}": f"hidet.compat.operators:{name}" for name in _OPERATORS},
    "hidet.graph.from_numpy": "hidet.api.tensors.create:asarray",
    "hidet.graph.Tensor": "hidet.api.tensors.tensor:Tensor",
    "hidet.graph.ops": "hidet:ops",
    "hidet.graph.PassContext": "hidet.compat.pass_context:PassContext",
    "hidet.runtime.CompiledGraph": "hidet.runtime.compiled:CompiledGraph",
    "hidet.runtime.BackendException": "hidet.errors:HidetError",
    "hidet.runtime.load_compiled_graph": "hidet.compat.files:load_compiled_graph",
    "hidet.runtime.save_compiled_graph": "hidet.compat.files:save_compiled_graph",
    "hidet.load_compiled_graph": "hidet.compat.files:load_compiled_graph",
    "hidet.save_compiled_graph": "hidet.compat.files:save_compiled_graph",
}
"""Path in hidet 0.6 -> what it is."""
