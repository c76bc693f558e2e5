"""Patterns of operators, and rules that put other operators in their places.

    class TwoProducts(SubgraphRewriteRule):
        def __init__(self):
            super().__init__("two products of one tensor -> one product")
            self.x, self.b, self.c = TensorPattern(), TensorPattern(is_const=True), TensorPattern(is_const=True)
            products = [op_pattern(MatmulOp, [self.x, other]) for other in (self.b, self.c)]
            self.y = op_pattern(ConcatOp, products)

        def source(self):
            return [self.y]

        def target(self, matched):
            return [matmul(matched[self.x], concat([matched[self.b], matched[self.c]], axis=1))]

A registered rule holds for all graphs that are optimised or compiled in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hidet.api.flow import Operation
from hidet.api.tensors.tensor import Tensor
from hidet.compat.operator import Operator
from hidet.compat.operator_classes import operator_class
from hidet.compat.rules import REWRITE_RULES
from hidet.errors import PluginError

Usage = Mapping[Tensor, Sequence[tuple[Operation | None, int]]]
"""Who reads a tensor, and as which input; None for the caller of the graph."""


class TensorPattern:
    """Any tensor, or one that has elements (is_const), or one that has none (is_symbolic). Sums, differences, products
    and quotients of patterns are patterns of the operators."""

    def __init__(self, is_const: bool = False, is_symbolic: bool = False) -> None:
        self.is_const = is_const
        self.is_symbolic = is_symbolic
        self.op: OperatorPattern | None = None

    @staticmethod
    def tensor(is_const: bool = False, is_symbolic: bool = False) -> TensorPattern:
        """A pattern, as the class makes it."""
        return TensorPattern(is_const, is_symbolic)

    @staticmethod
    def tensors(num: int, is_const: bool = False, is_symbolic: bool = False) -> list[TensorPattern]:
        """Several of them."""
        return [TensorPattern(is_const, is_symbolic) for _ in range(num)]

    def __add__(self, other: TensorPattern) -> TensorPattern:
        return _of_two("AddOp", self, other)

    def __sub__(self, other: TensorPattern) -> TensorPattern:
        return _of_two("SubtractOp", self, other)

    def __mul__(self, other: TensorPattern) -> TensorPattern:
        return _of_two("MultiplyOp", self, other)

    def __truediv__(self, other: TensorPattern) -> TensorPattern:
        return _of_two("DivideOp", self, other)

    def fits(self, tensor: Tensor) -> bool:
        """Whether a tensor has elements, or not, as the pattern says."""
        is_symbolic = tensor.is_symbolic()
        return not (self.is_const and is_symbolic) and not (self.is_symbolic and not is_symbolic)


class OperatorPattern:
    """Operators of a class whose inputs are tensors of patterns. outputs: patterns of its results."""

    def __init__(self, op_cls: type[Operator], inputs: Sequence[TensorPattern], num_outputs: int = 1) -> None:
        self.op_cls = op_cls
        self.inputs = list(inputs)
        self.outputs = TensorPattern.tensors(num_outputs)
        for output in self.outputs:
            output.op = self


MatchDict = dict[TensorPattern | OperatorPattern, Any]
"""The tensor of each pattern of a tensor, the operator of each pattern of an operator."""


def op_pattern(op_cls: type[Operator], inputs: Sequence[TensorPattern], num_outputs: int = 1) -> Any:
    """The pattern of the result of an operator, or a list of those of its results."""
    outputs = OperatorPattern(op_cls, inputs, num_outputs).outputs
    return outputs[0] if num_outputs == 1 else outputs


def _of_two(name: str, a: TensorPattern, b: TensorPattern) -> TensorPattern:
    return OperatorPattern(operator_class("arithmetic", name), [a, b]).outputs[0]


class SubgraphRewriteRule:
    """What stands for what. To be derived from; see the top of this file."""

    def __init__(self, name: str = "") -> None:
        self.name = name or type(self).__name__

    def source(self) -> list[TensorPattern]:
        """Patterns of the results that are computed otherwise; nobody else may read what lies before them."""
        raise NotImplementedError

    def target(self, matched: MatchDict) -> list[Tensor] | None:
        """The tensors that stand for them, of the same shapes and types; None where the rule does not fit after all."""
        raise NotImplementedError


def register_rewrite_rule(rule: SubgraphRewriteRule | None = None, name: str | None = None) -> Any:
    """Apply a rule from now on: an object, or as the decorator of a class. name: None for that of the rule.
    PluginError for the name of another rule."""
    if rule is None:
        return lambda cls: (register_rewrite_rule(cls(), name), cls)[1]
    made = rule() if isinstance(rule, type) else rule
    known = REWRITE_RULES.setdefault(name or made.name, made)
    if known is not made:
        raise PluginError(f"rule {made.name!r} is registered already", hint="deregister_rewrite_rule(name) before")
    return rule


def deregister_rewrite_rule(name: str) -> None:
    """Apply a rule no longer. KeyError for an unknown one."""
    del REWRITE_RULES[name]


def registered_rewrite_rules() -> list[SubgraphRewriteRule]:
    """The rules that were registered; those of hidet's own are passes of the compiler."""
    return list(REWRITE_RULES.values())


