"""`OperatorSpec`: everything the compiler knows about one operator, as data that a plug-in returns."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from hidet.compute.definition import Operand
from hidet.errors import OptionError, PluginError, UnsupportedOp
from hidet.graph.attrs import Attrs
from hidet.graph.types import TensorType, ValueType

if TYPE_CHECKING:
    from hidet.compute.definition import Definition, Operand
    from hidet.dims import Dim
    from hidet.graph.builder import GraphBuilder
    from hidet.graph.graph import Node, Value

OperatorClass = Literal["compute", "view", "anchor", "routine", "control", "host", "eager", "check"]
FOREIGN_KINDS = frozenset({"control", "host", "eager", "check"})
"""Kinds of operators that are steps of the host program and not turned into kernels."""
Layout = Literal["channels-last", "bshd", "follows"]
_LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_FAMILY = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an operator: its name and default; without a default it must be given."""

    name: str
    default: Any = REQUIRED
    doc: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """How a view lies in its input's storage: element offset and strides, one an output axis."""

    offset: Dim
    strides: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """An integer input of an operator that says where along an axis of `extent` it reads or writes.

    input: its number. level: the element along its last axis that says so, None for all of it. wraps: whether negative
    positions count from the end.
    """

    input: int
    extent: Dim
    level: int | None = None
    wraps: bool = True


