"""Choosing fusion groups: which nodes are computed together.

Post-scheduling fusion: an anchor keeps its own schedule; injective producers are inlined into its reads and injective
consumers into its stores, as far as the target's rule for that anchor says it can. What remains injective is grouped
among itself. Views cost nothing: they become aliases with strides, or index arithmetic where only a copy could do.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from hidet.compute.definition import Compute, Definition
from hidet.compute.elementwise import is_elementwise, reads_own_index
from hidet.dims import product
from hidet.fusion.abilities import Abilities
from hidet.graph.graph import Graph, Node, Value, foreign_nodes, producers, readers
from hidet.graph.storage import find_views
from hidet.graph.types import TensorType, same_shape
from hidet.ir.expr import Access, Expr, Unary
from hidet.ir.scalar_ops import UNARY_OPS
from hidet.ir.visit import accesses, walk
from hidet.schedule.task import Alias

# Bounds that keep one kernel readable and its register pressure sane.
MAX_NODES = 48
MAX_INPUTS = 32

MAX_COPIES = 8
"""How often a kernel may compute a value that it reads at different places: each place is a copy of its expression, and
copies multiply along a chain of such reads."""

Absorbs = Callable[[Node, Mapping[Value, TensorType]], Abilities]
"""What may be joined to an anchor; it is given the types, with strides, of the values in memory."""


@dataclass(slots=True)
class Group:
    """A group under construction: its nodes in graph order and its anchor, if it has one.

    repeated: nodes among them that other groups compute as well; nobody reads them from this group's memory.
    copies: of values that are inlined, in how many places; one for others.
    """

    anchor: Node | None
    nodes: list[Node] = field(default_factory=list)
    repeated: set[Node] = field(default_factory=set)
    copies: dict[Value, int] = field(default_factory=dict)


@dataclass(slots=True)
class Grouping:
    """The result: groups in the order of their last node, and views that stay outside groups. cuts: see `TaskGraph`."""

    groups: list[Group]
    aliases: dict[Value, Alias]
    types: dict[Value, TensorType]
    cuts: dict[tuple[Value, Node], str]


def group_nodes(graph: Graph, absorbs: Absorbs, alone: frozenset[Node] = frozenset()) -> Grouping:
    """Partition the nodes of `graph`. `absorbs` says what may be joined to anchors.

    alone: injective nodes that are groups of their own.
    """
    return _Grouper(graph, absorbs, alone).run()


class _Grouper:
    def __init__(self, graph: Graph, absorbs: Absorbs, alone: frozenset[Node]) -> None:
        self.graph = graph
        self.absorbs = absorbs
        self.producer = producers(graph)
        self.readers = readers(graph)
        self.outputs = set(graph.outputs)
        self.order = {node: position for position, node in enumerate(graph.nodes)}
        self.foreign = foreign_nodes(graph)
        self.injective = _injective_nodes(graph)
        views = find_views(graph)
        prepared = () if graph.prepare is None else graph.prepare.results
        values = (*graph.inputs, *graph.constants, *prepared, *self.producer)
        self.types: dict[Value, TensorType] = {v: v.type for v in values if isinstance(v.type, TensorType)}
        self.types.update((value, place.type) for value, place in views.items())
        self.aliases = {value: Alias(place.root, place.offset) for value, place in views.items()}
        self.group_of = {node: Group(None, [node]) for node in alone}
        self.free = free_nodes(graph, self.injective)
        self.cuts: dict[tuple[Value, Node], str] = {}

    def run(self) -> Grouping:
        for node in self.graph.nodes:
            if node not in self.injective and node not in self.foreign:
                self._anchor(node)
        for node in reversed(self.graph.nodes):
            if node in self.injective and not (
                node in self.group_of or node in self.free or node.outputs[0] in self.aliases
            ):
                self._injective(node)
        self._store_free_nodes()
        groups = {id(g): g for g in self.group_of.values()}
        for group in groups.values():
            if len(group.nodes) > 1:
                group.nodes.sort(key=self.order.__getitem__)
        groups.update((id(node), Group(node, [node])) for node in self.foreign)
        ordered = sorted(groups.values(), key=lambda g: self.order[g.nodes[-1]])
        return Grouping(ordered, self.aliases, self.types, self.cuts)

    def _sole_reader(self, value: Value) -> Node | None:
        """The only node that reads `value`, unless the value must exist for someone else."""
        nodes = self.readers.get(value, [])
        return nodes[0] if len(nodes) == 1 and value not in self.outputs else None

    def _anchor(self, node: Node) -> None:
        group = Group(node, [node])
        self.group_of[node] = group
        values = node.values
        if not self._has_neighbours(values, node.outputs):
            return
        abilities = self.absorbs(node, self.types)
        for number, value in enumerate(node.inputs):
            if value is None:
                continue
            if abilities.takes(number):
                self._absorb_producer(value, node, group, only_elementwise=abilities.prologue == "load")
            elif value in self.producer:
                self.cuts[value, node] = f"the schedule of {node.op.name} computes nothing before it"
        if abilities.epilogue != "none" and len(node.outputs) == 1:
            self._absorb_consumers(node, group)
        else:
            for value in node.outputs:
                for reader in self.readers.get(value, ()):
                    self.cuts[value, reader] = f"the schedule of {node.op.name} computes nothing behind it"

    def _has_neighbours(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> bool:
        """Whether there is anything that could be joined to an anchor with these."""
        near: list[Node | None] = [*map(self.producer.get, inputs)]
        for value in outputs:
            near += self.readers.get(value, ())
        return not self.injective.isdisjoint(near)

    def _absorb_consumers(self, anchor: Node, group: Group) -> None:
        """Follow the chain of element-wise readers of the anchor's result."""
        tail = anchor
        while len(group.nodes) < MAX_NODES:
            value = tail.outputs[0]
            reader = self._sole_reader(value)
            if reader is None:
                for each in self.readers.get(value, ()):
                    self.cuts[value, each] = "several operators read it, or it is a result"
                return
            if reader in self.group_of or reader not in self.injective:
                return
            if reader.op.kind == "view" or not reads_identically(reader, value):
                self.cuts[value, reader] = f"{reader.op.name} reads it at other places than it writes"
                return
            group.nodes.append(reader)
            self.group_of[reader] = group
            for other in reader.values:
                if other is not value:
                    self._absorb_producer(other, reader, group)
            tail = reader

    def _absorb_producer(self, value: Value, reader: Node, group: Group, *, only_elementwise: bool = False) -> None:
        """Inline the injective producer of `value` where that repeats no work, and its producers in turn.

        only_elementwise: no producers that read their inputs elsewhere than the reader reads the result.
        """
        stack = [(value, reader)]
        while stack and len(group.nodes) < MAX_NODES:
            current, consumer = stack.pop()
            node = self.producer.get(current)
            if node is None or node in self.group_of or node not in self.injective:
                continue
            if only_elementwise and not _reads_own_index(node):
                self.cuts[current, consumer] = f"the schedule takes no {node.op.name}, which reads at other places"
                continue
            if node in self.free:
                if node not in group.repeated:
                    group.nodes.append(node)
                    group.repeated.add(node)
                    stack.extend((v, node) for v in node.values)
                continue
            if self._sole_reader(current) is not consumer and not self._is_shared_conversion(node, group):
                self.cuts[current, consumer] = "several operators read it, or it is a result"
                continue
            if current in self.aliases and not self._continues(node, group):
                self.cuts[current, consumer] = "it is a view of what lies in memory"
                continue
            copies = group.copies.get(consumer.outputs[0], 1)
            if consumer is not group.anchor:
                is_read_once = consumer.inputs.count(current) == 1
                copies *= _most_places(consumer.definition) if is_read_once else _places_read(consumer, current)
            if copies > MAX_COPIES or _repeats_work(node, consumer, current):
                self.cuts[current, consumer] = f"{consumer.op.name} reads elements several times, each computed anew"
                continue
            if not self._has_room(node, group):
                self.cuts[current, consumer] = f"a kernel would read more than {MAX_INPUTS} tensors"
                continue
            group.copies[current] = copies
            group.nodes.append(node)
            self.group_of[node] = group
            stack.extend((v, node) for v in node.values)

    def _is_shared_conversion(self, node: Node, group: Group) -> bool:
        """Whether a node converts what lies in memory anyway, for readers that are all in the group: each may do it."""
        result = node.outputs[0]
        if result in self.outputs or not _is_conversion(node):
            return False
        (source,) = node.values
        before = self.producer.get(source)
        in_memory = before is None or before in self.group_of or before not in self.injective
        return in_memory and all(self.group_of.get(reader) is group for reader in self.readers[result])

    @staticmethod
    def _has_room(node: Node, group: Group) -> bool:
        """Whether the group reads few enough tensors with the inputs of `node` among them."""
        if len(node.values) < 2 or sum(len(member.values) for member in (*group.nodes, node)) <= MAX_INPUTS:
            return True
        return len(set(external_values(Group(None, [*group.nodes, node])))) <= MAX_INPUTS

    def _continues(self, view: Node, group: Group) -> bool:
        """Whether a view is worth inlining: only if what it looks at will be inlined as well."""
        source = view.inputs[0]
        assert source is not None
        node = self.producer.get(source)
        if node is None or node in self.group_of or node not in self.injective:
            return False
        return self._sole_reader(source) is view and (source not in self.aliases or self._continues(node, group))

    def _injective(self, node: Node) -> Group:
        group = Group(None, [node])
        self.group_of[node] = group
        for value in node.values:
            self._absorb_producer(value, node, group)
        return group

    def _store_free_nodes(self) -> None:
        """Groups for free nodes that somebody reads from memory, because it cannot compute them itself."""
        if not self.free:
            return
        wanted = [*self.graph.outputs, *(v for node in self.foreign for v in node.values)]
        for group in {id(g): g for g in self.group_of.values()}.values():
            wanted += external_values(group)
        while wanted:
            node = self.producer.get(alias_root(wanted.pop(), self.aliases))
            if node in self.free and node not in self.group_of:
                wanted += external_values(self._injective(node))


