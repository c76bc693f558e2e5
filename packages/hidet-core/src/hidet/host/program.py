"""From a scheduled graph to a host program: slots for every tensor and size, and thread IR for its segments.

A segment is a run of tasks without a foreign step between them; `hidet.host.segment` writes its code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from hidet import dims
from hidet.dims import Dim, DimExpr, symbols
from hidet.errors import CompileError
from hidet.fusion.group import alias_root
from hidet.graph.control import defined_sizes, makes_results
from hidet.graph.graph import Graph, Node, Value, foreign_nodes
from hidet.graph.types import DimType, TensorType, is_host_value
from hidet.host.independent import Running, Uses, order_beside
from hidet.host.segment import Address, SegmentCode
from hidet.host.symbol_sources import require_sources, symbol_sources
from hidet.ir.func import Module
from hidet.runtime.program import (
    ArenaBuffer,
    Branch,
    ConstantSlot,
    ForeignCall,
    HostProgram,
    InputSlot,
    Loop,
    ObjectSlot,
    OutputSlot,
    Place,
    PositionCheck,
    ReadSizes,
    Segment,
    Step,
    SubProgram,
    SymbolSource,
    TensorSlot,
    defined_names,
    program_sizes,
)
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.task import ForeignStep, Task


@dataclass(frozen=True, slots=True, eq=False)
class HostCode:
    """A host program, the modules of its segments by symbol with what they are known by, and the constants in slot
    order."""

    program: HostProgram
    modules: Mapping[str, Module]
    digests: Mapping[str, str]
    constants: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class InnerProgram:
    """The program of a sub-graph. sizes: sizes of the graph around it that it takes after the sub-graph's inputs."""

    program: HostProgram
    sizes: tuple[Dim, ...]


def build_host_program(
    scheduled: ScheduledGraph,
    name: str,
    *,
    split_tasks: bool = False,
    overlaps: bool = False,
    inner: Mapping[Node, tuple[InnerProgram, ...]] | None = None,
    first_constant: int = 0,
) -> HostCode:
    """Lay out the table and write the segments' code. `name` prefixes the segments' symbols.

    split_tasks: one segment a task, so that each can be timed on its own. overlaps: whether the target runs kernels
    beside each other where it may: tasks of a segment that do not depend on those before them are told, and have memory
    of their own. inner: programs of the sub-graphs of control nodes, in order. first_constant: number of the graph's
    first constant in the store.
    """
    return _Builder(scheduled, name, split_tasks, overlaps, inner or {}, first_constant).run()