DefineFn = Callable[..., "Definition"]
InferFn = Callable[[Sequence[Any], Attrs], Sequence[ValueType]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """One operator.

    name: as printed in graphs.
    inputs: input names in order; "bias?" may be absent, "tensors*" (last) takes any number.
    attributes: accepted attributes.
    kind: "compute" (fused by substitution where injective), "view" (output aliases input 0 where `view` says how),
        "anchor" (matmul, conv, attention, norm, softmax, pooling: scheduled by rules, others fuse into it), "routine"
        (an algorithm, not an index formula), "control" (if, while, reading sizes: done by the host program), "host"
        (numpy on string, sequence and optional values), "eager" (run by the frontend's framework), "check" (raises an
        error or does nothing: `hidet.operators.check`). Control, host and eager ones may have an attribute `defines`:
        symbols whose values their results tell.
    define: `define(*operands, **attrs) -> Definition`; absent optional inputs are None. None for host and eager
        operators and for those that always decompose.
    infer: output types from input types; None takes them from the definition.
    decompose: `decompose(builder, inputs, attrs) -> outputs` in simpler operators, used when no target keeps this one.
    view: layout of the output in input 0's storage, or None where only a copy can do it.
    part: of an operator that puts input 1 into a part of input 0: layout of that part in input 0's storage, called as
        `view` is, with input 1's type in place of the output's.
    evaluate: numpy meaning, where the generic evaluation of `define` would be slow: `evaluate(arrays, attrs)`.
    call: the callable of an "eager" or "host" operator, on the framework's own values.
    positions: inputs that say where it reads or writes, and along which extents, from input types and attributes.
        Programs trust them: whoever compiles for a target has them checked (`hidet.passes.graph.check_positions`).
    reads_parts: whether an index may run over a part of an axis; otherwise it runs over all of it, which calls check
        where sizes are symbolic (`hidet.graph.assumptions`).
    reuses: pairs (output, input): the output may overwrite that input's storage if the input has no later reader.
    is_random: draws random numbers, so two equal nodes differ.
    has_effect: must run even when its outputs are unused.
    is_costly: of an injective operator: an element takes so much that a reader that broadcasts it finds it in memory.
    expands: its result takes more memory than its inputs, which is what they are kept small for (dequantisation): it is
        never computed ahead of the calls, whatever it is applied to.
    family: what kind of computation it is, a name that schedules and passes may give in place of all its members'
        ("family:reduction" in `ScheduleSpec.ops`); docs/schedules.md has those of core. None: none.
    layout: how its result lies in memory where nobody else decides. "channels-last": axis 1 innermost, as convolutions
        want it; their operators have it whatever they read. "bshd": [batch, heads, positions, features] with the heads
        of a position next to each other, as attention wants it. "follows": channels-last where its first input is.
        None: row-major, but element-wise operators follow any input of their result's shape.
    """

    name: str
    inputs: tuple[str, ...]
    attributes: tuple[Attribute, ...] = ()
    kind: OperatorClass = "compute"
    define: DefineFn | None = None
    infer: InferFn | None = None
    decompose: Callable[[GraphBuilder, Sequence[Value | None], Attrs], Sequence[Value]] | None = None
    view: Callable[[TensorType, Attrs, TensorType], View | None] | None = None
    part: Callable[[TensorType, Attrs, TensorType], View | None] | None = None
    evaluate: Callable[[Sequence[Any], Attrs], Sequence[Any]] | None = None
    call: Callable[..., Any] | None = None
    positions: Callable[[Sequence[Any], Attrs], Sequence[Position]] | None = None
    reads_parts: bool = False
    reuses: tuple[tuple[int, int], ...] = ()
    is_random: bool = False
    has_effect: bool = False
    is_costly: bool = False
    expands: bool = False
    family: str | None = None
    layout: Layout | None = None
    doc: str = ""
    replaces: str | None = None

    def __post_init__(self) -> None:
        if self.layout is not None and self.layout not in _LAYOUTS:
            known = ", ".join(map(repr, _LAYOUTS))
            raise PluginError(f"OperatorSpec {self.name!r}: layout is {self.layout!r}, expected {known} or None")
        if self.family is not None and not _FAMILY.fullmatch(str(self.family)):
            raise PluginError(
                f"OperatorSpec {self.name!r}: family is {self.family!r}, expected letters, digits, '_', '.' and '-', "
                "starting with a letter, or None"
            )

    def attrs(self, given: Mapping[str, Any]) -> Attrs:
        """Complete and check attributes; OptionError names an unknown or missing one."""
        if isinstance(given, Attrs) and list(given) == [attribute.name for attribute in self.attributes]:
            return given
        items: dict[str, Any] = {}
        for attribute in self.attributes:
            value = given.get(attribute.name, attribute.default)
            if value is REQUIRED:
                raise OptionError(f"operator {self.name} needs attribute {attribute.name!r}")
            items[attribute.name] = value
        if not items.keys() >= given.keys():
            unknown = next(name for name in given if name not in items)
            known = ", ".join(items) or "none"
            raise OptionError(f"operator {self.name} has no attribute {unknown!r}; it has: {known}")
        return Attrs(items)

    def check_inputs(self, count: int) -> None:
        """UnsupportedOp when `count` inputs cannot be this operator's."""
        least, most = _input_counts(self.inputs)
        if count < least or (most is not None and count > most):
            raise UnsupportedOp(f"operator {self.name} takes inputs ({', '.join(self.inputs)}), got {count}")


@functools.lru_cache(maxsize=1024)
def _input_counts(names: tuple[str, ...]) -> tuple[int, int | None]:
    """How many inputs an operator takes at least and at most; None is any number."""
    least = sum(1 for name in names if not name.endswith(("?", "*")))
    return least, None if names and names[-1].endswith("*") else len(names)


def operands_of(types: Sequence[ValueType | None], names: Sequence[str]) -> list[Operand | None]:
    """Fresh operands for input types; absent inputs stay None, sizes (`DimType`) have no operand."""
    operands: list[Operand | None] = []
    for number, type_ in enumerate(types):
        name = names[min(number, len(names) - 1)].rstrip("?*") if names else "x"
        is_tensor = isinstance(type_, TensorType)
        operands.append(Operand(name, type_.dtype, type_.shape) if is_tensor else None)  # type: ignore[union-attr]  # narrowed
    return operands


def define_node(op: OperatorSpec, types: Sequence[ValueType | None], attrs: Attrs) -> Definition | None:
    """The definition of `op` on inputs of these types; None when it has none. `inputs` line up with the node's."""
    if op.define is None:
        return None
    return op.define(*operands_of(types, op.inputs), **attrs)


def infer_types(
    node_op: OperatorSpec, types: Sequence[ValueType | None], definition: Definition | None, attrs: Attrs
) -> tuple[ValueType, ...]:
    """Output types of an operator, contiguous, on the device of the first tensor input."""
    if node_op.infer is not None:
        return tuple(node_op.infer(types, attrs))
    if definition is None:
        raise UnsupportedOp(f"operator {node_op.name} has neither a definition nor a type rule")
    device = next((t.device for t in types if isinstance(t, TensorType)), "cpu")
    return tuple(TensorType(o.dtype, o.shape, device=device) for o in definition.outputs)


def is_foreign(node: Node) -> bool:
    """Whether a node is a step of the host program: control flow, numpy on the host, or the frontend's framework."""
    return node.op.kind in FOREIGN_KINDS


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # What plug-ins add.
        return import_module("hidet.plugins.attributes").find("hidet.graph.operator", name)