def _injective_nodes(graph: Graph) -> set[Node]:
    """Nodes with one result, each element of which is a formula of elements of the inputs."""
    return {n for n in graph.nodes if n.definition is not None and n.definition.is_injective and len(n.outputs) == 1}


def external_values(group: Group) -> list[Value]:
    """The values that a group reads and does not compute."""
    inside = {value for node in group.nodes for value in node.outputs}
    return [value for node in group.nodes for value in node.values if value not in inside]


def reads_identically(reader: Node, value: Value) -> bool:
    """Whether element i of the reader's result needs only element i of `value`, and there is one for each i."""
    if not same_shape(reader.outputs[0].tensor.shape, value.tensor.shape):
        return False
    assert reader.definition is not None
    present = [v for v in reader.inputs if v is not None]
    return _is_elementwise_in(reader.definition, tuple([n for n, v in enumerate(present) if v is value]))


@functools.lru_cache(maxsize=4096)
def _most_places(definition: Definition | None) -> int:
    """At how many places an injective definition reads one of its inputs, at most, for one element of its result."""
    if definition is None:
        return 1
    stage = definition.stages[0]
    assert isinstance(stage, Compute)
    places = {(access.operand, access.indices) for access in accesses(stage.value)}
    return max(Counter([operand for operand, _ in places]).values(), default=1)


