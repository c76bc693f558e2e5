"""Flow graphs by the names of `hidet.graph.flow_graph`."""

from __future__ import annotations

from hidet.api.flow import FlowGraph, optimize, trace_from
from hidet.compat.cuda_graph import CudaGraph
from hidet.compat.forward_context import (
    GraphForwardBenchmarkInstrument,
    GraphForwardContext,
    GraphForwardDebugInstrument,
    GraphForwardInstrument,
    forward_context,
)
from hidet.compat.graph_files import load_graph, save_graph

__all__ = [
    "CudaGraph",
    "FlowGraph",
    "GraphForwardBenchmarkInstrument",
    "GraphForwardContext",
    "GraphForwardDebugInstrument",
    "GraphForwardInstrument",
    "forward_context",
    "load_graph",
    "optimize",
    "save_graph",
    "trace_from",
]
