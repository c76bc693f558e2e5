"""What fx nodes say about themselves: their operators, their places in the user's model, what they overwrite and who
reads them."""

from __future__ import annotations

import operator
import os
import re
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import torch
from hidet.errors import HidetError, ImportFailed
from hidet.loc import Loc
from hidet.torch import compat
from torch import fx

ELEMENT = "aten._local_scalar_dense.default"
"""The operator that reads a tensor of one element: `item()`."""

ASSERTION = "aten._assert_scalar.default"
"""The operator that ends a call unless a truth holds: `torch._check`, and the ranges that torch derives from it."""

RANGE_CHECKS = frozenset({"aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default"})
"""Operators that tell the range of a number, which its symbol has; it is checked where the number is read."""

COMPLEX = "complex"
"""Key in `meta` of a node that stands for a complex tensor of the caller's: that tensor. The node is real, with a last
axis of 2 for the real and the imaginary parts."""


class OnComplex:
    """Calls an operator of torch on complex tensors that are passed, and returned, as real ones with a last axis of 2.

    places: numbers of such tensors among the leaves of (args, kwargs). error: why no kernel computes it.
    """

    def __init__(self, operator: Any, places: frozenset[int], error: Exception) -> None:
        self.__name__ = str(operator)
        self.operator = operator
        self.places = places
        self.tags = getattr(operator, "tags", ())
        self.reason = error.message if isinstance(error, HidetError) else f"{type(error).__name__}: {error}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the operator returns, read as real tensors."""
        counter = count()

        def given(leaf: Any) -> Any:
            return torch.view_as_complex(leaf.contiguous()) if next(counter) in self.places else leaf

        args, kwargs = compat.map_leaves(given, (args, kwargs))
        return compat.map_tensors(as_real, self.operator(*args, **kwargs))


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor of pairs of f32 or f64 as a real one with a last axis of 2, others as they are. It is over the
    same memory unless a conjugation is pending."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.dtype in _OF_PAIRS else tensor


_OF_PAIRS = (torch.complex64, torch.complex128)


def tensor_of_caller(node: fx.Node) -> Any:
    """The fake of what the caller passes or gets for a node."""
    return node.meta.get(COMPLEX, node.meta.get("val"))


