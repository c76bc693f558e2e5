"""Flow graphs as text: a line an operator, or a kernel of a graph that is fused.

Graph(x: float32[2, 3][cpu]){
  c = Constant(float32[3, 2][cpu])
  x_1: float32[2, 2][cpu] = Matmul(x, c, trans_a=False, trans_b=False, fp32_precision='ieee', fast_accum=False)
  return x_1
}
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet.dtypes import DType
from hidet.graph.graph import Graph, Value
from hidet.schedule.task import Task

if TYPE_CHECKING:
    from hidet.api.flow.graph import FlowGraph
    from hidet.schedule.task import TaskGraph


def flow_text(flow: FlowGraph) -> str:
    """A graph of symbolic tensors."""
    text = _Text(flow.device)
    head = text.declared(flow.inputs)
    given = {*flow.inputs, *(made for node in flow.nodes for made in node.outputs)}
    for node in flow.nodes:
        text.constants(tensor for tensor in node.inputs if tensor is not None and tensor not in given)
    for node in flow.nodes:
        text.operator(node.outputs, operator_name(node.name), node.inputs, node.attrs)
    return text.end(head, flow.outputs)


def fused_text(graph: TaskGraph, device: str) -> str:
    """A graph cut into kernels; what is computed ahead of the calls counts as a constant."""
    text = _Text(device)
    inner = graph.graph
    head = text.declared(inner.inputs)
    ahead = () if inner.prepare is None else inner.prepare.results
    text.constants((*inner.constants, *ahead))
    for step in graph.steps:
        if not isinstance(step, Task):
            text.operator(step.node.outputs, operator_name(step.node.op.name), step.node.inputs, step.node.attrs)
            continue
        names = [operator_name(node.op.name) for node in step.nodes]
        anchor = len(names) - 1 if step.anchor is None else step.nodes.index(step.anchor)
        read = [tensor.value for tensor in step.inputs]
        for value in read:
            text.view(value, graph)
        attrs = {"fused_graph": _Word(f"FlowGraph({', '.join(names)})"), "anchor": anchor}
        made = [tensor.value for tensor in step.outputs]
        if len(names) == 1:
            text.operator(made, names[0], read, step.nodes[0].attrs)
        else:
            text.operator(made, f"Fused{names[anchor]}", read, attrs)
    for value in inner.outputs:
        text.view(value, graph)
    return text.end(head, inner.outputs)


def operator_name(name: str) -> str:
    """An operator as a class is called: "LayerNorm" for "layer_norm"."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[._]", name))


class _Word(str):
    """A text that is printed without quotes."""

    __slots__ = ()


class _Text:
    """Lines, and names of what has been declared: tensors of a flow graph, or values of a graph."""

    def __init__(self, device: str) -> None:
        self._kind = device.partition(":")[0]
        self._names: dict[Hashable, str] = {}
        self._counts: dict[str, int] = {}
        self._lines: list[str] = []

    def declared(self, made: Sequence[Any]) -> str:
        """New names with their types: "x: float32[2, 3][cpu]"."""
        return ", ".join(f"{self._new(each, 'x')}: {self._type(each)}" for each in made)

    def constants(self, given: Iterable[Any]) -> None:
        """A line for each that has no name yet."""
        for each in given:
            if each not in self._names:
                self._lines.append(f"{self._new(each, 'c')} = Constant({self._type(each)})")

    def operator(self, made: Sequence[Any], name: str, read: Sequence[Any], attrs: Mapping[str, Any]) -> None:
        """The line of an operator. read: None for what is absent. Attributes that ask for nothing are left out."""
        given = ["none" if each is None else self._names[each] for each in read]
        told = [f"{key}={_shown(value)}" for key, value in attrs.items() if value is not None]
        results = self.declared(made)
        self._lines.append(f"{results} = {name}({', '.join([*given, *told])})")

    def view(self, value: Value, graph: TaskGraph) -> None:
        """The line of a value that lies in the memory of another, where it has none yet."""
        alias = graph.aliases.get(value)
        if value not in self._names and alias is not None:
            self.view(alias.base, graph)
            self.operator([value], "View", [alias.base], {})

    def end(self, head: str, outputs: Sequence[Any]) -> str:
        """The whole text."""
        returned = f"return {', '.join(self._names[each] for each in outputs)}"
        return "\n".join([f"Graph({head}){{", *(f"  {line}" for line in [*self._lines, returned]), "}"])

    def _new(self, each: Hashable, hint: str) -> str:
        count = self._counts[hint] = self._counts.get(hint, -1) + 1
        self._names[each] = f"{hint}_{count}" if count else hint
        return self._names[each]

    def _type(self, each: Any) -> str:
        """The type of a tensor, or of a value of any kind."""
        kind = getattr(each, "type", each)
        if not hasattr(kind, "shape"):
            return str(kind)
        return f"{kind.dtype.name}[{', '.join(map(str, kind.shape))}][{self._kind}]"


def _shown(value: Any) -> str:
    if isinstance(value, DType | Graph):
        return value.name
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, tuple | list) else _plain(value)


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, _Word) or not isinstance(value, str) else repr(value)
