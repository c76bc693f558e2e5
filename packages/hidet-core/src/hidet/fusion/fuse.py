"""Fusion: from a graph to tasks. Groups come from `hidet.fusion.group`; here producers are inlined into consumers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from hidet.compute.definition import Compute, Operand, fresh_axes
from hidet.dims import divisibility
from hidet.fusion.abilities import AbilityTable
from hidet.fusion.group import Group, alias_root, group_nodes
from hidet.fusion.horizontal import fuse_horizontally
from hidet.fusion.in_place import find_reuses
from hidet.fusion.overwrite import CopyOverwrites, early_overwrites
from hidet.fusion.task_verify import verify_tasks
from hidet.graph.graph import Graph, Node, Value, foreign_nodes, producers, readers, stored_values
from hidet.graph.types import TensorType
from hidet.ir.expr import Access, Expr
from hidet.ir.visit import replace_accesses, substitute
from hidet.passes.manager import run_late_pass
from hidet.schedule.claims import claims
from hidet.schedule.task import Alias, ForeignStep, Task, TaskGraph, TaskKey, TaskTensor, group_key

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.plugins.specs import ScheduleSpec


def fuse(graph: Graph, ctx: CompileContext, folder: str = "") -> TaskGraph:
    """Cut `graph` into tasks for the context's target. folder: of dumps of the graph with copies that this needs."""
    abilities = AbilityTable(ctx, _bare_task, producers(graph))
    task_graph = _cut(graph, frozenset(), abilities, ctx)
    early = early_overwrites(task_graph)
    if early:
        copied = run_late_pass(CopyOverwrites(early), graph, ctx, folder)
        task_graph = _cut(copied, frozenset(copied.nodes[len(graph.nodes) :]), abilities, ctx)
    if ctx.options.verify:
        verify_tasks(task_graph)
    return task_graph


def foreign_rule_for(anchor: Node, ctx: CompileContext) -> ScheduleSpec | None:
    """The rule that takes an anchor as it is, where that is no rule of hidet's own wheels; None where it is.

    For passes that put operators of their own in the place of anchors: such a rule would never be asked.
    """
    if not ctx.registry.schedules_for(anchor.op.name, ctx.target.name)[0].is_foreign:
        return None
    types = {value: value.tensor for value in (*anchor.values, *anchor.outputs)}
    claim = next(claims(_bare_task(anchor, types), ctx, []), None)
    return claim.spec if claim is not None and claim.spec.is_foreign else None


def _cut(graph: Graph, alone: frozenset[Node], abilities: AbilityTable, ctx: CompileContext) -> TaskGraph:
    """Tasks of a graph; nodes in `alone` are tasks of their own.

    It is cut once, and again while rules do not take what was joined to their anchors: each time they are offered less.
    """
    task_graph = _cut_once(graph, alone, abilities, ctx)
    while abilities.withdraw(task_graph.steps):
        task_graph = _cut_once(graph, alone, abilities, ctx)
    return replace(task_graph, claims=abilities.claims)


def _cut_once(graph: Graph, alone: frozenset[Node], abilities: AbilityTable, ctx: CompileContext) -> TaskGraph:
    grouping = group_nodes(graph, abilities.of, alone)
    groups = fuse_horizontally(grouping.groups, graph) if abilities.is_horizontal else grouping.groups
    reuses = find_reuses(graph, grouping)
    aliases = {**grouping.aliases, **{value: alias for value, (alias, _) in reuses.parts.items()}}
    types = {**grouping.types, **{value: type_ for value, (_, type_) in reuses.parts.items()}}
    table = readers(graph)
    outputs = set(graph.outputs)
    foreign = foreign_nodes(graph)
    copied = _aligned_inputs(graph) if getattr(ctx.target, "aligns_tensors", False) else None
    facts = _MemoryFacts(_aligned_values(graph, aliases, reuses.sources, copied), _weights(graph, aliases))
    steps: list[Task | ForeignStep] = []
    known = _Known({}, {})
    for group in groups:
        if group.anchor in foreign:
            steps.append(ForeignStep(group.anchor))
            continue
        if group.anchor in reuses.put_back:
            continue
        members = set(group.nodes)
        live = [
            value
            for node in group.nodes
            if node not in group.repeated
            for value in node.outputs
            if value in outputs or node.op.has_effect or not members.issuperset(table.get(value, ()))
        ]
        if live:
            steps.append(_make_task(group, live, types, facts, reuses.sources, known))
    return TaskGraph(graph, tuple(steps), types, aliases, cuts=grouping.cuts, aligned=copied or frozenset())