def mutated_inputs(gm: fx.GraphModule) -> dict[int, fx.Node]:
    """Number of each input that a trailing `aten.copy_` overwrites, and the node that it is overwritten with."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    found: dict[int, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and operator_name(node.target) == "aten.copy_.default":
            target, source = node.args[:2]
            if target not in placeholders:
                raise ImportFailed(f"node {node.name} writes into {target}, which is no input", loc=location(node))
            found[placeholders.index(target)] = source
    return found


def operator_name(target: Any) -> str:
    """The name that handlers are found by: "aten.add.Tensor", "operator.mul", "math.sqrt"."""
    if isinstance(target, OnComplex):
        target = target.operator
    if compat.is_operator(target):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    return f"{module.removeprefix('_')}.{getattr(target, '__name__', target)}"


def function_name(node: fx.Node) -> str:
    """The plain name of what a node of dynamo calls: "relu", "cpu"."""
    return str(getattr(node.target, "__name__", node.target))


def read_results(node: fx.Node) -> frozenset[int]:
    """Numbers of the results of a node that have a reader."""
    found: set[int] = set()
    for user in node.users:
        if operator_name(user.target) == "operator.getitem":
            if user.users:
                found.add(user.args[1])  # type: ignore[arg-type]  # an index
        else:
            found.update(range(len(node.meta["val"]) if isinstance(node.meta.get("val"), tuple | list) else 1))
    return frozenset(found)


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in ')
_ROOT = re.compile(r"^L\['[^']*'\]\.?")
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_CHILD = re.compile(r"(?:\._modules)?\['([^']*)'\]")


def location(node: fx.Node) -> Loc | None:
    """The line of the model that a node comes from, and the path of the module; where that line is torch's own, the
    line that called it is the parent."""
    trace = node.meta.get("stack_trace") or ""
    modules = node.meta.get("nn_module_stack")
    path = str(next(reversed(modules.values()))[0]) if modules else ""
    return _location(trace, path) if trace or path else None


@lru_cache(maxsize=1024)
def _location(trace: str, path: str) -> Loc:
    frames = list(_FRAME.finditer(trace))
    name = _CHILD.sub(r".\1", _ROOT.sub("", path)) or None
    if not frames:
        return Loc(name=name)
    places = [Loc(frame["file"], int(frame["line"]), None, name) for frame in frames]
    called = next((place for place in reversed(places) if not str(place.file).startswith(_TORCH)), places[-1])
    return places[-1] if called is places[-1] else replace(places[-1], parent=replace(called, name=None))


def is_number(node: fx.Node) -> bool:
    """Whether a node is a Python number or a truth: a size, a float, what is computed from these."""
    return isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


def is_read_from_tensor(node: fx.Node) -> bool:
    """Whether a node is a number read from a tensor: its element, or an extent or stride of it."""
    return node.op == "call_function" and is_number(node) and not all(map(is_number, node.all_input_nodes))


def used_numbers(gm: fx.GraphModule) -> tuple[frozenset[fx.Node], frozenset[fx.Node]]:
    """The numbers that anything but an assertion has a use for, and those that assertions have.

    Floats that only numbers are computed from are not among the former: Python computes them on the way.
    """
    read, asserted = set[fx.Node](), set[fx.Node]()
    for node in reversed(gm.graph.nodes):
        name = operator_name(node.target) if node.op == "call_function" else ""
        if name == ASSERTION or node in asserted:
            asserted.update(filter(is_number, node.all_input_nodes))
        if name == ASSERTION or name in RANGE_CHECKS or (is_number(node) and node not in read):
            continue
        numbers = filter(is_number, node.all_input_nodes)
        read.update(each for each in numbers if not (is_number(node) and isinstance(each.meta["val"], torch.SymFloat)))
    return frozenset(read), frozenset(asserted)


class EagerStrides:
    """Whether the strides that torch traced tensors with are those of eager mode; each node is looked at once.

    Torch infers many operators otherwise than the kernels lay their results if an operand is not row-major, be it in an
    axis of one element. What row-major operands alone make is row-major in both; views are the same views in both.
    """

    def __init__(self) -> None:
        self._known: dict[fx.Node, bool] = {}

    def are_known(self, node: fx.Node) -> bool:
        """Of a node whose result is a tensor."""
        waiting = [node]
        while waiting:
            found = waiting[-1]
            operands = [each for each in _layout_operands(found) if _has_strides(each)]
            fresh = [each for each in operands if each not in self._known]
            if fresh and found not in self._known:
                waiting += fresh
                continue
            waiting.pop()
            self._known[found] = _are_sources(found, operands) or (
                all(self._known[each] for each in operands) and _keeps_strides(found, operands)
            )
        return self._known[node]


def _layout_operands(node: fx.Node) -> list[fx.Node]:
    """The operands on whose strides those of a node's results depend."""
    if node.op in ("placeholder", "get_attr") or operator_name(node.target) in ALWAYS_ROW_MAJOR:
        return []
    return node.all_input_nodes[:1] if operator_name(node.target) in LIKE_FIRST else node.all_input_nodes


def _has_strides(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or (value.dim() > 0 and not is_number(node))


def _are_sources(node: fx.Node, operands: list[fx.Node]) -> bool:
    """Whether a node's strides follow from nothing: arguments, new tensors, what is row-major however operands lie."""
    return not operands or node.kwargs.get("memory_format") is torch.contiguous_format


ALWAYS_ROW_MAJOR = frozenset(
    f"aten.{name}"
    for name in (
        *(
            "new_empty.default",
            "new_full.default",
            "new_ones.default",
            "new_zeros.default",
            "mm.default",
            "bmm.default",
        ),
        *("all.dim", "amax.default", "amin.default", "any.dim", "mean.dim", "prod.dim_int", "sum.dim_IntList"),
    )
)
"""Operators whose results are row-major in eager mode however their operands lie: their kernels ask for such memory."""

LIKE_FIRST = frozenset(
    f"aten.{name}.default"
    for name in ("as_strided_scatter", "copy", "diagonal_scatter", "select_scatter", "slice_scatter")
)
"""Operators whose results lie as the first operand does: in eager mode they wrote into it, before AOTAutograd."""


def _keeps_strides(node: fx.Node, operands: list[fx.Node]) -> bool:
    """Whether eager mode lays a node's results as torch infers, where it does so for the operands."""
    schema = getattr(node.target, "_schema", None)
    is_view = schema is not None and schema.returns and schema.returns[0].alias_info
    is_like_operands = bool(is_view) or node.target is operator.getitem or operator_name(node.target) in LIKE_FIRST
    return is_like_operands or all(map(_is_row_major, operands))


def _is_row_major(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return False
    strides: list[Any] = []
    running: Any = 1
    for extent in reversed(value.shape):
        strides.insert(0, running)
        running = running * extent
    # Symbolic extents are compared as text: asking whether they are equal would make a guard.
    return list(map(str, value.stride())) == list(map(str, strides))
