"""An operator said in others
==========================

Say what an operator is in other operators: powers with a known exponent are products, which fuse with all else.
"""

from __future__ import annotations

import numpy as np

import hidet
from hidet import ops
from hidet.graph import Operator, Tensor
from hidet.graph.ops.arithmetic import PowOp
from hidet.graph.transforms import ResolveRule, register_resolve_rule


def optimized_cube(device: str) -> hidet.FlowGraph:
    """A graph of (x + 1) ** 3, optimised, which gives the right numbers."""
    x = hidet.randn([4, 4], device=device)
    symbol = hidet.symbol_like(x)
    exponent = hidet.full([], 3.0, device=device)
    graph = hidet.graph.optimize(hidet.trace_from(ops.pow(symbol + 1.0, exponent)))
    np.testing.assert_allclose(graph(x).numpy(), (x.numpy() + 1) ** 3, rtol=1e-3, atol=1e-4)
    return graph


class CubeRule(ResolveRule):
    """pow(x, 3) is x * x * x."""

    def resolve(self, op: Operator) -> list[Tensor] | None:
        x, exponent = op.inputs
        if exponent.is_symbolic() or exponent.shape != () or int(exponent) != 3:
            return None  # others stay as they are
        return [x * x * x]


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    before = str(optimized_cube(device))
    print(before)
    assert "Pow" in before

    register_resolve_rule(PowOp)(CubeRule)  # or as a decorator of the class
    after = str(optimized_cube(device))
    print(after)
    assert "Pow" not in after and "FlowGraph(Mul, Mul)" in after


if __name__ == "__main__":
    main()