def _aligned_inputs(graph: Graph) -> frozenset[Value]:
    """Inputs that a call may copy to where they begin at a multiple of 16 bytes: nothing overwrites them, their
    elements lie next to each other, and there are several, so that reading some of them at once is worth it."""
    overwritten = {graph.inputs[number] for number, _ in graph.mutates}
    return frozenset(
        value
        for value in graph.inputs
        if isinstance(value.type, TensorType)
        and not value.type.dtype.is_host_only
        and any(extent != 1 for extent in value.type.shape)
        and value.type.is_dense
        and value not in overwritten
    )


def _aligned_values(
    graph: Graph, aliases: Mapping[Value, Alias], elsewhere: Iterable[Value], copied: Set[Value] | None
) -> frozenset[Value]:
    """Values that begin at a multiple of 16 bytes in memory which the program, or the preparation of its parameters,
    allocates.

    elsewhere: values in the memory of others. What steps outside of compiled code make may start anywhere. copied:
    inputs that begin so, too; None for a target that says nothing of tensors that it is given.
    """
    foreign = foreign_nodes(graph)
    made = [v for node in graph.nodes if node not in foreign for v in node.outputs]
    prepared = () if graph.prepare is None else graph.prepare.results
    if copied is None:
        given: Iterable[Value] = ()
        others: Iterable[Value] = graph.outputs
    else:
        given = (*copied, *graph.constants)
        others = [graph.outputs[number] for _, number in graph.mutates]
    own = frozenset((*made, *prepared, *given)).difference(elsewhere, others, aliases)

    def is_aligned(value: Value) -> bool:
        alias = aliases.get(value)
        if alias is None:
            return value in own
        return divisibility(alias.offset) * value.tensor.dtype.nbytes % 16 == 0 and is_aligned(alias.base)

    return own | {value for value in aliases if is_aligned(value)}


def _weights(graph: Graph, aliases: Mapping[Value, Alias]) -> frozenset[Value]:
    """What no step of a call writes, and views of that."""
    roots = stored_values(graph)
    return frozenset((*roots, *(value for value in aliases if alias_root(value, aliases) in roots)))


def _bare_task(anchor: Node, types: Mapping[Value, TensorType]) -> Task:
    """The task of an anchor with nothing joined to it."""
    return _make_task(Group(anchor, [anchor]), anchor.outputs, types, _MemoryFacts(), {}, _Known({}, {}))


@dataclass(frozen=True, slots=True)
class _MemoryFacts:
    """What is known of the memory of values: which begin at multiples of 16 bytes, and which are weights."""

    aligned: Set[Value] = frozenset()
    weights: Set[Value] = frozenset()

    def of(self, values: Iterable[Value]) -> tuple[tuple[bool, bool], ...]:
        """`is_aligned` and `is_weight` of each tensor."""
        aligned, weights = self.aligned, self.weights
        return tuple([(value in aligned, value in weights) for value in values])


@dataclass(frozen=True, slots=True)
class _Known:
    """The tasks so far, by key, and once more by what is likely to be the same objects in equal tasks, which is quicker
    to compare: definitions and types."""

    by_key: dict[TaskKey, Task]
    by_parts: dict[tuple[object, ...], Task]


def _make_task(
    group: Group,
    live: Sequence[Value],
    types: Mapping[Value, TensorType],
    facts: _MemoryFacts,
    reuses: Mapping[Value, Value],
    known: _Known,
) -> Task:
    """The task of a group whose results `live` are read by others. Equal tasks share what they are made of."""
    nodes = tuple(group.nodes)
    computed = [value for node in nodes for value in node.outputs]
    read = [v for node in nodes for v in node.values]
    if len(nodes) > 1:
        inside = set(computed)
        read = [value for value in read if value not in inside]
    inputs = tuple(dict.fromkeys(read))
    in_place = tuple([(n, inputs.index(reuses[v])) for n, v in enumerate(live) if v in reuses]) if reuses else ()
    numbers = dict(zip((None, *inputs, *computed), count()))
    memory = facts.of((*inputs, *live))
    parts = (
        *[(id(node.definition or node), *[numbers[v] for v in node.inputs]) for node in nodes],
        *[id(types[value]) for value in (*inputs, *live)],
        memory,
        *[numbers[value] for value in live],
        in_place,
    )
    first = known.by_parts.get(parts)
    if first is None:
        key = TaskKey((*group_key(nodes, inputs, live, types), in_place, memory))
        first = known.by_key.get(key)
        if first is None or [n.definition for n in nodes] != [n.definition for n in first.nodes]:
            task = _first_task(group.anchor, nodes, inputs, live, types, memory, in_place, key)
            known.by_key[key] = known.by_parts[parts] = task
            return task
        known.by_parts[parts] = first
    return _another(first, nodes, inputs, live, types)


