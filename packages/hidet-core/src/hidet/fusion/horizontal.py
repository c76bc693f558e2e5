"""Horizontal fusion: groups of the same operators on parameters become one.

A model with live weights brings many small ones into the order that its kernels want, each by operators that others
have as well. Together they are a task with several results.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import prod

from hidet.fusion.group import Group, external_values
from hidet.graph.graph import Graph, Value
from hidet.schedule.task import group_key

MAX_BYTES = 64 << 20
"""Of the results of a group: they are all in memory from its task on, until the last one was read."""
_SMALL = 16 << 20
"""Bytes of a result up to which its launch counts beside what it takes."""


def fuse_horizontally(groups: Iterable[Group], graph: Graph) -> list[Group]:
    """The groups with those joined that are alike and read parameters and constants alone.

    They stay in an order in which they can run: a joined group stands where the first of its parts stood. What
    overwrites a tensor of the caller's stays where it is, because others may read that before.
    """
    stored = {*graph.parameters, *graph.constants, *(() if graph.prepare is None else graph.prepare.results)}
    overwriting = {graph.outputs[output] for _, output in graph.mutates}
    result: list[Group] = []
    open_groups: dict[Hashable, tuple[Group, int]] = {}
    for group in groups:
        is_free = _reads_only(group, stored) and overwriting.isdisjoint(group.nodes[-1].outputs)
        size = _result_bytes(group) if is_free else None
        if size is None or size > _SMALL:
            result.append(group)
            continue
        key = _code(group)
        first, before = open_groups.get(key, (None, 0))
        if first is None or before + size > MAX_BYTES:
            result.append(group)
            open_groups[key] = group, size
            continue
        first.nodes += group.nodes
        open_groups[key] = first, before + size
    return result


def _reads_only(group: Group, stored: set[Value]) -> bool:
    """Whether a group without an anchor reads nothing that another one computes."""
    if group.anchor is not None or group.repeated:
        return False
    return stored.issuperset(external_values(group))


def _result_bytes(group: Group) -> int | None:
    """Bytes of what it computes last; None for symbolic sizes."""
    type_ = group.nodes[-1].outputs[0].tensor
    sizes = [extent for extent in type_.shape if isinstance(extent, int)]
    return prod(sizes) * type_.dtype.nbytes if len(sizes) == type_.rank else None


def _code(group: Group) -> Hashable:
    """What two groups share that differ in sizes alone: operators, attributes, wiring, types of elements, ranks."""
    inputs, outputs = tuple(dict.fromkeys(external_values(group))), group.nodes[-1].outputs
    types = {value: (value.tensor.dtype, value.tensor.rank, value.tensor.device) for value in (*inputs, *outputs)}
    return group_key(group.nodes, inputs, outputs, types)
