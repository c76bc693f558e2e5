"""Graphs of aten operators on complex tensors as graphs on their real and imaginary parts.

Kernels know no complex types. A complex tensor that the caller passes is read as the real one of the same memory, with
a last axis of 2; what is computed is a pair of real tensors, which become one where the graph returns it. What an
operator does to the parts is a function of `complex_functions`, traced like a model's. Operators without one run in
torch, on complex tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any

import torch
from hidet.errors import UnsupportedOp
from hidet.torch import compat
from hidet.torch.complex_functions import applies_to_parts, functions, on_parts
from hidet.torch.complex_numbers import PARTS, Complex
from hidet.torch.decompositions import decompositions
from hidet.torch.fx_nodes import COMPLEX, OnComplex, operator_name
from torch import fx


def without_complex(gm: fx.GraphModule) -> fx.GraphModule:
    """The same graph without complex tensors, but inside of nodes that run in torch.

    Complex inputs and results become real ones with a last axis of 2; `meta[COMPLEX]` of their nodes has the complex
    tensor that the caller passes or gets. The same object where there are none, and where a branch or loop takes some.
    """
    touched = [node for node in gm.graph.nodes if _touches(node)]
    if not touched or any(_holds_graphs(node) for node in touched):
        return gm
    return _Rewriter(gm).run()


def _is_apart(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in PARTS and value.layout == torch.strided


def _touches(node: fx.Node) -> bool:
    return any(_is_apart(leaf) for leaf in compat.leaves(node.meta.get("val")))


def _holds_graphs(node: fx.Node) -> bool:
    calls = [each for each in (node, *node.users) if each.op == "call_function"]
    return any(not compat.is_operator(each.target) and each.target is not getitem for each in calls)


class _Recorder(compat.DispatchMode):  # type: ignore[misc]  # a class of torch without annotations
    """Writes the operators that are called on fake tensors into a graph."""

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__()
        self.graph = graph
        self.meta: Mapping[str, Any] = {}
        self.made: list[fx.Node] = []
        self._nodes: dict[int, fx.Node] = {}
        self._kept: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        rule = decompositions().get(func)
        if rule is not None:
            with self:
                result = rule(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, torch.Tensor) for leaf in compat.leaves(result)):
            self.note(func, args, kwargs or {}, result)
        return result

    def note(self, target: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> fx.Node:
        """Write a call with that result."""
        node = self.graph.call_function(target, *compat.map_leaves(self._argument, (tuple(args), dict(kwargs))))
        self._add(node, result)
        if isinstance(result, torch.Tensor):
            self.name(result, node)
        elif isinstance(result, tuple | list):
            for number, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    part = self.graph.call_function(getitem, (node, number))
                    self._add(part, item)
                    self.name(item, part)
        return node

    def name(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """Remember which node makes a tensor."""
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)

    def node(self, tensor: torch.Tensor) -> fx.Node:
        """The node that makes a tensor."""
        if id(tensor) not in self._nodes:
            raise UnsupportedOp("a tensor that no node makes")
        return self._nodes[id(tensor)]

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Inside, nodes are taken back if an error is raised."""
        count = len(self.made)
        try:
            yield
        except BaseException:
            for node in reversed(self.made[count:]):
                self.graph.erase_node(node)
            del self.made[count:]
            raise

    def _add(self, node: fx.Node, value: Any) -> None:
        node.meta = {**self.meta, "val": value}
        self.made.append(node)

    def _argument(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.SymFloat | torch.SymBool):
            raise UnsupportedOp("a number beside complex tensors that is known at run time only")
        return self.node(leaf) if isinstance(leaf, torch.Tensor) else leaf


