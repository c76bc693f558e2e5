"""From a scheduled graph to a host program: slots for every tensor and size, and thread IR for its segments.

A segment is a run of tasks without a foreign step between them; its code loads addresses and sizes from the table and
invokes each task's entry function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hidet import dtypes
from hidet.dims import Dim, DimExpr
from hidet.errors import CompileError
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import DimType, TensorType
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Invoke, Stmt
from hidet.ir.types import PointerType, element_dtype
from hidet.runtime.program import (
    ArenaBuffer,
    ConstantSlot,
    ForeignCall,
    HostProgram,
    InputSlot,
    OutputSlot,
    PositionCheck,
    Segment,
    Step,
    TensorSlot,
    program_sizes,
)
from hidet.schedule.group import alias_root
from hidet.schedule.select import ScheduledGraph, ScheduledTask
from hidet.schedule.symbol_sources import require_sources, symbol_sources
from hidet.schedule.task import ForeignStep


@dataclass(frozen=True, slots=True, eq=False)
class HostCode:
    """A host program, the modules of its segments by symbol, and the constants in slot order."""

    program: HostProgram
    modules: Mapping[str, Module]
    constants: tuple[Value, ...]


def build_host_program(scheduled: ScheduledGraph, name: str, *, split_tasks: bool = False) -> HostCode:
    """Lay out the table and write the segments' code. `name` prefixes the segments' symbols.

    split_tasks: one segment a task, so that each can be timed on its own.
    """
    return _Builder(scheduled, name, split_tasks).run()


class _Builder:
    def __init__(self, scheduled: ScheduledGraph, name: str, split_tasks: bool) -> None:
        self.scheduled = scheduled
        self.split_tasks = split_tasks
        self.graph: Graph = scheduled.task_graph.graph
        self.types = scheduled.task_graph.types
        self.aliases = scheduled.task_graph.aliases
        self.name = name
        self.count = 0
        self.slot_of: dict[Value, int] = {}
        self.size_slots: dict[Dim, int] = {}
        self.lifetimes: dict[int, tuple[int, int]] = {}
        self.buffer_bytes: dict[int, Dim] = {}
        self.position = 0

    def run(self) -> HostCode:
        graph = self.graph
        inputs = [self._input(value) for value in graph.inputs]
        prepared = [self._new_slot(v) for v in (graph.prepare.results if graph.prepare else ())]
        constants = [ConstantSlot(self._new_slot(v), n) for n, v in enumerate(graph.constants)]
        outputs = self._outputs()
        self._share_outputs()
        steps: list[Step] = []
        modules: dict[str, Module] = {}
        pending: list[ScheduledTask] = []
        for step in (*self.scheduled.steps, None):
            task = step if isinstance(step, ScheduledTask) else None
            if task is not None:
                pending.append(task)
                if not self.split_tasks:
                    continue
            if pending:
                symbol = f"{self.name}_segment{len(modules)}"
                modules[symbol] = self._segment(symbol, pending)
                steps.append(Segment(symbol))
                pending = []
            if isinstance(step, ForeignStep):
                steps.append(self._foreign(step))
        buffers = [ArenaBuffer(s, n, *self.lifetimes.get(s, (0, 0))) for s, n in self.buffer_bytes.items()]
        sources = symbol_sources([value.type for value in graph.inputs])
        program = HostProgram(
            slots=self.count,
            inputs=tuple(inputs),
            outputs=outputs,
            steps=tuple(steps),
            buffers=tuple(buffers),
            sizes=tuple((slot, dim) for dim, slot in self.size_slots.items()),
            constants=tuple(constants),
            symbols=tuple(sources.values()),
            prepared=tuple(prepared),
        )
        require_sources(program_sizes(program), sources, {value.name: value.type for value in graph.inputs})
        return HostCode(program, modules, tuple(graph.constants))

    # --- slots -----------------------------------------------------------------------------------------------------

    def _new_slot(self, value: Value | None = None) -> int:
        self.count += 1
        if value is not None:
            self.slot_of[value] = self.count - 1
        return self.count - 1

    def _input(self, value: Value) -> InputSlot:
        if isinstance(value.type, DimType):
            return InputSlot(None, size=value.type.dim, name=value.name)
        self._new_slot(value)
        return InputSlot(self._tensor(value), value in self.graph.parameters, name=value.name)

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
            self.buffer_bytes[known] = storage_bytes(self.types[value])
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
            root = self._root(value)
            if number in mutated:
                self.slot_of[value] = self.slot_of[self.graph.inputs[mutated[number]]]
                slots.append(OutputSlot(self._tensor(value), mutates=mutated[number]))
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

    def _segment(self, symbol: str, tasks: list[ScheduledTask]) -> Module:
        table = Var("table", PointerType(dtypes.i64))
        stmts: list[Stmt] = []
        for scheduled in tasks:
            task, program = scheduled.task, scheduled.program
            for output, source in task.in_place:
                self._share(self._root(task.outputs[output].value), self._root(task.inputs[source].value))
            arguments: list[Expr] = [self._address(t.value, table) for t in (*task.inputs, *task.outputs)]
            entry_params = program.module.function(program.module.entry).params[len(arguments) :]
            for nbytes, param in zip(program.scratch, entry_params, strict=False):
                slot = self._new_slot()
                self.buffer_bytes[slot] = nbytes
                self.lifetimes[slot] = (self.position, self.position)
                arguments.append(_pointer(table, slot, element_dtype(param.type)))
            arguments += [self._size(dim, table) for dim in program.arguments]
            stmts.append(Invoke(scheduled.symbol, tuple(arguments)))
            self.position += 1
        entry = Function(symbol, (table,), build.seq(stmts), kind="host")
        return Module((entry,), symbol, tuple(dict.fromkeys(s.symbol for s in tasks)))

    def _address(self, value: Value, table: Var) -> Expr:
        tensor = self._tensor(value)
        base = _pointer(table, tensor.slot, tensor.dtype)
        return base if tensor.offset == 0 else build.address(base, self._size(tensor.offset, table))

    def _size(self, dim: Dim, table: Var) -> Expr:
        if not isinstance(dim, DimExpr):
            return build.index(dim)
        slot = self.size_slots.get(dim)
        if slot is None:
            slot = self.size_slots[dim] = self._new_slot()
        return build.load(table, slot)

    def _foreign(self, step: ForeignStep) -> ForeignCall | PositionCheck:
        node = step.node
        if node.op.kind == "check":
            return self._check(node)
        assert node.op.call is not None
        arguments: list[TensorSlot | Dim | None] = []
        for value in node.inputs:
            if value is None:
                arguments.append(None)
            elif isinstance(value.type, DimType):
                arguments.append(value.type.dim)
            else:
                arguments.append(self._tensor(value))
        results = tuple(self._tensor(v) for v in node.outputs if isinstance(v.type, TensorType))
        self.position += 1
        return ForeignCall(node.op.name, node.op.call, tuple(arguments), results, is_host=node.op.kind == "host")

    def _check(self, node: Node) -> PositionCheck:
        worst = self._tensor(node.values[0])
        self.position += 1
        extent, count, wraps, what = (node.attrs[name] for name in ("extent", "count", "wraps", "what"))
        return PositionCheck(worst, extent, count, wraps, what, "" if node.loc is None else str(node.loc))


def _pointer(table: Var, slot: int, dtype: dtypes.DType) -> Expr:
    return Bitcast(build.load(table, slot), PointerType(dtype))


def storage_bytes(type_: TensorType) -> Dim:
    """Bytes from the first to the last element of a tensor, at least enough for its element count."""
    if any(n == 0 for n in type_.shape):
        return 0
    last: Dim = 1
    for extent, stride in zip(type_.shape, type_.element_strides, strict=True):
        last = last + (extent - 1) * stride
    return last * type_.dtype.nbytes
