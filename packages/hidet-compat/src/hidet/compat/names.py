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
    *("all_reduce", "all_gather", "reduce_scatter", "softmin", "batch_norm_infer", "lp_norm", "resize2d"),
    *("embedding_bag", "symmetric_quantize", "symmetric_dequantize", "real", "imag", "conj", "make_complex"),
    *("einops_rearrange", "meshgrid", "set_strided_slice", "conv_pad", "scatter_", "scatter_add_", "transfer"),
)
_TYPES = (
    *("BaseType", "DataType", "TensorType", "PointerType", "TensorPointerType", "VoidType", "ReferenceType"),
    *("FuncType", "data_type", "tensor_type", "tensor_pointer_type", "pointer_type"),
)
_EXPRESSIONS = (
    *("if_then_else", "cast", "var", "scalar_var", "tensor_var", "index_vars", "symbol_var", "constant", "convert"),
    *("equal", "not_equal", "less_than", "less_equal", "left_shift", "right_shift", "bitwise_and", "bitwise_or"),
    *("bitwise_xor", "logical_and", "logical_or", "logical_not", "is_constant", "is_zero", "is_one"),
)
_CHECKS = (
    *("check_unary", "check_unary_dynamic", "check_binary", "check_binary_dynamic", "check_ternary", "check_module"),
    *("check_torch_unary", "check_torch_binary", "check_torch_binary_dynamic", "check_torch_binary_with_inputs"),
    *("check_torch_ternary", "assert_torch_allclose", "capture_stdout", "device_to_torch", "benchmark_func"),
)
_CACHE = ("cache_dir", "cache_file", "clear_op_cache", "clear_cache_dir")
_CUDA = ("set_kernel_max_dynamic_smem_bytes", "memcpy", "memcpy_async", "fast_intdiv", "fast_intmod")
PLACES: Mapping[str, str] = {
    **{f"hidet.graph.{name}": f"hidet.api.tensors.create:{name}" for name in _CREATION},
    **{f"hidet.ops.{name}": f"hidet.compat.operators:{name}" for name in _OPERATORS},
    "hidet.graph.from_numpy": "hidet.api.tensors.create:asarray",
    "hidet.graph.Tensor": "hidet.api.tensors.tensor:Tensor",
    "hidet.graph.PassContext": "hidet.compat.pass_context:PassContext",
    "hidet.runtime.CompiledGraph": "hidet.runtime.compiled:CompiledGraph",
    "hidet.runtime.BackendException": "hidet.errors:HidetError",
    "hidet.runtime.load_compiled_graph": "hidet.compat.files:load_compiled_graph",
    "hidet.runtime.save_compiled_graph": "hidet.compat.files:save_compiled_graph",
    "hidet.runtime.CompiledTask": "hidet.compat.build_task:CompiledTask",
    "hidet.drivers.build_task": "hidet.compat.build_task:build_task",
    "hidet.drivers.build_ir_module_batch": "hidet.compat.build_task:build_ir_module_batch",
    "hidet.drivers.build_task_batch": "hidet.compat.build_task:build_task_batch",
    **dict.fromkeys(
        ("hidet.Operator", "hidet.graph.Operator", "hidet.graph.operator.Operator"), "hidet.compat.operator:Operator"
    ),
    **dict.fromkeys(("hidet.Task", "hidet.ir.Task"), "hidet.ir.task:Task"),
    **{f"hidet.ir.{name}": f"hidet.ir.type:{name}" for name in _TYPES},
    **{f"hidet.ir.expr.{name}": f"hidet.compat.expressions:{name}" for name in _EXPRESSIONS},
    **{f"hidet.ir.{name}": f"hidet.ir.module:{name}" for name in ("IRModule", "Function")},
    "hidet.ir.func.IRModule": "hidet.ir.module:IRModule",
    **{f"hidet.ir.{name}": f"hidet.ir.builders:{name}" for name in ("FunctionBuilder", "StmtBuilder")},
    **{f"hidet.lang.{name}": f"hidet.ir.type:{name}" for name in _TYPES if name != "tensor_type"},
    **{f"hidet.testing.{name}": f"hidet.testing.checks:{name}" for name in _CHECKS},
    **dict.fromkeys(("hidet.Module", "hidet.graph.Module"), "hidet.nn.module:Module"),
    "hidet.graph.nn": "hidet:nn",
    "hidet.graph.GraphPass": "hidet.graph.transforms.subgraph_rewrite:GraphPass",
    "hidet.lang.cuda.cublas": "hidet.compat.gone:cublas",
    **{f"hidet.{name}": f"hidet.compat.gone:{name}" for name in ("apps", "ffi", "kernels")},
    **{f"hidet.utils.{name}": f"hidet.compat.sizes:{name}" for name in ("cdiv", "gcd", "lcm", "factorize")},
    "hidet.utils.Timer": "hidet.compat.timer:Timer",
    **{f"hidet.utils.{name}": f"hidet.compat.cache_files:{name}" for name in _CACHE},
    **{
        f"{place}.{name}": f"hidet.compat.task_files:{name}"
        for name in ("save_task", "load_task")
        for place in ("hidet", "hidet.ir")
    },
    "hidet.runtime.load_compiled_task": "hidet.compat.build_task:load_compiled_task",
    "hidet.lang.range": "builtins:range",
    "hidet.lang.Expr": "hidet.compat.expressions:ExprKind",
    "hidet.lang.Var": "hidet.compat.expressions:VarKind",
    "hidet.lang.Dereference": "hidet.ir.expr:Load",
    "hidet.lang.DataLayout": "hidet.ir.layout:DataLayout",
    "hidet.lang.ForStmtAttr": "hidet.compat.loops:ForStmtAttr",
    "hidet.lang.Function": "hidet.ir.module:Function",
    **{f"hidet.lang.cuda.{name}": f"hidet.compat.cuda_scripts:{name}" for name in _CUDA},
    "hidet.ir.Expr": "hidet.compat.expressions:ExprKind",
    "hidet.ir.Var": "hidet.compat.expressions:VarKind",
    "hidet.ir.SymbolVar": "hidet.compat.expressions:SymbolKind",
    "hidet.ir.Constant": "hidet.compat.expressions:ConstantKind",
    "hidet.ir.infer_type": "hidet.compat.expressions:infer_type",
    "hidet.ir.Node": "hidet.ir.node:IRNode",
    "hidet.ir.Stmt": "hidet.ir.stmt:Stmt",
    "hidet.ir.DataLayout": "hidet.ir.layout:DataLayout",
    "hidet.ir.TaskMapping": "hidet.ir.mapping:TaskMapping",
    "hidet.ir.TensorNode": "hidet.ir.compute:TensorNode",
    "hidet.ir.ScalarNode": "hidet.ir.compute:ScalarNode",
    "hidet.load_compiled_graph": "hidet.compat.files:load_compiled_graph",
    "hidet.save_compiled_graph": "hidet.compat.files:save_compiled_graph",
}
"""Path in hidet 0.6 -> what it is."""