def _another(
    first: Task,
    nodes: tuple[Node, ...],
    inputs: Sequence[Value],
    live: Sequence[Value],
    types: Mapping[Value, TensorType],
) -> Task:
    """A task like `first` on other values."""

    def of_others(values: Sequence[Value], tensors: Sequence[TaskTensor]) -> tuple[TaskTensor, ...]:
        pairs = zip(values, tensors, strict=True)
        return tuple([TaskTensor(value, types[value], t.operand, t.is_aligned, t.is_weight) for value, t in pairs])

    tensors = of_others(inputs, first.inputs)
    counterpart = dict(zip(first.inputs, tensors, strict=True))
    return Task(
        name=first.name,
        nodes=nodes,
        inputs=tensors,
        outputs=of_others(live, first.outputs),
        anchor=None if first.anchor is None else nodes[first.nodes.index(first.anchor)],
        prologues=first.prologues,
        anchor_inputs=tuple([None if t is None else counterpart[t] for t in first.anchor_inputs]),
        epilogues=first.epilogues,
        key=first.key,
        in_place=first.in_place,
    )


def _first_task(
    anchor: Node | None,
    nodes: tuple[Node, ...],
    external: Sequence[Value],
    live: Sequence[Value],
    types: Mapping[Value, TensorType],
    memory: tuple[tuple[bool, bool], ...],
    in_place: tuple[tuple[int, int], ...],
    key: TaskKey,
) -> Task:
    """memory: `is_aligned` and `is_weight` of what is read, and then of the results."""
    inputs = {
        v: TaskTensor(v, types[v], Operand(f"x{n}", types[v].dtype, types[v].shape), *memory[n])
        for n, v in enumerate(external)
    }
    computed: dict[Value, Compute] = {}
    direct: dict[Value, Operand] = {v: t.operand for v, t in inputs.items()}
    for node in nodes:
        if node is anchor:
            assert node.definition is not None
            direct.update(zip(node.outputs, node.definition.outputs, strict=True))
        else:
            computed[node.outputs[0]] = _inlined(node, direct, computed)
    prologues: list[Compute | None] = []
    anchor_inputs: list[TaskTensor | None] = []
    if anchor is not None:
        assert anchor.definition is not None
        remaining = iter(anchor.definition.inputs)
        for value in anchor.inputs:
            operand = None if value is None else next(remaining)
            if operand is None or value is None or value not in computed:
                prologues.append(None)
                anchor_inputs.append(None if value is None else inputs[value])
            else:
                prologues.append(Compute(operand, computed[value].axes, computed[value].value))
                anchor_inputs.append(None)
    outputs = []
    epilogues = []
    for number, value in enumerate(live):
        result = Operand(f"y{number}", types[value].dtype, types[value].shape)
        if value in computed:
            epilogues.append(Compute(result, computed[value].axes, computed[value].value))
        else:
            axes = fresh_axes(result.rank)
            epilogues.append(Compute(result, axes, direct[value][axes]))
        outputs.append(TaskTensor(value, types[value], result, *memory[len(external) + number]))
    name = (anchor or nodes[-1]).op.name.replace(":", "_").replace(".", "_")
    return Task(
        name=name if len(nodes) == 1 else f"{name}_fused{len(nodes)}",
        nodes=nodes,
        inputs=tuple(inputs.values()),
        outputs=tuple(outputs),
        anchor=anchor,
        prologues=tuple(prologues),
        anchor_inputs=tuple(anchor_inputs),
        epilogues=tuple(epilogues),
        key=key,
        in_place=in_place,
    )


def _inlined(node: Node, direct: Mapping[Value, Operand], computed: Mapping[Value, Compute]) -> Compute:
    """The node's stage with operands replaced: by task operands, or by the expressions that compute them."""
    definition = node.definition
    assert definition is not None
    stage = definition.stages[0]
    assert isinstance(stage, Compute)
    values = [v for v in node.inputs if v is not None]
    sources = dict(zip(definition.inputs, values, strict=True))
    # What is read twice at one place is one expression: others multiply along a chain of operators.
    made: dict[tuple[Value, tuple[Expr, ...]], Expr] = {}

    def replacement(access: Access) -> Expr | None:
        value = sources.get(access.operand)
        if value is None:
            return None
        inner = computed.get(value)
        if inner is None:
            return direct[value][access.indices]
        place = value, access.indices
        if place not in made:
            made[place] = substitute(inner.value, dict(zip(inner.axes, access.indices, strict=True)))
        return made[place]

    return Compute(stage.result, stage.axes, replace_accesses(stage.value, replacement))
