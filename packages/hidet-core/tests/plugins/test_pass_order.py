"""The order of passes keeps every demand and disturbs the registered order as little as possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hidet.errors import PluginError
from hidet.plugins import PassSpec
from hidet.plugins.pass_order import order_passes


def graph_pass(name: str, after: tuple[str, ...] = (), before: tuple[str, ...] = ()) -> PassSpec:
    return PassSpec(name=name, level="graph", after=after, before=before, load="m:f")


def names(*passes: PassSpec) -> str:
    return "".join(spec.name for spec in order_passes(passes))


def test_without_demands_the_order_is_as_registered() -> None:
    assert names(graph_pass("c"), graph_pass("a"), graph_pass("b")) == "cab"


def test_a_late_pass_moves_forward_only_to_the_one_that_needs_it() -> None:
    assert names(*map(graph_pass, "abcd"), graph_pass("x", before=("c",))) == "abxcd"


def test_a_pass_between_two_others_is_placed_between_them() -> None:
    assert names(*map(graph_pass, "abcd"), graph_pass("x", after=("a",), before=("c",))) == "abxcd"


def test_a_cycle_names_its_passes_in_order() -> None:
    with pytest.raises(PluginError, match=r"contradict each other: 'a' before 'b' before 'c' before 'a'"):
        order_passes([graph_pass("a", before=("b",)), graph_pass("b", before=("c",)), graph_pass("c", before=("a",))])


def test_a_thousand_passes_in_a_chain_do_not_exhaust_the_stack() -> None:
    chain = [graph_pass(f"p{i}", after=(f"p{i + 1}",)) for i in range(3000)]
    assert order_passes(chain)[0].name == "p2999"


@given(st.permutations(range(7)), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=10), st.data())
def test_every_demand_holds_in_the_result(ranks, pairs, data) -> None:
    # Demands that agree with one hidden order never contradict each other.
    demands = [(i, j) for i, j in pairs if ranks[i] < ranks[j]]
    use_after = {pair: data.draw(st.booleans()) for pair in demands}
    passes = [
        graph_pass(
            f"p{i}",
            after=tuple(f"p{a}" for a, b in demands if b == i and use_after[a, b]),
            before=tuple(f"p{b}" for a, b in demands if a == i and not use_after[a, b]),
        )
        for i in range(7)
    ]
    position = {spec.name: index for index, spec in enumerate(order_passes(passes))}
    assert len(position) == 7
    assert all(position[f"p{i}"] < position[f"p{j}"] for i, j in demands)
