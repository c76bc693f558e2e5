"""Rules of users that change graphs: rewrite rules for patterns of operators, resolve rules for operators."""

from hidet.graph.transforms.graph_patterns import (
    MatchDict,
    OperatorPattern,
    SubgraphRewriteRule,
    TensorPattern,
    clear_registered_rewrite_rules,
    deregister_rewrite_rule,
    graph_pattern_match,
    op_pattern,
    register_rewrite_rule,
    registered_rewrite_rules,
)
from hidet.graph.transforms.resolve_variant import (
    ResolveRule,
    clear_registered_resolve_rules,
    register_resolve_rule,
    registered_resolve_rules,
)
from hidet.graph.transforms.subgraph_rewrite import GraphPass, resolve_variant_pass, subgraph_rewrite_pass

__all__ = [
    "GraphPass",
    "MatchDict",
    "OperatorPattern",
    "ResolveRule",
    "SubgraphRewriteRule",
    "TensorPattern",
    "clear_registered_resolve_rules",
    "clear_registered_rewrite_rules",
    "deregister_rewrite_rule",
    "graph_pattern_match",
    "op_pattern",
    "register_resolve_rule",
    "register_rewrite_rule",
    "registered_resolve_rules",
    "registered_rewrite_rules",
    "resolve_variant_pass",
    "subgraph_rewrite_pass",
]
