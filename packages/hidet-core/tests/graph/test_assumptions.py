"""Sizes that operators take for granted are found, and only those."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.graph import GraphBuilder, TensorType, Value
from hidet.graph.assumptions import assumptions
from hidet.operators import all_operators

OPERATORS = {spec.name: spec for spec in all_operators()}
A, B = dims.symbol("a", 0), dims.symbol("b", 0)
Build = Callable[[GraphBuilder, Callable[..., Value]], Value]

CASES: dict[str, tuple[Build, list[str]]] = {
    "sum of two lengths": (lambda b, x: b.emit("add", x(A), x(B)), ["b == a"]),
    "product": (lambda b, x: b.emit("matmul", x(4, A), x(B, 5)), ["a == b"]),
    "choice": (lambda b, x: b.emit("where", b.emit("greater", x(A), x(A)), x(B), x(A)), ["b == a"]),
    "joining": (lambda b, x: b.emit("concat", x(A, 3), x(B, 4), axis=1), ["a == b"]),
    "new shape": (lambda b, x: b.emit("reshape", x(A, 6), shape=(4, B)), ["4*b == 6*a"]),
    "repetition": (lambda b, x: b.emit("expand", x(A), shape=(7,)), ["7 == a"]),
    "one position": (lambda b, x: b.emit("select", x(A), axis=0, index=5), ["6 <= a"]),
    "a position that differs": (lambda b, x: b.emit("select", x(6), axis=0, index=A), ["a + 1 <= 6"]),
    "channels of a convolution": (lambda b, x: b.emit("conv", x(1, A, 8, 8), x(5, B, 3, 3)), ["b == a"]),
    "windows": (lambda b, x: b.emit("conv", x(1, 2, A), x(5, 2, 3)), ["0 <= a - 2"]),
    "same length": (lambda b, x: b.emit("add", x(A), x(A)), []),
    "slice": (lambda b, x: b.emit("slice", x(A), starts=(0,), stops=(10,)), []),
    "padding": (lambda b, x: b.emit("pad", x(A), pads=((1, 1),), mode="constant", value=0), []),
    "fixed sizes": (lambda b, x: b.emit("add", x(3), x(3)), []),
    "softmax": (lambda b, x: b.emit("softmax", x(A, B), axis=-1), []),
    "merged axes": (lambda b, x: b.emit("reshape", x(A, 6), shape=(-1,)), []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_taken_for_granted(name: str) -> None:
    build, expected = CASES[name]
    builder = GraphBuilder(OPERATORS)

    def tensor(*shape: Dim) -> Value:
        return builder.input(TensorType(dtypes.f32, shape))

    graph = builder.build([build(builder, tensor)])
    found = [f"{a.left} {'==' if a.is_equality else '<='} {a.right}" for a in assumptions(graph)]
    swapped = [" == ".join(reversed(text.split(" == "))) for text in expected]
    assert found in (expected, swapped)


def test_equal_assumptions_are_listed_once() -> None:
    builder = GraphBuilder(OPERATORS)
    x, y = (builder.input(TensorType(dtypes.f32, (size,))) for size in (A, B))
    graph = builder.build([builder.emit("add", x, y), builder.emit("mul", x, y)])
    assert len(assumptions(graph)) == 1
