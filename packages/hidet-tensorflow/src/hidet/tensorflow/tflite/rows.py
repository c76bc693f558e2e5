"""Rows that loops write into tensors, found in what converters make of TensorFlow's lists.

A list of tensors becomes one tensor with an axis more, and writing an element becomes what is before it, the element,
and what is behind it, joined. That is one node here, so that a loop which fills a tensor row by row stacks its results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hidet.tensorflow.tflite.loader import LiteGraph, LiteNode

WRITE_ROW = "write a row"
"""The operator of these nodes: tensor, index, row[1, ...] -> tensor."""


def with_row_writes(graph: LiteGraph) -> LiteGraph:
    """The sub-graph with one node for each row that is written. What such a node no longer reads, nobody needs."""
    finder = _Finder(graph)
    nodes = [finder.replaced(node) for node in graph.nodes]
    return graph if nodes == list(graph.nodes) else replace(graph, nodes=nodes)


def filled_arguments(body: LiteGraph) -> frozenset[int]:
    """Numbers of the arguments of a loop's body that it does nothing else with than to write a row of each."""
    made_by = {output: node for node in body.nodes for output in node.outputs}
    # What the rows that were joined came from is read by nodes that nobody needs.
    needed = set(body.outputs)
    readers: dict[int, int] = {}
    for node in reversed(body.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            for number in node.inputs:
                readers[number] = readers.get(number, 0) + 1
    found = set()
    for number, (before, after) in enumerate(zip(body.inputs, body.outputs, strict=False)):
        writer = made_by.get(after)
        if writer is not None and writer.operator == WRITE_ROW and writer.inputs[0] == before and readers[before] == 1:
            found.add(number)
    return frozenset(found)


class _Finder:
    def __init__(self, graph: LiteGraph) -> None:
        self.graph = graph
        self.made_by: Mapping[int, LiteNode] = {output: node for node in graph.nodes for output in node.outputs}

    def replaced(self, node: LiteNode) -> LiteNode:
        if node.operator != "CONCATENATION" or len(node.inputs) != 3 or node.options["axis"] != 0:
            return node
        head, tail = (self.made_by.get(number) for number in node.inputs[::2])
        if head is None or tail is None or head.operator != "SLICE" or tail.operator != "SLICE":
            return node
        source, _, count = head.inputs
        index, behind = self._first_of(count, -1), self._first_of(tail.inputs[1], 0)
        extents = self.graph.tensors[node.inputs[1]].shape
        is_row = (
            tail.inputs[0] == source
            and self._is_all(head.inputs[1], 0)
            and self._is_all(tail.inputs[2], -1)
            and index is not None
            and behind is not None
            and self._is_next(index, behind)
            and extents[:1] == (1,)
            and node.options["activation"] == 0
        )
        if not is_row or index is None:
            return node
        return LiteNode(WRITE_ROW, (source, index, node.inputs[1]), node.outputs, {}, b"", node.number)

    def _constant(self, number: int) -> Any | None:
        return None if number < 0 else self.graph.tensors[number].data

    def _is_all(self, number: int, value: int) -> bool:
        data = self._constant(number)
        return data is not None and data.size > 0 and bool((data == value).all())

    def _first_of(self, number: int, rest: int) -> int | None:
        """The number that a vector begins with, whose other entries are `rest`."""
        node = self.made_by.get(number)
        if node is not None and node.operator == "CONCATENATION":
            if len(node.inputs) != 2 or not self._is_all(node.inputs[1], rest):
                return None
            number = node.inputs[0]
            node = self.made_by.get(number)
        elif self.graph.tensors[number].shape != (1,):
            return None
        if node is None or node.operator != "RESHAPE":
            return None
        return node.inputs[0]

    def _is_next(self, index: int, behind: int) -> bool:
        node = self.made_by.get(behind)
        if node is None or node.operator != "ADD" or index not in node.inputs:
            return False
        others: Sequence[int] = [number for number in node.inputs if number != index]
        return len(others) == 1 and self._is_all(others[0], 1)
