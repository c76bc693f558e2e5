"""Which operators may write into the memory of their input instead of copying it first.

An update of a KV cache then writes its new rows and nothing else, also where the rows belong to a part of it:

    %1 = select(%cache, axis=0, index=1)              %1 is a view of %cache
    %2 = index_put(%1, %row, none, %at)               writes its rows there
    %3 = select_scatter(%cache, %2, axis=0, index=1)  %2 is in its place already: nothing to do
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from operator import attrgetter

from hidet.compute.definition import Scatter
from hidet.dims import Dim, prove_equal
from hidet.fusion.group import Grouping, alias_root
from hidet.graph.control import makes_results
from hidet.graph.graph import Graph, Node, Value, readers
from hidet.graph.types import TensorType, same_shape
from hidet.ir.expr import Access
from hidet.schedule.task import Alias


@dataclass(frozen=True, slots=True)
class Reuses:
    """What is written in place.

    sources: for outputs of updating operators, the input whose memory they take over.
    parts: those outputs, and what they are put back into, that lie in the memory of a later value: the whole that they
        are a part of. Their types have the strides of that place.
    put_back: nodes that have nothing left to do, because a part of their input is in its place already.
    """

    sources: Mapping[Value, Value]
    parts: Mapping[Value, tuple[Alias, TensorType]]
    put_back: frozenset[Node]


@dataclass(frozen=True, slots=True)
class _Update:
    """`whole` may be made in the memory of `base` by writing `output` over `source`.

    Without a part, whole is output and base is source. Else source is a view of base, and `parts` are pairs of a value
    and the view whose place it takes: output and source, and what output is put back into if that is a part itself.
    """

    output: Value
    source: Value
    whole: Value
    base: Value
    parts: tuple[tuple[Value, Value], ...] = ()
    put_back: tuple[Node, ...] = ()


_REUSES = attrgetter("op.reuses")


def find_reuses(graph: Graph, grouping: Grouping) -> Reuses:
    """Operators that declare `reuses` and can do so.

    The memory must be that of a temporary; or of a graph input that this very output replaces, directly or through a
    chain of such operators. Nothing may read it, through any view, after the operator's group, and both must have the
    same strides.
    """
    if not any(map(_REUSES, graph.nodes)):
        return Reuses({}, {}, frozenset())
    # A whole can be made by an update of its part, or by putting that back: the first leaves nothing to do.
    updates = {update.whole: update for update in reversed(_updates(graph, grouping))}
    replaced = {graph.outputs[output]: graph.inputs[source] for source, output in graph.mutates}
    lasting = {*graph.inputs, *graph.constants, *(graph.prepare.results if graph.prepare is not None else ())}
    # What a step has made may be a result of the call, or shared with a sequence.
    lasting.update(value for node in graph.nodes if makes_results(node) for value in node.outputs)
    accepted = {u.whole: u for u in updates.values() if u.base not in lasting and u.whole not in replaced}
    for output, target in replaced.items():
        chain: list[_Update] = []
        last = output
        while last in updates and last is not target:
            chain.append(updates[last])
            last = chain[-1].base
        if last is target:
            accepted.update((update.whole, update) for update in chain)
    return Reuses(
        sources={u.output: u.source for u in accepted.values()},
        parts={
            value: (Alias(u.whole, _offset(view, grouping)), grouping.types[view])
            for u in accepted.values()
            for value, view in u.parts
        },
        put_back=frozenset(node for u in accepted.values() for node in u.put_back),
    )


def _updates(graph: Graph, grouping: Grouping) -> list[_Update]:
    """Updates after which nothing reads what was there before."""
    aliases, types = grouping.aliases, grouping.types
    outputs = set(graph.outputs)
    sole_reader = {v: nodes[0] for v, nodes in readers(graph).items() if len(nodes) == 1 and v not in outputs}
    alone = {group.nodes[0] for group in grouping.groups if len(group.nodes) == 1}
    reads: dict[Value, list[tuple[int, Node]]] = {}
    for position, group in enumerate(grouping.groups):
        for node in group.nodes:
            for value in node.values:
                reads.setdefault(alias_root(value, aliases), []).append((position, node))
    lasting = {alias_root(value, aliases) for value in outputs}
    found: list[_Update] = []
    for position, group in enumerate(grouping.groups):
        if group.anchor is None or group.nodes[-1] is not group.anchor:
            continue
        inside = {value for member in group.nodes for value in member.outputs}
        for output, source in _declared(group.anchor):
            update: _Update | None = _Update(output, source, output, source)
            if source in aliases:
                update = _update_of_part(output, source, sole_reader, alone, grouping)
            elif types[source].element_strides != types[output].element_strides:
                update = None
            if update is None or update.base in inside or update.base in lasting:
                continue
            others = [(p, node) for p, node in reads[update.base] if node not in update.put_back]
            if [p for p, _ in others].count(position) == 1 and all(p <= position for p, _ in others):
                found.append(update)
    return found


def _update_of_part(
    output: Value, source: Value, sole_reader: Mapping[Value, Node], alone: Set[Node], grouping: Grouping
) -> _Update | None:
    """The update of a view's whole memory, where the result is put back, by nobody else read, to where the view is."""
    aliases = grouping.aliases
    parts: list[tuple[Value, Value]] = []
    put_back: list[Node] = []
    value, view = output, source
    while view in aliases:
        node = sole_reader.get(value)
        if node is None or node not in alone or not _puts_back(node, value, view, grouping):
            return None
        parts.append((value, view))
        put_back.append(node)
        view = node.values[0]
        value = node.outputs[0]
    if grouping.types[view].element_strides != grouping.types[value].element_strides:
        return None
    return _Update(output, source, value, view, tuple(parts), tuple(put_back))


def _puts_back(node: Node, value: Value, view: Value, grouping: Grouping) -> bool:
    """Whether a node puts `value` into the part of its first input at which `view` lies."""
    base = node.inputs[0]
    if node.op.part is None or base is None or node.values != (base, value):
        return False
    if alias_root(base, grouping.aliases) is not alias_root(view, grouping.aliases):
        return False
    types = grouping.types
    part = node.op.part(types[base], node.attrs, types[view])
    return (
        part is not None
        and same_shape(value.tensor.shape, types[view].shape)
        and same_shape(part.strides, types[view].element_strides)
        and prove_equal(_offset(base, grouping) + part.offset, _offset(view, grouping)) is True
    )


def _offset(value: Value, grouping: Grouping) -> Dim:
    """Elements from the start of the memory that a value lies in."""
    alias = grouping.aliases.get(value)
    return 0 if alias is None else alias.offset


def _declared(node: Node) -> list[tuple[Value, Value]]:
    """Pairs (output, input) that the operator may share memory for, where all it does is to write some places anew."""
    definition = node.definition
    if definition is None or len(definition.stages) != 1:
        return []
    (stage,) = definition.stages
    if not isinstance(stage, Scatter) or not isinstance(stage.base, Access) or stage.base.indices != stage.base_axes:
        return []
    operands = dict(zip(node.values, definition.inputs, strict=True))
    pairs = [(node.outputs[output], node.inputs[source]) for output, source in node.op.reuses]
    return [(o, s) for o, s in pairs if s is not None and operands[s] is stage.base.operand]
