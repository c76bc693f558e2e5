"""Running one graph pass on text, and comparing what two graphs compute."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.graph import Graph
from hidet.graph.parser import parse_graph
from hidet.graph.printer import canonical_lines, print_graph
from hidet.graph.verify import verify_graph
from hidet.plugins.host import load_registry
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_inputs


@pytest.fixture(scope="session")
def ctx() -> CompileContext:
    """A context for graph passes alone: its target only says what it likes."""
    target: Any = SimpleNamespace(name="none", device="cpu", prefers_channels_last=True)
    return CompileContext(
        target=target, registry=load_registry(), options=Options(verify=True), cache=open_cache(enabled=False)
    )


@pytest.fixture(scope="session")
def parse(ctx: CompileContext) -> Callable[[str], Graph]:
    """`parse(text)`: the verified graph of an indented text."""

    def parsed(text: str) -> Graph:
        graph = parse_graph(textwrap.dedent(text).strip() + "\n", ctx.registry.operators)
        verify_graph(graph)
        return graph

    return parsed


@pytest.fixture(scope="session")
def becomes(ctx: CompileContext, parse: Callable[[str], Graph]) -> Callable[..., None]:
    """`becomes(pass, before, after)`: checks that a pass turns one text into the other, up to names of values, and that
    both compute the same. tolerance: for passes that leave out roundings of the graph, theirs."""

    def check(graph_pass: Any, before: str, after: str, tolerance: float = 1e-6) -> None:
        graph = parse(before)
        result = graph_pass.run(graph, ctx)
        verify_graph(result, redefine=True)
        assert_same_result(graph, result, tolerance=tolerance)
        assert canonical_lines(result) == canonical_lines(parse(after)), print_graph(result)

    return check


def assert_same_result(before: Graph, after: Graph, seed: int = 0, tolerance: float = 1e-6) -> None:
    """Both graphs give the same outputs, up to rounding in f64, on random inputs."""
    assert [v.type for v in before.outputs] == [v.type for v in after.outputs]
    assert before.inputs == after.inputs
    inputs = random_inputs(before, seed)
    bindings = {"s": 3}
    for number, (x, y) in enumerate(
        zip(interpret(before, inputs, bindings), interpret(after, inputs, bindings), strict=True)
    ):
        if x.dtype.kind == "f":
            limits = {"rtol": tolerance, "atol": tolerance * max(1.0, _peak(x))}
            np.testing.assert_allclose(y, x, **limits, err_msg=f"output {number}")
        else:
            np.testing.assert_array_equal(y, x, err_msg=f"output {number}")


def _peak(array: Any) -> float:
    return float(np.abs(array).max()) if array.size else 0.0


@pytest.fixture(scope="session")
def same_result() -> Callable[..., None]:
    """`assert_same_result` for test files."""
    return assert_same_result