class _Builder:
    def __init__(
        self,
        scheduled: ScheduledGraph,
        name: str,
        split_tasks: bool,
        overlaps: bool,
        inner: Mapping[Node, tuple[InnerProgram, ...]],
        first_constant: int,
    ) -> None:
        self.inner = inner
        self.first_constant = first_constant
        self.scheduled = scheduled
        self.split_tasks = split_tasks
        self.overlaps = overlaps
        self.graph: Graph = scheduled.task_graph.graph
        self.types = scheduled.task_graph.types
        self.aliases = scheduled.task_graph.aliases
        self.name = name
        self.count = 0
        self.slot_of: dict[Value, int] = {}
        self.used_slots: set[int] = set()
        self.size_slots: dict[Dim, int] = {}
        self.lifetimes: dict[int, tuple[int, int]] = {}
        self.buffer_bytes: dict[int, Dim] = {}
        self.position = 0
        self.mutated = {self._root(self.graph.outputs[number]) for _, number in self.graph.mutates}
        self.passed: frozenset[int] = frozenset()
        self.made = {v for node in foreign_nodes(self.graph) if makes_results(node) for v in node.outputs}

    def run(self) -> HostCode:
        graph = self.graph
        self.passed = frozenset(self._new_slots([v for v in graph.inputs if not isinstance(v.type, DimType)]))
        prepared = self._new_slots(graph.prepare.results if graph.prepare else ())
        constants = [ConstantSlot(s, n) for n, s in enumerate(self._new_slots(graph.constants), self.first_constant)]
        stored = [*(graph.prepare.results if graph.prepare else ()), *graph.constants]
        outputs = self._outputs()
        self._share_outputs()
        steps: list[Step] = []
        segments: dict[str, SegmentCode] = {}
        pending: list[ScheduledTask] = []
        for step in (*self.scheduled.steps, None):
            task = step if isinstance(step, ScheduledTask) else None
            if task is not None:
                pending.append(task)
                if not self.split_tasks:
                    continue
            if pending:
                symbol = f"{self.name}_segment{len(segments)}"
                segments[symbol] = self._segment(symbol, pending)
                steps.append(Segment(symbol))
                pending = []
            if isinstance(step, ForeignStep):
                is_control = step.node.op.kind == "control"
                steps.append(self._control(step.node) if is_control else self._foreign(step.node))
                self.position += 1
        buffers = [ArenaBuffer(s, n, *self.lifetimes.get(s, (0, 0))) for s, n in self.buffer_bytes.items()]
        sources = symbol_sources([value.type for value in graph.inputs])
        program = HostProgram(
            slots=self.count,
            inputs=tuple([self._input(value) for value in graph.inputs]),
            outputs=outputs,
            steps=tuple(steps),
            buffers=tuple(buffers),
            sizes=tuple((slot, dim) for dim, slot in self.size_slots.items()),
            constants=tuple(constants),
            stored=tuple((self.slot_of[value], storage_bytes(self.types[value])) for value in stored),
            symbols=tuple(sources.values()),
            prepared=tuple(prepared),
            is_repeatable=not graph.mutates,
            asserted=() if graph.mutates else _asserted_parameters(graph),
            aligned=self._aligned(),
        )
        told = {*sources, *(name for step in steps for name in defined_names(step))}
        require_sources(program_sizes(program), told, {value.name: value.type for value in graph.inputs})
        modules = {symbol: code.module() for symbol, code in segments.items()}
        digests = {symbol: code.digest() for symbol, code in segments.items()}
        return HostCode(program, modules, digests, tuple(graph.constants))

    # --- slots -----------------------------------------------------------------------------------------------------

    def _new_slots(self, values: Collection[Value]) -> range:
        slots = range(self.count, self.count + len(values))
        self.slot_of.update(zip(values, slots, strict=True))
        self.count += len(values)
        return slots

    def _new_slot(self, value: Value | None = None) -> int:
        self.count += 1
        if value is not None:
            self.slot_of[value] = self.count - 1
        return self.count - 1

    def _input(self, value: Value) -> InputSlot:
        """What is known of an argument once all steps have taken their places."""
        type_ = value.type
        if isinstance(type_, DimType):
            return InputSlot(None, size=type_.dim, name=value.name)
        slot = self.slot_of[value]
        if not isinstance(type_, TensorType) or type_.dtype.is_host_only:
            return InputSlot(None, name=value.name, host=self._host(value))
        tensor = TensorSlot(slot, type_.dtype, type_.shape, type_.element_strides)
        is_parameter, is_used = value in self.graph.parameters, slot in self.used_slots
        return InputSlot(tensor, is_parameter, name=value.name, is_used=is_used)

    def _aligned(self) -> tuple[int, ...]:
        """Inputs that some task takes to be aligned."""
        if not self.scheduled.task_graph.aligned:
            return ()
        taken = {t.value for task in self.scheduled.task_graph.tasks for t in task.inputs if t.is_aligned}
        roots = {self._root(value) for value in taken} & self.scheduled.task_graph.aligned
        return tuple([number for number, value in enumerate(self.graph.inputs) if value in roots])

    def _tensor(self, value: Value) -> TensorSlot:
        type_ = self.types[value]
        alias = self.aliases.get(value)
        base, offset = (value, 0) if alias is None else (alias.base, alias.offset)
        return TensorSlot(self._slot(base), type_.dtype, type_.shape, type_.element_strides, offset)

    def _slot(self, value: Value) -> int:
        """The slot of a value with storage; a temporary gets arena memory at its first use."""
        known = self.slot_of.get(value)
        if known is None:
            known = self._new_slot(value)
            if value not in self.made:
                self.buffer_bytes[known] = storage_bytes(self.types[value])
        self.used_slots.add(known)
        if known in self.buffer_bytes:
            first, _ = self.lifetimes.get(known, (self.position, self.position))
            self.lifetimes[known] = (first, self.position)
        return known

    def _root(self, value: Value) -> Value:
        return alias_root(value, self.aliases)

    def _share(self, output: Value, source: Value) -> None:
        """Put `output` into the memory of `source`, unless it is there already."""
        if output not in self.slot_of:
            self.slot_of[output] = self._slot(source)

    def _share_outputs(self) -> None:
        """A temporary that a result of the call overwrites in place is computed in that result's memory."""
        for step in reversed(self.scheduled.steps):
            if isinstance(step, ScheduledTask):
                for output, source in step.task.in_place:
                    slot = self.slot_of.get(self._root(step.task.outputs[output].value))
                    if slot is not None:
                        self.slot_of.setdefault(self._root(step.task.inputs[source].value), slot)

    def _outputs(self) -> tuple[OutputSlot, ...]:
        slots: list[OutputSlot] = []
        first_use: dict[Value, int] = {}
        mutated = {output: source for source, output in self.graph.mutates}
        for number, value in enumerate(self.graph.outputs):
            if isinstance(value.type, DimType):
                slots.append(OutputSlot(None, size=value.type.dim))
                continue
            if is_host_value(value.type):
                slots.append(OutputSlot(None, host=self._host(value)))
                continue
            root = self._root(value)
            if number in mutated:
                self.slot_of[value] = self.slot_of[self.graph.inputs[mutated[number]]]
                slots.append(OutputSlot(self._tensor(value), mutates=mutated[number]))
            elif root in self.made:
                slots.append(OutputSlot(self._tensor(value), is_made=True))
            elif root in first_use:
                slots.append(OutputSlot(self._tensor(value), same_as=first_use[root]))
            elif root in self.slot_of:
                raise CompileError(
                    f"output %{value.name} shares memory with an input or constant; a copy node must stand between them"
                )
            else:
                self._new_slot(root)
                first_use[root] = number
                slots.append(OutputSlot(self._tensor(value), storage=storage_bytes(self.types[root])))
        return tuple(slots)

    # --- steps -----------------------------------------------------------------------------------------------------

    def _segment(self, symbol: str, tasks: list[ScheduledTask]) -> SegmentCode:
        code, running = SegmentCode(symbol, self._size_slot), Running[int]()
        for scheduled in order_beside(tasks, self._uses) if self.overlaps else tasks:
            task, program = scheduled.task, scheduled.program
            for output, source in task.in_place:
                self._share(self._root(task.outputs[output].value), self._root(task.inputs[source].value))
            addresses = [self._address(tensor.value) for tensor in (*task.inputs, *task.outputs)]
            for nbytes in program.scratch:
                slot = self._new_slot()
                self.buffer_bytes[slot] = nbytes
                self.lifetimes[slot] = (self.position, self.position)
                addresses.append((slot, 0))
            is_independent = self.overlaps and self._begins_beside(task, addresses, running)
            code.call(scheduled.symbol, program, addresses, is_independent=is_independent)
            self.position += 1
        return code

    def _begins_beside(self, task: Task, addresses: Sequence[Address], running: Running[int]) -> bool:
        """Whether the next task of a segment may run beside those before it, whose memory is then not given to it."""
        slots = [slot for slot, _ in addresses]
        read, written = frozenset(slots[: len(task.inputs)]), frozenset(slots[len(task.inputs) :])
        # What callers pass may lie in the same memory.
        is_exclusive = _has_effect(task) or not written.isdisjoint(self.passed)
        uses = Uses(read, written, is_exclusive)
        is_beside = running.allows(uses)
        if is_beside:
            self._keep_until_now(running.read | running.written)
        running.add(uses, is_beside=is_beside)
        return is_beside

    def _uses(self, scheduled: ScheduledTask) -> Uses[Value]:
        """What a task reads and writes, by the values whose storage that is."""
        task = scheduled.task
        read, written = (frozenset(self._root(t.value) for t in part) for part in (task.inputs, task.outputs))
        is_exclusive = bool(task.in_place) or _has_effect(task) or not written.isdisjoint(self.mutated)
        return Uses(read, written, is_exclusive)

    def _keep_until_now(self, slots: Set[int]) -> None:
        """Let buffers in these slots live up to the current position."""
        for slot in slots & self.buffer_bytes.keys():
            first, last = self.lifetimes[slot]
            self.lifetimes[slot] = (first, max(last, self.position))

    def _address(self, value: Value) -> Address:
        alias = self.aliases.get(value)
        return (self._slot(value), 0) if alias is None else (self._slot(alias.base), alias.offset)

    def _size_slot(self, dim: DimExpr) -> int:
        slot = self.size_slots.get(dim)
        if slot is None:
            slot = self.size_slots[dim] = self._new_slot()
        return slot

    def _host(self, value: Value) -> ObjectSlot:
        known = self.slot_of.get(value)
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        return ObjectSlot(self._new_slot(value) if known is None else known, shape)

    def _place(self, value: Value) -> Place:
        """Where a step finds a value."""
        if isinstance(value.type, DimType):
            return value.type.dim
        return self._host(value) if is_host_value(value.type) else self._tensor(value)

    def _results(self, node: Node) -> tuple[TensorSlot | ObjectSlot, ...]:
        """Where a step leaves its results. A size is known by its symbol, and goes nowhere."""
        is_tensor = [isinstance(v.type, TensorType) and not is_host_value(v.type) for v in node.outputs]
        return tuple(self._tensor(v) if t else self._host(v) for v, t in zip(node.outputs, is_tensor, strict=True))

    def _defines(self, node: Node) -> tuple[SymbolSource, ...]:
        """How the results of a node tell the symbols that it defines. CompileError for one that they do not tell."""
        sources = symbol_sources([value.type for value in node.outputs])
        wanted = [symbol.name for size in defined_sizes(node) for symbol in symbols(size)]
        missing = [name for name in wanted if name not in sources]
        if missing:
            raise CompileError(
                f"operator {node.op.name} defines the size {missing[0]}, which no extent of its results tells",
                loc=node.loc,
            )
        return tuple(sources[name] for name in wanted)

    def _foreign(self, node: Node) -> ForeignCall | PositionCheck:
        if node.op.kind == "check":
            return self._check(node)
        assert node.op.call is not None
        call, attrs = node.op.call, node.attrs if node.op.kind == "host" else None
        arguments = tuple(None if value is None else self._place(value) for value in node.inputs)
        if makes_results(node):
            results = self._results(node)
            return ForeignCall(node.op.name, call, arguments, results, attrs, True, self._defines(node))
        tensors = tuple(self._tensor(v) for v in node.outputs if isinstance(v.type, TensorType))
        return ForeignCall(node.op.name, call, arguments, tensors, attrs)

    def _check(self, node: Node) -> PositionCheck:
        worst = self._tensor(node.values[0])
        extent, count, wraps, what = (node.attrs[name] for name in ("extent", "count", "wraps", "what"))
        return PositionCheck(worst, extent, count, wraps, what, "" if node.loc is None else str(node.loc))

    def _control(self, node: Node) -> Step:
        if node.op.name == "read_sizes":
            (source,) = node.values
            told = tuple(symbol for size in node.attrs["defines"] for symbol in symbols(size))
            return ReadSizes(self._tensor(source), told)
        if node not in self.inner:
            raise CompileError(f"operator {node.op.name} has no program for its sub-graphs", loc=node.loc)
        name = node.op.name if node.loc is None else f"{node.op.name} at {node.loc}"
        programs, first = self.inner[node], node.inputs[0]
        if node.op.name == "if":
            assert first is not None
            then, otherwise = (self._sub(program, node.values[1:]) for program in programs)
            return Branch(name, self._tensor(first), then, otherwise, self._results(node), self._defines(node))
        limit: TensorSlot | Dim | None = node.attrs["count"] if first is None else self._tensor(first)
        condition = None if node.inputs[1] is None else self._tensor(node.inputs[1])
        values = [value for value in node.inputs[2:] if value is not None]
        # The number of the iteration has no place: the loop itself keeps it.
        body = self._sub(programs[0], values, before=(0,))
        tests, carried = node.attrs["tests"], node.attrs["carried"]
        return Loop(name, body, limit, condition, tests, carried, self._results(node), self._defines(node))

    def _sub(self, inner: InnerProgram, values: Sequence[Value], before: tuple[Place, ...] = ()) -> SubProgram:
        return SubProgram(inner.program, (*before, *map(self._place, values), *inner.sizes))


def _has_effect(task: Task) -> bool:
    """Whether a task does more than compute its results."""
    return any(node.op.has_effect for node in task.nodes)


def _asserted_parameters(graph: Graph) -> tuple[int, ...]:
    """Numbers of the parameters that operators with an effect depend on: `HostProgram.asserted`."""
    wanted = {value for node in graph.nodes if node.op.has_effect for value in node.values}
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.values)
    parameters = set(graph.parameters)
    return tuple(n for n, value in enumerate(graph.inputs) if value in parameters and value in wanted)


def storage_bytes(type_: TensorType) -> Dim:
    """Bytes from the first to the last element of a tensor, at least enough for its element count."""
    if 0 in type_.shape:
        return 0
    if type_.strides is None:
        return dims.product(type_.shape) * type_.dtype.nbytes
    return (1 + dims.last_place(type_.shape, type_.strides)) * type_.dtype.nbytes
