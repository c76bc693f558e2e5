"""An operator whose program hidet writes
======================================

An operator of your own whose program hidet writes: its definition is all that there is to it.

A ``Task`` says what is computed, an ``Operator`` puts it on tensors. Rules of the target schedule it, and it fuses with
what stands around it.
"""

import numpy as np

import hidet
from hidet.graph import Operator, Tensor
from hidet.graph.ops.utils import input_like
from hidet.ir.compute import TensorNode, compute, reduce
from hidet.ir.task import Task


class BatchMatmulTask(Task):
    """c[p, i, j] = sum over k of a[p, i, k] * b[p, k, j]"""

    def __init__(self, a: TensorNode, b: TensorNode):
        batch, rows, inner = a.const_shape
        columns = b.const_shape[2]
        c = compute(
            name="c",
            shape=[batch, rows, columns],
            fcompute=lambda p, i, j: reduce(
                shape=[inner], fcompute=lambda k: a[p, i, k] * b[p, k, j], reduce_type="sum"
            ),
        )
        super().__init__(name="batch_matmul", inputs=[a, b], outputs=[c], attributes={"batch": batch})


class BatchMatmulOp(Operator):
    def __init__(self, a: Tensor, b: Tensor):
        assert len(a.shape) == len(b.shape) == 3
        assert a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1]
        super().__init__(inputs=[a, b], attributes={}, task=BatchMatmulTask(input_like(a, "a"), input_like(b, "b")))


def batch_matmul(a: Tensor, b: Tensor) -> Tensor:
    """The function that users call."""
    return BatchMatmulOp(a, b).outputs[0]


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    a, b = hidet.randn([2, 6, 5], device=device), hidet.randn([2, 5, 4], device=device)
    expected = a.numpy() @ b.numpy()

    c = batch_matmul(a, b)
    np.testing.assert_allclose(c.numpy(), expected, rtol=1e-5, atol=1e-5)
    print(c)

    x, y = hidet.symbol_like(a), hidet.symbol_like(b)
    graph = hidet.trace_from(hidet.ops.relu(batch_matmul(x, y)), inputs=[x, y])
    assert isinstance(graph.nodes[0], BatchMatmulOp)
    optimized = hidet.graph.optimize(graph)
    print(optimized)
    assert "kernel 1" not in str(optimized)  # relu is computed where the product is written
    np.testing.assert_allclose(optimized(a, b).numpy(), np.maximum(expected, 0), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    main()
