"""Functions of TensorFlow as they are read: which nodes results need, in an order that computes operands first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hidet.errors import ImportFailed
from hidet.tensorflow.compat import op_def

Source = tuple[str, int]
"""A result of a node, or an argument of the function: its name, and the number of the result."""


@dataclass(frozen=True, eq=False)
class Function:
    """A FunctionDef. library: the functions that it may call.

    arguments: names. results: names. nodes: by name.
    """

    name: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    proto: Any = field(repr=False)
    library: Library = field(repr=False)

    @cached_property
    def nodes(self) -> Mapping[str, Any]:
        """The NodeDefs by name."""
        return {node.name: node for node in self.proto.node_def}

    @cached_property
    def returned(self) -> tuple[Source, ...]:
        """What the results are."""
        missing = [name for name in self.results if name not in self.proto.ret]
        if missing:
            raise ImportFailed(f"function {self.name!r} does not say what its result {missing[0]!r} is")
        return tuple(self.source(self.proto.ret[name]) for name in self.results)

    def source(self, text: str) -> Source:
        """What a reference means: "argument", or "node:result:number". ImportFailed for one of nothing."""
        name, _, rest = text.partition(":")
        if not rest:
            if name not in self.arguments:
                raise ImportFailed(f"function {self.name!r} reads {name!r}, which is no argument of it")
            return name, 0
        node = self.nodes.get(name)
        if node is None:
            raise ImportFailed(f"function {self.name!r} reads {text!r}, which no node of it computes")
        result, _, number = rest.partition(":")
        if number and not number.isdecimal():
            raise ImportFailed(f"function {self.name!r} reads {text!r}, which is no result of a node")
        return name, self.library.first_number(node, result) + int(number or 0)

    def operands(self, node: Any) -> tuple[Source, ...]:
        """What a node reads; that it only waits for is left out."""
        return tuple(self.source(text) for text in node.input if not text.startswith("^"))

    @cached_property
    def steps(self) -> tuple[tuple[Any, tuple[Source, ...]], ...]:
        """The nodes that results need, with their operands, each after those that it reads.

        ImportFailed for a circle, which is a loop of TensorFlow 1.
        """
        found: dict[str, tuple[Any, tuple[Source, ...]]] = {}
        open_nodes: set[str] = set()
        waiting = [name for name, _ in reversed(self.returned) if name in self.nodes]
        while waiting:
            name = waiting[-1]
            if name in found:
                waiting.pop()
                continue
            operands = self.operands(self.nodes[name])
            missing = [read for read, _ in operands if read in self.nodes and read not in found]
            if not missing:
                found[name] = self.nodes[name], operands
                waiting.pop()
            elif name in open_nodes:
                raise ImportFailed(
                    f"node {name!r} of function {self.name!r} reads its own result",
                    hint="a loop of TensorFlow 1: save the model with TensorFlow 2 control flow (tf.function)",
                )
            else:
                open_nodes.add(name)
                waiting += reversed(missing)
        return tuple(found.values())

    @cached_property
    def unchanged(self) -> frozenset[int]:
        """Numbers of the arguments that the function returns at the same place: what a loop does not change."""
        kept = set()
        for number, (name, _) in enumerate(self.returned):
            while name in self.nodes and self.nodes[name].op == "Identity":
                name = self.operands(self.nodes[name])[0][0]
            if number < len(self.arguments) and self.arguments[number] == name:
                kept.add(number)
        return frozenset(kept)

    @cached_property
    def growing(self) -> frozenset[int]:
        """Numbers of the arguments that the function returns at the same place with 1 added: counters of a loop."""
        found = set()
        for number, (name, _) in enumerate(self.returned):
            node = self.nodes.get(name)
            while node is not None and node.op == "Identity":
                name = self.operands(node)[0][0]
                node = self.nodes.get(name)
            if node is None or node.op not in ("AddV2", "Add") or number >= len(self.arguments):
                continue
            operands = [source for source, _ in self.operands(node)]
            others = [source for source in operands if source != self.arguments[number]]
            if len(others) == 1 and _is_one(self.nodes.get(others[0])):
                found.add(number)
        return frozenset(found)


def _is_one(node: Any) -> bool:
    if node is None or node.op != "Const":
        return False
    tensor = node.attr["value"].tensor
    return not tensor.tensor_shape.dim and (list(tensor.int_val) == [1] or list(tensor.int64_val) == [1])


class Library:
    """The functions of a model by name. proto: a FunctionDefLibrary."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self._protos = {entry.signature.name: entry for entry in proto.function}
        self._functions: dict[str, Function] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._protos

    def function(self, name: str) -> Function:
        """The function of this name. ImportFailed where there is none."""
        found = self._functions.get(name)
        if found is None:
            proto = self._protos.get(name)
            if proto is None:
                raise ImportFailed(f"the model calls function {name!r}, which it does not have")
            found = self._functions[name] = self.read(proto)
        return found

    def read(self, proto: Any) -> Function:
        """A FunctionDef that calls functions of this library."""
        arguments = tuple(entry.name for entry in proto.signature.input_arg)
        results = tuple(entry.name for entry in proto.signature.output_arg)
        return Function(proto.signature.name, arguments, results, proto, self)

    def first_number(self, node: Any, result: str) -> int:
        """The number, among all results of a node, of the first one that goes by this name."""
        signature = self._protos[node.op].signature if node.op in self._protos else op_def(node.op)
        number = 0
        for entry in () if signature is None else signature.output_arg:
            if entry.name == result:
                return number
            if entry.number_attr:
                number += node.attr[entry.number_attr].i
            elif entry.type_list_attr:
                number += len(node.attr[entry.type_list_attr].list.type)
            else:
                number += 1
        raise ImportFailed(f"{node.op} {node.name!r} has no result {result!r}, which is read")