def clear_registered_rewrite_rules() -> None:
    """Apply none of them any longer."""
    REWRITE_RULES.clear()


def graph_pattern_match(pattern: TensorPattern, target: Tensor, usage: Usage | None = None) -> tuple[MatchDict, str]:
    """What the parts of a pattern are where it stands for a tensor, and ""; or nothing, and why it does not.

    usage: who reads tensors; not needed.
    """
    matched: MatchDict = {}
    return (matched, "") if _match(pattern, target, matched) else ({}, "the tensor is computed otherwise")


def match_rule(rule: SubgraphRewriteRule, tensor: Tensor, usage: Usage) -> tuple[list[Tensor], MatchDict] | None:
    """The results that a rule changes, the first of which is `tensor`, and what its patterns are; None where it does
    not fit: because operators or inputs are others, or someone else reads what lies between."""
    first, *others = rule.source()
    matched: MatchDict = {}
    if not _match(first, tensor, matched):
        return None
    for other in others:
        found = next((m for c in _beside(other, matched, usage) if _match(other, c, m := dict(matched))), None)
        if found is None:
            return None
        matched = found
    results = [matched[pattern] for pattern in (first, *others)]
    operations = {value for value in matched.values() if isinstance(value, Operation)}
    inner = [output for operation in operations for output in operation.outputs if output not in results]
    is_apart = all(reader in operations for tensor in inner for reader, _ in usage.get(tensor, ()))
    return (results, matched) if is_apart and len({*results}) == len(results) else None


def _match(pattern: TensorPattern, tensor: Tensor, matched: MatchDict) -> bool:
    if pattern in matched:
        return matched[pattern] is tensor
    if not pattern.fits(tensor):
        return False
    matched[pattern] = tensor
    if pattern.op is None:
        return True
    operation = tensor.op
    if operation is None or operation.outputs[pattern.op.outputs.index(pattern) % len(operation.outputs)] is not tensor:
        return False
    return _match_operation(pattern.op, operation, matched)


def _match_operation(pattern: OperatorPattern, operation: Operation, matched: MatchDict) -> bool:
    if pattern in matched:
        return matched[pattern] is operation
    inputs = [tensor for tensor in operation.inputs if tensor is not None]
    is_alike = isinstance(operation, pattern.op_cls) and len(inputs) == len(pattern.inputs)
    if not is_alike or len(operation.outputs) != len(pattern.outputs):
        return False
    matched[pattern] = operation
    return all(_match(inner, tensor, matched) for inner, tensor in zip(pattern.inputs, inputs, strict=True))


def _beside(pattern: TensorPattern, matched: MatchDict, usage: Usage) -> Iterator[Tensor]:
    """Tensors that another result of a rule may be: what is computed of tensors that are known."""
    known: dict[Tensor, None] = {}
    stack = [value for value in matched.values() if isinstance(value, Tensor)]
    depth = _depth(pattern)
    for _ in range(depth):
        stack = [
            output
            for tensor in stack
            for operation, _ in usage.get(tensor, ())
            if operation is not None
            for output in operation.outputs
        ]
        known.update(dict.fromkeys(stack))
    return iter(known)


def _depth(pattern: TensorPattern) -> int:
    return 0 if pattern.op is None else 1 + max(map(_depth, pattern.op.inputs), default=0)