def _places_read(consumer: Node, value: Value) -> int:
    """At how many places an injective node reads `value` for one element of its result."""
    assert consumer.definition is not None
    present = [v for v in consumer.inputs if v is not None]
    operands = {o for o, v in zip(consumer.definition.inputs, present, strict=True) if v is value}
    stage = consumer.definition.stages[0]
    assert isinstance(stage, Compute)
    return max(len({access.indices for access in accesses(stage.value) if access.operand in operands}), 1)


@functools.lru_cache(maxsize=4096)
def _is_elementwise_in(definition: Definition, numbers: tuple[int, ...]) -> bool:
    """Whether a definition reads the inputs of those numbers at the index of its result alone."""
    stage = definition.stages[0]
    assert isinstance(stage, Compute)
    operands = {definition.inputs[number] for number in numbers}
    reads = [a for a in accesses(stage.value) if a.operand in operands]
    return bool(reads) and all(a.indices == stage.axes for a in reads)


def _reads_own_index(node: Node) -> bool:
    """Whether an injective node reads each input at the index of its result, aligned right, or at 0 where broadcast."""
    assert node.definition is not None
    stage = node.definition.stages[0]
    assert isinstance(stage, Compute)
    return reads_own_index(stage)


# Conversions of at most this many elements of an input are computed by every reader; larger ones are worth a task.
_SMALL_CONVERSION = 1 << 16


