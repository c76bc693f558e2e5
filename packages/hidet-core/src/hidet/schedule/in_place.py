"""Which operators may write into the memory of their input instead of copying it first.

An update of a KV cache then writes its new rows and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hidet.compute.definition import Scatter
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType
from hidet.ir.expr import Access
from hidet.schedule.group import Group, alias_root
from hidet.schedule.task import Alias


def find_reuses(
    graph: Graph, groups: Sequence[Group], types: Mapping[Value, TensorType], aliases: Mapping[Value, Alias]
) -> dict[Value, Value]:
    """For outputs of operators that declare `reuses`: the input whose memory they take over.

    The input must be a temporary; or a graph input that this very output replaces, directly or through a chain of such
    operators. Nothing may read its memory, through any view, after the operator's group, and both must have the same
    strides.
    """
    candidates = _candidates(graph, groups, types, aliases)
    replaced = {graph.outputs[output]: graph.inputs[source] for source, output in graph.mutates}
    lasting = {*graph.inputs, *graph.constants, *(graph.prepare.results if graph.prepare is not None else ())}
    found = {o: s for o, s in candidates.items() if s not in lasting and o not in replaced}
    for output, target in replaced.items():
        chain = [output]
        while chain[-1] in candidates and chain[-1] is not target:
            chain.append(candidates[chain[-1]])
        if chain[-1] is target:
            found.update(pairwise(chain))
    return found


def _candidates(
    graph: Graph, groups: Sequence[Group], types: Mapping[Value, TensorType], aliases: Mapping[Value, Alias]
) -> dict[Value, Value]:
    """Pairs (output, input) of which the input's memory has no reader after the output is written."""
    last_read: dict[Value, int] = {}
    for position, group in enumerate(groups):
        for node in group.nodes:
            for value in node.values:
                last_read[alias_root(value, aliases)] = position
    for value in graph.outputs:
        last_read[alias_root(value, aliases)] = len(groups)
    found: dict[Value, Value] = {}
    for position, group in enumerate(groups):
        if group.anchor is None or group.nodes[-1] is not group.anchor:
            continue
        inside = {value for member in group.nodes for value in member.outputs}
        for output, source in _declared(group.anchor):
            if source in aliases or source in inside or types[source].element_strides != types[output].element_strides:
                continue
            reads = sum(alias_root(value, aliases) is source for member in group.nodes for value in member.values)
            if reads == 1 and last_read[source] == position:
                found[output] = source
    return found


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
