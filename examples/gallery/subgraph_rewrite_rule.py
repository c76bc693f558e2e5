"""A pattern of operators replaced
===============================

Put other operators in the places of a pattern: two products of one tensor, side by side, are one product.

The two constant matrices are joined when the rule is applied, not when the model runs.
"""

from __future__ import annotations

import numpy as np

import hidet
from hidet import ops
from hidet.graph import Tensor
from hidet.graph.ops.matmul import MatmulOp
from hidet.graph.ops.transform import ConcatOp
from hidet.graph.transforms import (
    SubgraphRewriteRule,
    TensorPattern,
    clear_registered_rewrite_rules,
    op_pattern,
    register_rewrite_rule,
    registered_rewrite_rules,
    subgraph_rewrite_pass,
)
from hidet.graph.transforms.graph_patterns import MatchDict


class JoinProducts(SubgraphRewriteRule):
    """concat(x @ a, x @ b) is x @ concat(a, b)."""

    def __init__(self):
        super().__init__("concat(matmul(x, a), matmul(x, b)) -> matmul(x, concat(a, b))")
        self.x = TensorPattern()
        self.a = TensorPattern(is_const=True)
        self.b = TensorPattern(is_const=True)
        products = [op_pattern(MatmulOp, [self.x, self.a]), op_pattern(MatmulOp, [self.x, self.b])]
        self.y = op_pattern(ConcatOp, products)

    def source(self) -> list[TensorPattern]:
        return [self.y]

    def target(self, matched: MatchDict) -> list[Tensor] | None:
        x, a, b, y = (matched[pattern] for pattern in (self.x, self.a, self.b, self.y))
        if y.op.attrs["axis"] not in (-1, len(y.shape) - 1):
            return None
        return [ops.matmul(x, ops.concat([a, b], axis=1))]


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    x = hidet.randn([4, 4], device=device)
    a, b = hidet.randn([4, 3], device=device), hidet.randn([4, 2], device=device)
    symbol = hidet.symbol_like(x)
    graph = hidet.trace_from(ops.relu(ops.concat([ops.matmul(symbol, a), ops.matmul(symbol, b)], axis=1)))
    print(graph)

    register_rewrite_rule(JoinProducts())
    for rule in registered_rewrite_rules():
        print("rule:", rule.name)

    rewritten = subgraph_rewrite_pass()(graph)
    print(rewritten)
    assert [node.name for node in rewritten.nodes] == ["matmul", "relu"]

    # Registered rules hold wherever graphs are optimised or compiled.
    optimized = hidet.graph.optimize(graph)
    print(optimized)
    assert "concat" not in str(optimized)
    expected = np.maximum(x.numpy() @ np.concatenate([a.numpy(), b.numpy()], axis=1), 0)
    for found in (graph, rewritten, optimized):
        np.testing.assert_allclose(found(x).numpy(), expected, rtol=1e-5, atol=1e-5)

    clear_registered_rewrite_rules()
    assert registered_rewrite_rules() == []


if __name__ == "__main__":
    main()
