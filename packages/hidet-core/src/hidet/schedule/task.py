"""A task: one anchor operator (or none) with the operators fused into its reads and writes; the unit of scheduling."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hidet.compute.definition import Compute, Definition, Operand
from hidet.dims import Dim
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType
from hidet.records import record

if TYPE_CHECKING:
    from hidet.loc import Loc
    from hidet.schedule.claims import Claim


class TaskKey:
    """What decides a task's program: operators, attributes, wiring and types. Equal keys mean equal programs.

    parts: deep tuples; the hash is found once, because every step from fusion on asks for it.
    """

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[object, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskKey) and self.parts == other.parts


@record
class TaskTensor:
    """A tensor that a task reads or writes: the graph's value, its type with strides, its name in definitions.

    is_aligned: whether it is known to start at a multiple of 16 bytes, as what the compiled program allocates does, and
        inputs that a call would copy (`hidet.target.Target`).
    is_weight: whether it is a parameter or a constant, or prepared of them, and no step of the graph writes it: kernels
    may read it while what was launched before them still runs.
    """

    value: Value
    type: TensorType
    operand: Operand
    is_aligned: bool = False
    is_weight: bool = False


@record
class Task:
    """One fusion group.

    nodes: the graph nodes it computes, in order.
    inputs, outputs: tensors in memory.
    anchor: the node that is scheduled by a rule; None when all nodes are injective.
    prologues: one an anchor input: how that input is computed from the task's inputs; None where the anchor reads a
        task input as it is (or the optional input is absent).
    anchor_inputs: one an anchor input: the task input it reads directly; None where there is a prologue (or nothing).
    epilogues: one an output: its value from the anchor's outputs and the task's inputs. Without fused operators this
        is the identity on an anchor output.
    in_place: pairs (output, input) that share memory: the anchor overwrites parts of that input and nothing else.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[TaskTensor, ...]
    outputs: tuple[TaskTensor, ...]
    anchor: Node | None
    prologues: tuple[Compute | None, ...]
    anchor_inputs: tuple[TaskTensor | None, ...]
    epilogues: tuple[Compute, ...]
    key: TaskKey
    in_place: tuple[tuple[int, int], ...] = ()

    @property
    def loc(self) -> Loc | None:
        """Where the anchor, or the last node, stands in the user's model."""
        return (self.anchor or self.nodes[-1]).loc

    @property
    def op_name(self) -> str:
        """The anchor operator's name; "elementwise" without an anchor."""
        return "elementwise" if self.anchor is None else self.anchor.op.name

    @property
    def summary(self) -> str:
        """The anchor, or "elementwise", with the types that it reads: "softmax(f32[8, 8])"."""
        values = [tensor.value for tensor in self.inputs] if self.anchor is None else self.anchor.values
        return f"{self.op_name}({', '.join(str(value.type) for value in values)})"

    @property
    def definition(self) -> Definition:
        """The anchor's definition. Only for tasks that have an anchor."""
        assert self.anchor is not None and self.anchor.definition is not None
        return self.anchor.definition

    @property
    def sources(self) -> Mapping[Operand, Operand | Compute]:
        """For each operand of the anchor's definition: the task's operand, or the prologue that computes it."""
        assert self.anchor is not None
        present = [
            prologue if tensor is None else tensor.operand
            for value, tensor, prologue in zip(self.anchor.inputs, self.anchor_inputs, self.prologues, strict=True)
            if value is not None
        ]
        pairs = zip(self.definition.inputs, present, strict=True)
        return {operand: source for operand, source in pairs if source is not None}

    @property
    def is_plain(self) -> bool:
        """Whether nothing is fused before or after the anchor."""
        return len(self.nodes) == 1


@record
class Alias:
    """A value that lies in the storage of `base`, `offset` elements after its start; its own type has the strides.

    Mostly a view; or a part of `base` that is written in place, before the rest of `base` is complete.
    """

    base: Value
    offset: Dim


@record
class ForeignStep:
    """A node that the compiler does not turn into code: run by the frontend's framework, or by numpy on the host."""

    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class TaskGraph:
    """A graph cut into tasks, in an order in which they can run.

    types: the final type, with strides, of every value that lies in memory. aliases: values that need no memory of
    their own. claims: the first rule that takes a task, of tasks for which fusion had to know it. cuts: why fusion did
    not join a node to what computes a value that it reads; where others joined them, they say nothing. aligned: inputs
    that a call has to copy where they do not begin at a multiple of 16 bytes.
    """

    graph: Graph
    steps: tuple[Task | ForeignStep, ...]
    types: Mapping[Value, TensorType]
    aliases: Mapping[Value, Alias]
    claims: Mapping[TaskKey, Claim] = field(default_factory=dict)
    cuts: Mapping[tuple[Value, Node], str] = field(default_factory=dict)
    aligned: Set[Value] = frozenset()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The steps that are tasks."""
        return tuple(step for step in self.steps if isinstance(step, Task))


def group_key(
    nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], types: Mapping[Value, Hashable]
) -> tuple[object, ...]:
    """What nodes say of a task's program: operators, attributes, wiring and types; see `TaskKey`.

    types: of inputs and outputs, or as much of them as counts.
    """
    numbers: dict[Value, int] = {value: position for position, value in enumerate(inputs)}
    parts: list[object] = []
    for node in nodes:
        parts.append((node.op.name, node.attrs, tuple([None if v is None else numbers[v] for v in node.inputs])))
        for value in node.outputs:
            numbers[value] = len(numbers)
    return (
        tuple(parts),
        tuple([types[value] for value in inputs]),
        tuple([(numbers[value], types[value]) for value in outputs]),
    )