class _Rewriter:
    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.graph = fx.Graph()
        self.recorder = _Recorder(self.graph)
        self.functions = functions()
        # What stands for a node: one of the new graph, the parts of a complex tensor, or a list of these.
        self.known: dict[fx.Node, Any] = {}
        self.inputs: dict[fx.Node, fx.Node] = {}
        values = [leaf for node in gm.graph.nodes for leaf in compat.leaves(node.meta.get("val"))]
        self.mode = compat.fake_mode_of(values)

    def run(self) -> fx.GraphModule:
        with torch.no_grad(), self.mode:
            for node in self.gm.graph.nodes:
                self.recorder.meta = node.meta
                self.known[node] = self._rewrite(node)
        for node in reversed(self.recorder.made):
            if not node.users and not isinstance(node.target, OnComplex):
                self.graph.erase_node(node)
        return fx.GraphModule(self.gm, self.graph)

    def _rewrite(self, node: fx.Node) -> Any:
        if node.op == "output":
            return self.graph.output(fx.node.map_arg(node.args[0], self._returned))
        if node.op in ("placeholder", "get_attr"):
            return self._given(node) if _touches(node) else self._copied(node)
        if node.target is getitem and isinstance(self.known[node.args[0]], list):  # type: ignore[index]  # a node
            return self.known[node.args[0]][node.args[1]]  # type: ignore[index]  # as above
        if not _touches(node) and not any(isinstance(self.known[each], Complex) for each in node.all_input_nodes):
            return self._copied(node)
        if operator_name(node.target) == "aten.copy_.default":
            made = self.graph.node_copy(node, self._argument)
            made.meta = {**node.meta, "val": self.inputs[node.args[0]].meta["val"]}  # type: ignore[index]  # an input
            return made
        try:
            with self.recorder.attempt():
                return self._on_parts(node)
        except Exception as error:  # noqa: BLE001 - what cannot be traced on parts runs in torch
            return self._in_torch(node, error)

    def _copied(self, node: fx.Node) -> fx.Node:
        return self.graph.node_copy(node, self._argument)

    def _given(self, node: fx.Node) -> Complex:
        """An input or a constant."""
        value = node.meta["val"]
        whole = torch.view_as_real(value.resolve_conj())
        made = self.graph.node_copy(node)
        made.meta = {**node.meta, "val": whole, COMPLEX: value}
        self.inputs[node] = made
        self.recorder.name(whole, made)
        return self._parts_of(whole)

    def _parts_of(self, whole: torch.Tensor) -> Complex:
        with self.recorder:
            return Complex.of(whole)

    def _returned(self, node: fx.Node) -> fx.Node:
        if node in self.inputs:
            return self.inputs[node]
        made = self._argument(node)
        if isinstance(self.known[node], Complex):
            made.meta[COMPLEX] = node.meta["val"]
        return made

    def _argument(self, node: fx.Node) -> fx.Node:
        """The node that stands for another: of a complex tensor, the real one with a last axis of 2."""
        known = self.known[node]
        return self.recorder.node(self._whole(known, node)) if isinstance(known, Complex) else known

    def _whole(self, known: Any, node: fx.Node) -> Any:
        if not isinstance(known, Complex):
            return self._taken(node)
        if node in self.inputs:
            return self.inputs[node].meta["val"]
        with self.recorder:
            return torch.stack([known.real, known.imaginary], -1)

    def _taken(self, node: fx.Node) -> Any:
        """What a function on parts takes for a node."""
        known = self.known[node]
        if isinstance(known, Complex | list):
            return known
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            self.recorder.name(value, known)
        return value

    def _on_parts(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._taken)
        function = self.functions.get(operator_name(node.target))
        expected = node.meta["val"]
        with self.recorder:
            if function is not None:
                made = function(PARTS.get(getattr(expected, "dtype", None)), *args, **kwargs)
            elif applies_to_parts(node.target):
                made = on_parts(node.target, args, kwargs)
            else:
                raise UnsupportedOp("no function of real and imaginary parts is mapped to it")
        if isinstance(expected, tuple | list):
            return [self._checked(item, want) for item, want in zip(made, expected, strict=True)]
        return self._checked(made, expected)

    def _checked(self, made: Any, expected: Any) -> Any:
        """A result of the shape and type that torch infers; a real one with its strides."""
        parts = made if isinstance(made, Complex) else (made,)
        for part in (parts.real, parts.imaginary) if isinstance(parts, Complex) else parts:
            if part.dtype != PARTS.get(expected.dtype, expected.dtype) or part.dim() != expected.dim():
                raise UnsupportedOp(f"parts would be {part.dtype} of rank {part.dim()}, torch infers {expected}")
        if isinstance(made, Complex) != _is_apart(expected):
            raise UnsupportedOp(f"torch infers {expected.dtype}")
        if isinstance(made, Complex):
            return made
        return self.recorder.note(torch.ops.aten.alias.default, (made,), {}, expected)

    def _in_torch(self, node: fx.Node, error: Exception) -> Any:
        """A call on complex tensors, whose complex results are read as real ones."""
        leaves = compat.leaves((node.args, node.kwargs))
        given = [n for n, leaf in enumerate(leaves) if isinstance(self.known.get(leaf), Complex)]
        target = OnComplex(node.target, frozenset(given), error)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._argument)
        expected = node.meta["val"]
        real = compat.map_leaves(
            lambda leaf: torch.view_as_real(leaf.resolve_conj()) if _is_apart(leaf) else leaf, expected
        )
        call = self.graph.call_function(target, args, kwargs)
        call.meta = {**node.meta, "val": real}
        self.recorder.made.append(call)
        if not isinstance(expected, tuple | list):
            self.recorder.name(real, call)
            return self._parts_of(real) if _is_apart(expected) else call
        results: list[Any] = []
        for number, (item, whole) in enumerate(zip(expected, real, strict=True)):
            part = self.graph.call_function(getitem, (call, number))
            part.meta = {**node.meta, "val": whole}
            self.recorder.made.append(part)
            if _is_apart(item):
                self.recorder.name(whole, part)
            results.append(self._parts_of(whole) if _is_apart(item) else part)
        return results