def _is_conversion(node: Node) -> bool:
    """Whether a node gives the elements of its only input another type, in some instructions each: a cast."""
    if len(node.values) != 1 or not is_elementwise(node.definition):
        return False
    assert node.definition is not None
    (source,) = node.values
    return source.tensor.dtype != node.outputs[0].tensor.dtype and not _is_expensive(node.definition)


def free_nodes(graph: Graph, injective: Set[Node]) -> set[Node]:
    """Nodes that cost next to nothing wherever they are computed, so that each of their readers may do it itself.

    Those are injective nodes on nothing (full, arange), views and conversions of such, and conversions of small inputs.
    """
    stored = {*graph.inputs, *graph.constants, *(graph.prepare.results if graph.prepare is not None else ())}
    made: set[Value] = set()
    found: set[Node] = set()
    for node in graph.nodes:
        if node not in injective or node.op.is_random:
            continue
        if not stored.isdisjoint(node.inputs):
            count = product(node.outputs[0].tensor.shape)
            is_free = isinstance(count, int) and count <= _SMALL_CONVERSION and _is_conversion(node)
        else:
            is_free = made.issuperset(node.values) and (
                not node.inputs or node.op.kind == "view" or _is_conversion(node)
            )
        if is_free:
            found.add(node)
            made.update(node.outputs)
    return found


def _repeats_work(node: Node, consumer: Node, value: Value) -> bool:
    """Whether inlining `node` into `consumer` would compute elements several times: a broadcast or several reads."""
    definition, inlined = consumer.definition, node.definition
    assert definition is not None and inlined is not None
    if not (node.op.is_costly or _is_expensive(inlined)):
        return False
    present = [v for v in consumer.inputs if v is not None]
    operands = {o for o, v in zip(definition.inputs, present, strict=True) if v is value}
    reads: list[Access] = []
    spread = False
    for stage in definition.stages:
        if not isinstance(stage, Compute):
            return True
        found = [a for a in accesses(stage.value) if a.operand in operands]
        reads += found
        spread |= any(len([i for i in a.indices if i in stage.axes]) < len(stage.axes) for a in found)
    return spread or len(reads) > 1


@functools.lru_cache(maxsize=1024)
def _is_expensive(definition: Definition) -> bool:
    """Whether an element of an injective operator takes more than some instructions. Equal nodes share a definition."""
    nodes = (node for stage in definition.stages for node in walk(_value(stage)))
    return any(isinstance(node, Unary) and UNARY_OPS[node.op].is_costly for node in nodes)


def _value(stage: object) -> Expr:
    assert isinstance(stage, Compute)
    return stage.value


def alias_root(value: Value, aliases: Mapping[Value, Alias]) -> Value:
    """The value whose storage `value` lies in."""
    alias = aliases.get(value)
    return value if alias is None else alias.base
