"""What fusion may join to an anchor: what its rule says, which is asked before nodes are grouped and after.

Before: the first rule that takes the bare anchor as a task. After: where that rule does not take the fused task, and
one of lower priority or the fallback nest would, the anchor gets less, until a rule that is meant for it takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hidet.graph.graph import Node, Value
from hidet.graph.types import TensorType
from hidet.plugins.isolation import Failure, attempt
from hidet.schedule.claims import FALLBACK, Claim, claims, rule_of, tried
from hidet.schedule.rule import ChoosingRule
from hidet.schedule.task import Task, TaskKey

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.plugins.specs import ScheduleSpec


class Abilities(NamedTuple):
    """What a rule computes along with its anchor: `prologue` and `epilogue` as `ScheduleSpec` has them.

    operands: numbers of the anchor's inputs whose producers it computes; None for all.
    """

    prologue: str
    epilogue: str
    operands: frozenset[int] | None = None

    def takes(self, number: int) -> bool:
        """Whether producers of the anchor's input of this number may be joined to it."""
        return self.prologue != "none" and (self.operands is None or number in self.operands)


NOTHING = Abilities("none", "none")

Types = Mapping[Value, TensorType]
BareTask = Callable[[Node, Types], Task]
"""Makes the task of an anchor alone."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """The abilities that an anchor is grouped by, of a rule; `smaller` ones, the largest first, if they do not do.

    otherwise: what is offered instead where the fused task is not the rule's, of a rule for fused tasks alone.
    """

    spec: ScheduleSpec
    abilities: Abilities
    smaller: tuple[Abilities, ...]
    otherwise: _Offer | None = None


class AbilityTable:
    """The abilities of a graph's anchors, and who takes their tasks. Equal anchors, and equal tasks, are asked about
    once.

    bare_task: makes the task to ask about. producer: the node that computes a value, of the graph's values.
    """

    def __init__(self, ctx: CompileContext, bare_task: BareTask, producer: Mapping[Value, Node]) -> None:
        self._ctx = ctx
        self._bare_task = bare_task
        self._producer = producer
        self._offers: dict[Node, _Offer] = {}
        self._same: dict[tuple[int, ...], tuple[_Offer, tuple[object, ...]]] = {}
        self._equal: dict[tuple[object, ...], _Offer] = {}
        self._claims: dict[TaskKey, Claim | None] = {}

    @property
    def claims(self) -> dict[TaskKey, Claim]:
        """The rules that take the tasks that were asked about."""
        return {key: claim for key, claim in self._claims.items() if claim is not None}

    @property
    def is_horizontal(self) -> bool:
        """Whether the first rule for tasks without an anchor is for several of them at once."""
        return self._ctx.registry.schedules_for("elementwise", self._ctx.target.name)[0].horizontal

    def of(self, anchor: Node, types: Types) -> Abilities:
        """What may be joined to an anchor. types: of all values in memory, with strides."""
        offer = self._offers.get(anchor)
        if offer is None:
            # Equal nodes have the same definition, and mostly the same types. An entry keeps alive what its key counts.
            equal = (anchor.definition or anchor, *map(types.get, (*filter(None, anchor.inputs), *anchor.outputs)))
            same = tuple(map(id, equal))
            if same not in self._same:
                if equal not in self._equal:
                    self._equal[equal] = self._first_offer(anchor, types)
                self._same[same] = (self._equal[equal], equal)
            bare = self._same[same][0]
            offer = self._offers[anchor] = self._offer_for_operands(anchor, bare) or bare
        return offer.abilities

    def _offer_for_operands(self, anchor: Node, bare: _Offer) -> _Offer | None:
        """The offer of the first rule for fused tasks alone that computes operands of `anchor`; None where none does.

        bare: the offer where the fused task turns out not to be that rule's.
        """
        for spec in self._specs(anchor):
            if spec.prologue != "chosen":
                continue
            operands = self._chosen(spec, anchor)
            if operands:
                return _Offer(spec, Abilities("gather", spec.epilogue, operands), (), bare)
        return None

    def _chosen(self, spec: ScheduleSpec, anchor: Node) -> frozenset[int]:
        """The operands of `anchor` whose producers a rule says that it computes; none where asking it fails."""

        def ask() -> frozenset[int]:
            rule: ChoosingRule[Any, Any] = rule_of(spec)  # type: ignore[assignment]  # a rule with one more method
            return rule.computed_operands(anchor, self._producer, self._ctx)

        chosen = attempt(ask)
        if isinstance(chosen, Failure):
            # Only now is a task worth making: what goes wrong is told of with it.
            task = self._bare_task(anchor, {value: value.tensor for value in (*anchor.values, *anchor.outputs)})
            return tried(spec, task, self._ctx, [], "computed_operands", ask) or frozenset()
        return chosen

    def _first_offer(self, anchor: Node, types: Types) -> _Offer:
        specs = self._specs(anchor)
        if len(specs) == 1:
            return _offer(specs[0])
        claim = self._claim(self._bare_task(anchor, types))
        return _offer(specs[-1] if claim is None else claim.spec)

    def withdraw(self, steps: Iterable[object]) -> bool:
        """Offer less to the anchors of tasks that other rules take than those which made the offer, for want of better.

        Whether there were any, so that the graph has to be cut again.
        """
        found = False
        fitting: set[tuple[int, int]] = set()
        for task in steps:
            if not isinstance(task, Task) or len(task.nodes) == 1 or task.anchor is None:
                continue
            offer = self._offers.get(task.anchor)
            if offer is None or (id(task.key), id(offer)) in fitting:
                continue
            claim = self._claim(task)
            if claim is None or not self._is_behind(claim.spec, offer.spec, task.anchor):
                fitting.add((id(task.key), id(offer)))
                continue
            self._offers[task.anchor] = offer.otherwise or _smaller(offer, claim.spec)
            found = True
        return found

    def _is_behind(self, spec: ScheduleSpec, other: ScheduleSpec, anchor: Node) -> bool:
        """Whether `other` is asked before `spec`."""
        specs = self._specs(anchor)
        return spec is not other and specs.index(spec) > specs.index(other)

    def _specs(self, anchor: Node) -> tuple[ScheduleSpec, ...]:
        return self._ctx.registry.schedules_for(anchor.op.name, self._ctx.target.name)

    def _claim(self, task: Task) -> Claim | None:
        if task.key not in self._claims:
            self._claims[task.key] = next(claims(task, self._ctx, []), None)
        return self._claims[task.key]


def _offer(spec: ScheduleSpec) -> _Offer:
    whole = Abilities(spec.prologue, spec.epilogue)
    parts = (Abilities("none", spec.epilogue), Abilities(spec.prologue, "none"), NOTHING)
    return _Offer(spec, whole, tuple(dict.fromkeys(part for part in parts if part != whole)))


def _smaller(offer: _Offer, taker: ScheduleSpec) -> _Offer:
    """The next offer to an anchor whose task `taker` would take instead of the rule that made the offer."""
    if taker.name != FALLBACK:
        return _offer(taker)
    # With nothing joined to it, the anchor is what its rule has said that it takes.
    return _Offer(offer.spec, offer.smaller[0] if offer.smaller else NOTHING, offer.smaller[1:])
