"""Which operators may write into the memory of their input instead of copying it first.

An update of a KV cache then writes its new rows and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType
from hidet.schedule.group import Group, alias_root
from hidet.schedule.task import Alias


def find_reuses(
    graph: Graph, groups: Sequence[Group], types: Mapping[Value, TensorType], aliases: Mapping[Value, Alias]
) -> dict[Value, Value]:
    """For outputs of operators that declare `reuses`: the input whose memory they take over.

    The input must be a temporary, or a graph input that this very output replaces; nothing may read its memory, through
    any view, after the operator's group; both must have the same strides.
    """
    last_read: dict[Value, int] = {}
    for position, group in enumerate(groups):
        for node in group.nodes:
            for value in node.values:
                last_read[alias_root(value, aliases)] = position
    for value in graph.outputs:
        last_read[alias_root(value, aliases)] = len(groups)
    replaced = {graph.outputs[output]: graph.inputs[source] for source, output in graph.mutates}
    lasting = {*graph.inputs, *graph.constants, *(graph.prepare.results if graph.prepare is not None else ())}
    found: dict[Value, Value] = {}
    for position, group in enumerate(groups):
        anchor = group.anchor
        if anchor is None or group.nodes[-1] is not anchor:
            continue
        for output, source in _candidates(anchor):
            if source in aliases or types[source].element_strides != types[output].element_strides:
                continue
            reads = sum(alias_root(value, aliases) is source for member in group.nodes for value in member.values)
            if reads != 1 or last_read[source] != position:
                continue
            is_temporary = source not in lasting and output not in replaced
            if is_temporary or replaced.get(output) is source:
                found[output] = source
    return found


def _candidates(node: Node) -> list[tuple[Value, Value]]:
    pairs = []
    for output, source in node.op.reuses:
        value = node.inputs[source]
        if value is not None:
            pairs.append((node.outputs[output], value))
    return pairs
