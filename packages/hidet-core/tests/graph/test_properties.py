"""What holds for every graph: it verifies, its text parses back, and the parsed graph computes the same."""

import numpy as np
import pytest

from hidet import dtypes
from hidet.graph.parser import parse_graph
from hidet.graph.printer import canonical_lines, constant_table, print_graph
from hidet.graph.verify import verify_graph
from hidet.operators import all_operators
from hidet.testing.interpret import interpret
from hidet.testing.random_graphs import random_graph, random_inputs

OPERATORS = {spec.name: spec for spec in all_operators()}
SEEDS = range(24)


def graph_of(seed):
    dtype = (dtypes.f64, dtypes.f32)[seed % 2]
    return random_graph(seed, OPERATORS, size=12, dtype=dtype, symbolic=seed % 3 == 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph_is_valid_with_definitions_made_anew(seed):
    verify_graph(graph_of(seed), redefine=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_printed_graph_parses_back_equal(seed):
    graph = graph_of(seed)
    text = print_graph(graph)
    again = parse_graph(text, OPERATORS, constant_table(graph))
    verify_graph(again)
    assert canonical_lines(again) == canonical_lines(graph)
    assert print_graph(again) == text


@pytest.mark.parametrize("seed", SEEDS)
def test_a_parsed_graph_computes_the_same_bits(seed):
    graph = graph_of(seed)
    again = parse_graph(print_graph(graph), OPERATORS, constant_table(graph))
    results = [interpret(g, random_inputs(graph, seed), {"s": 3}) for g in (graph, again)]
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=True)


def test_two_random_graphs_differ():
    assert canonical_lines(graph_of(2)) != canonical_lines(graph_of(4))
