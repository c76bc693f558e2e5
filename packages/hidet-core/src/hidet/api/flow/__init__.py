"""Tensors that remember how they are computed: `hidet.symbol`, `hidet.ops`, `hidet.trace_from`, `FlowGraph`.

An operator on tensors that have elements runs at once; one on a symbolic tensor gives a symbolic one, and the graph of
those is made of what they remember.
"""

from hidet.api.flow.graph import FlowGraph, optimize, trace_from
from hidet.api.flow.operation import Operation, apply

__all__ = ["FlowGraph", "Operation", "apply", "optimize", "trace_from"]
