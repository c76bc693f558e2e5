"""Functions and properties that classes of hidet have for old scripts, and names about flow graphs."""

from __future__ import annotations

from collections.abc import Mapping

_TENSOR = (
    *("layout", "copy_", "copy_async", "cpu_async", "cuda_async", "to_device", "masked_fill", "rearrange", "signature"),
    *("cuda_", "vcuda_", "hip", "hip_", "vhip_"),
)
_FLOW_GRAPH = (
    *("dummy_inputs", "latency", "cuda_graph", "hip_graph", "usage_count", "share_map", "draw", "cuda_", "vcuda_"),
    "vhip_",
)
_COMPILED_GRAPH = (
    *("cuda_graph", "run_async", "weights", "set_weights", "meta", "get_cache_dir", "dispatch_table"),
    "clear_dispatch_table",
)
_FORWARD = (
    *("forward_context", "GraphForwardContext", "GraphForwardInstrument", "GraphForwardDebugInstrument"),
    "GraphForwardBenchmarkInstrument",
)
MEMBERS: Mapping[str, str] = {
    **{f"hidet.Tensor.{name}": f"hidet.compat.tensors:{name}" for name in _TENSOR},
    **{f"hidet.FlowGraph.{name}": f"hidet.compat.flow_graph:{name}" for name in _FLOW_GRAPH},
    "hidet.FlowGraph.save": "hidet.compat.graph_files:save_graph",
    **{f"hidet.runtime.CompiledGraph.{name}": f"hidet.compat.compiled_graph:{name}" for name in _COMPILED_GRAPH},
    **{f"hidet.graph.{name}": f"hidet.compat.forward_context:{name}" for name in _FORWARD},
    **{
        f"hidet.{place}{name}": f"hidet.compat.graph_files:{name}"
        for name in ("save_graph", "load_graph")
        for place in ("", "graph.")
    },
    "hidet.graph.GraphPassInstrument": "hidet.compat.pass_instruments:GraphPassInstrument",
    "hidet.cuda.cublas": "hidet.compat.gone:cuda_cublas",
    "hidet.cuda.cudnn": "hidet.compat.gone:cudnn",
    "hidet.cuda.graph": "hidet.compat.cuda_graph:MODULE",
    "hidet.Device": "hidet.api.tensors.tensor:Device",
    "hidet.device": "hidet.compat.devices:device",
    "hidet.runtime.CompiledModule": "hidet.runtime.module:CompiledModule",
    "hidet.runtime.CompiledFunction": "hidet.runtime.module:CompiledFunction",
    "hidet.runtime.Storage": "hidet.compat.storage:Storage",
    "hidet.runtime.storage": "hidet.compat.storage:MODULE",
    "hidet.runtime.load_compiled_module": "hidet.compat.storage:load_compiled_module",
}
"""Path in hidet 0.6 -> what it is."""
