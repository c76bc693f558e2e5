"""Rules of users change graphs that are optimised, compiled, or imported from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet import ops
from hidet.errors import PluginError
from hidet.graph.ops.arithmetic import AddOp, PowOp, SubtractOp
from hidet.graph.ops.matmul import MatmulOp
from hidet.graph.ops.transform import ConcatOp
from hidet.graph.transforms import (
    ResolveRule,
    SubgraphRewriteRule,
    TensorPattern,
    clear_registered_resolve_rules,
    clear_registered_rewrite_rules,
    deregister_rewrite_rule,
    graph_pattern_match,
    op_pattern,
    register_resolve_rule,
    register_rewrite_rule,
    registered_rewrite_rules,
    resolve_variant_pass,
    subgraph_rewrite_pass,
)


@pytest.fixture(autouse=True)
def _no_rules():
    yield
    clear_registered_rewrite_rules()
    clear_registered_resolve_rules()


def names(graph):
    return [node.name for node in graph.nodes]


class SumOfTwo(SubgraphRewriteRule):
    """(x + y) - y is x, for any y."""

    def __init__(self):
        super().__init__("(x + y) - y -> x")
        self.x, self.y = TensorPattern(), TensorPattern(is_symbolic=True)
        self.z = (self.x + self.y) - self.y

    def source(self):
        return [self.z]

    def target(self, matched):
        return [matched[self.x]]


class Beside(SubgraphRewriteRule):
    """Two products of one tensor with constants are one product, and its parts."""

    def __init__(self):
        super().__init__()
        self.x, (self.a, self.b) = TensorPattern(), TensorPattern.tensors(2, is_const=True)
        self.products = [op_pattern(MatmulOp, [self.x, other]) for other in (self.a, self.b)]

    def source(self):
        return self.products

    def target(self, matched):
        a, b = matched[self.a], matched[self.b]
        both = ops.matmul(matched[self.x], ops.concat([a, b], axis=1))
        return ops.split(both, [a.shape[1], b.shape[1]], axis=1)


def test_a_rule_may_give_back_what_the_pattern_read() -> None:
    x, y = hidet.symbol([3]), hidet.symbol([3])
    graph = hidet.trace_from(ops.relu(x + y - y), inputs=[x, y])
    register_rewrite_rule(SumOfTwo())
    assert names(subgraph_rewrite_pass()(graph)) == ["relu"]
    assert graph(hidet.asarray([-1.0, 0.0, 1.0]), hidet.ones([3])).tolist() == [0.0, 0.0, 1.0]


def test_a_pattern_is_not_taken_where_a_part_is_read_elsewhere() -> None:
    x, y = hidet.symbol([3]), hidet.symbol([3])
    both = x + y
    register_rewrite_rule(SumOfTwo())
    graph = hidet.trace_from([both - y, ops.exp(both)], inputs=[x, y])
    assert names(subgraph_rewrite_pass()(graph)) == names(graph)
    returned = hidet.trace_from([both - y, both], inputs=[x, y])
    assert subgraph_rewrite_pass()(returned) is returned


def test_a_pattern_of_the_same_tensor_twice_needs_the_same_tensor() -> None:
    x, y, z = (hidet.symbol([3]) for _ in range(3))
    register_rewrite_rule(SumOfTwo())
    graph = hidet.trace_from(x + y - z, inputs=[x, y, z])
    assert names(subgraph_rewrite_pass()(graph)) == ["add", "sub"]


def test_several_results_are_replaced_together() -> None:
    x = hidet.symbol([4, 4])
    a, b, v = hidet.randn([4, 3]), hidet.randn([4, 2]), hidet.randn([4, 4])
    graph = hidet.trace_from([ops.relu(ops.matmul(x, a)), ops.tanh(ops.matmul(x, b))])
    register_rewrite_rule(Beside())
    changed = subgraph_rewrite_pass()(graph)
    assert names(changed).count("matmul") == 1
    expected = [np.maximum(v.numpy() @ a.numpy(), 0), np.tanh(v.numpy() @ b.numpy())]
    for found in (graph, changed):
        for one, other in zip(found.forward([v]), expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)


def test_constants_and_symbolic_tensors_are_told_apart() -> None:
    x = hidet.symbol([3])
    y = x + hidet.ones([3])
    constant, symbolic = TensorPattern(is_const=True), TensorPattern(is_symbolic=True)
    matched, why = graph_pattern_match(op_pattern(AddOp, [symbolic, constant]), y)
    assert matched[symbolic] is x and why == ""
    assert graph_pattern_match(op_pattern(AddOp, [constant, symbolic]), y) == ({}, "the tensor is computed otherwise")
    assert graph_pattern_match(op_pattern(SubtractOp, [symbolic, constant]), y)[0] == {}


def test_tensors_of_other_shapes_do_not_stand_for_a_result() -> None:
    class Wrong(SumOfTwo):
        def target(self, matched):
            return [ops.concat([matched[self.x]] * 2, axis=0)]

    x, y = hidet.symbol([3]), hidet.symbol([3])
    register_rewrite_rule(Wrong())
    assert names(subgraph_rewrite_pass()(hidet.trace_from(x + y - y, inputs=[x, y]))) == ["add", "sub"]


def test_rules_have_names_and_are_registered_once() -> None:
    register_rewrite_rule(SumOfTwo())
    with pytest.raises(PluginError, match="registered already"):
        register_rewrite_rule(SumOfTwo())
    assert [rule.name for rule in registered_rewrite_rules()] == ["(x + y) - y -> x"]
    deregister_rewrite_rule("(x + y) - y -> x")
    assert registered_rewrite_rules() == []

    @register_rewrite_rule()
    class Decorated(SumOfTwo):
        pass

    assert isinstance(registered_rewrite_rules()[0], Decorated)


class Cube(ResolveRule):
    def resolve(self, op):
        x, exponent = op.inputs
        return None if exponent.is_symbolic() or exponent.item() != 3.0 else [x * x * x]


def test_an_operator_is_resolved_where_its_rule_says_so() -> None:
    x, y = hidet.symbol([2]), hidet.symbol([])
    register_resolve_rule(PowOp)(Cube)
    cube, other = ops.pow(x, hidet.asarray(3.0)), ops.pow(x, hidet.asarray(2.5))
    assert names(resolve_variant_pass()(hidet.trace_from(cube))) == ["mul", "mul"]
    assert names(resolve_variant_pass()(hidet.trace_from(other))) == ["pow"]
    assert names(resolve_variant_pass()(hidet.trace_from(ops.pow(x, y), inputs=[x, y]))) == ["pow"]
    assert "Pow" not in str(hidet.graph.optimize(hidet.trace_from(cube)))


def test_rules_hold_for_models_of_other_frameworks() -> None:
    torch = pytest.importorskip("torch")

    class Joined(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (torch.nn.Parameter(torch.randn(4, size)) for size in (3, 2))

        def forward(self, x):
            return torch.cat([x @ self.a, x @ self.b], 1)

    class Join(SubgraphRewriteRule):
        def __init__(self):
            super().__init__("join")
            self.x, self.a, self.b = TensorPattern.tensors(3)
            products = [op_pattern(MatmulOp, [self.x, other]) for other in (self.a, self.b)]
            self.y = op_pattern(ConcatOp, products)
            self.seen = 0

        def source(self):
            return [self.y]

        def target(self, matched):
            self.seen += 1
            return [ops.matmul(matched[self.x], ops.concat([matched[self.a], matched[self.b]], axis=1))]

    rule = Join()
    register_rewrite_rule(rule)
    model, x = Joined(), torch.randn(5, 4)
    with torch.no_grad():
        torch.testing.assert_close(hidet.compile(model, (x,))(x), model(x))
    assert rule.seen == 1
