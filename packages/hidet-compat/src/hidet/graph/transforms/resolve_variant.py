"""Rules that say what an operator is made of, in other operators.

@register_resolve_rule(PowOp)
class CubeRule(ResolveRule):
    def resolve(self, op):
        x, exponent = op.inputs
        return None if exponent.is_symbolic() or exponent.item() != 3 else [x * x * x]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hidet import option
from hidet.api.flow import Operation
from hidet.api.tensors.tensor import Tensor
from hidet.compat.operator import Operator
from hidet.compat.rules import RESOLVE_RULES

Rule = TypeVar("Rule", bound="type[ResolveRule]")


class ResolveRule:
    """To be derived from; see the top of this file."""

    def resolve(self, op: Operator) -> list[Tensor] | None:
        """The tensors that stand for the results of an operator; None leaves it as it is."""
        raise NotImplementedError

    def get_config(self, key: str, default: Any = None) -> Any:
        """What the setting `hidet.option.<key>` is; the default where there is none."""
        return option.get_option(key) if option.is_option_exist(key) else default


def register_resolve_rule(op_cls: type[Operator]) -> Callable[[Rule], Rule]:
    """The decorator of a rule for operators of a class: it holds for all graphs that are optimised or compiled in this
    process. A rule registered later for the same class takes its place."""

    def register(rule: Rule) -> Rule:
        RESOLVE_RULES[op_cls] = rule()
        return rule

    return register


def registered_resolve_rules() -> dict[type[Operator], ResolveRule]:
    """The rule of each class."""
    return dict(RESOLVE_RULES)  # type: ignore[arg-type]  # keys are classes


def clear_registered_resolve_rules() -> None:
    """Apply none of them any longer."""
    RESOLVE_RULES.clear()


def rules_for(operation: Operation) -> Iterator[ResolveRule]:
    """The rules for an operator: of classes that it is of."""
    return (rule for op_cls, rule in RESOLVE_RULES.items() if isinstance(operation, op_cls))  # type: ignore[arg-type]  # keys are classes
