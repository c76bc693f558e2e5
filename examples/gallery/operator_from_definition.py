"""Operators from formulas
=======================

Operators as formulas of their elements: sums, extremes, products, softmax. Each is compiled alone, for the host.

Adding an operator to hidet begins with what it means, index by index. ``tensor_input`` names an input, ``compute`` a
tensor by the formula of an element, ``reduce`` and ``arg_reduce`` numbers over all indices below some extents.
"""

import numpy as np

import hidet
from hidet.ir.compute import arg_reduce, compute, reduce, tensor_input
from hidet.ir.primitives import exp
from hidet.ir.task import Task
from hidet.runtime import CompiledTask


def run(task: Task, *inputs: hidet.Tensor) -> np.ndarray:
    """Print a task, compile it and run it."""
    print(task)
    built: CompiledTask = hidet.drivers.build_task(task, target="cpu")
    (output,) = built.run_async(list(inputs))
    return output.numpy()


def check(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    """Say what came out, and that it is right."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    print(f"{name}: {np.round(found.reshape(-1)[:4], 3)}\n")


def main() -> None:
    rows, columns, inner = 5, 7, 3
    x, y = hidet.randn([rows, columns]), hidet.randn([rows, columns])
    a = tensor_input("a", "float32", [rows, columns])
    b = tensor_input("b", "float32", [rows, columns])

    total = compute("c", [rows, columns], lambda i, j: a[i, j] + b[i, j])
    check("sum of two", run(Task("add", [a, b], [total]), x, y), x.numpy() + y.numpy())

    row_sums = compute("c", [rows], lambda i: reduce([columns], lambda j: a[i, j], "sum"))
    check("sums of rows", run(Task("row_sums", [a], [row_sums]), x), x.numpy().sum(1))

    places = compute("c", [rows], lambda i: arg_reduce(columns, lambda j: a[i, j], "max"))
    check("places of the largest", run(Task("arg_max", [a], [places]), x), x.numpy().argmax(1))

    w = tensor_input("w", "float32", [columns, inner])
    product = compute(
        "c", [rows, inner], lambda i, j: reduce([columns], lambda k: a[i, k] * w[k, j], reduce_type="sum")
    )
    weight = hidet.randn([columns, inner])
    check("product", run(Task("matmul", [a, w], [product]), x, weight), x.numpy() @ weight.numpy())

    # Reductions may stand anywhere in a formula, and definitions may have many stages.
    largest = compute("largest", [rows], lambda i: reduce([columns], lambda j: a[i, j], "max"))
    powers = compute("powers", [rows, columns], lambda i, j: exp(a[i, j] - largest[i]))
    sums = compute("sums", [rows], lambda i: reduce([columns], lambda j: powers[i, j], "sum"))
    softmax = compute("c", [rows, columns], lambda i, j: powers[i, j] / sums[i])
    expected = np.exp(x.numpy()) / np.exp(x.numpy()).sum(1, keepdims=True)
    check("softmax", run(Task("softmax", [a], [softmax]), x), expected)


if __name__ == "__main__":
    main()
