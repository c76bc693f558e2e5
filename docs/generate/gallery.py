"""The order of the gallery: as somebody reads it who begins."""

from __future__ import annotations

ORDER = (
    "quick_start",
    "optimize_pytorch_model",
    "optimize_onnx_model",
    "visualize_flow_graph",
    "script_hello_world",
    "script_scalar_addition",
    "script_vector_addition",
    "script_kernel_functions",
    "script_naive_matmul",
    "script_dynamic_kernel",
    "autograd_kernel",
    "operator_from_definition",
    "operator_rule_based",
    "operator_template_based",
    "torch_operator_mapping",
    "resolve_rule",
    "subgraph_rewrite_rule",
)
"""Names of the scripts in examples/gallery."""


def place(file_name: str) -> int:
    """Where a script stands. ValueError for one that is not in the list."""
    return ORDER.index(file_name.removesuffix(".py"))
