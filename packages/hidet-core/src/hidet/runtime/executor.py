"""Running a host program: tables, arenas, outputs, and the call of each segment.

The memory plan is shared; each call takes an `Execution` (a table and an arena) of its shape class from a free list and
returns it, so that concurrent calls never share temporaries and results of earlier calls stay valid.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dims
from hidet.dims import Dim
from hidet.errors import LaunchError
from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.plan import ALIGNMENT, plan_memory
from hidet.runtime.program import ForeignCall, HostProgram, Segment, TensorSlot

SegmentFunction = Callable[[int], object]


@dataclass(slots=True)
class Execution:
    """What one running call owns: the slot table and the arena its temporaries lie in."""

    table: Any
    address: int
    arena: Any


@dataclass(frozen=True, slots=True)
class ResolvedOutput:
    """An output with sizes known: how to allocate and view it. Bytes None: it lies in another output or an input."""

    position: int
    slot: int
    nbytes: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype_name: str
    is_whole: bool


class ShapeClass:
    """Everything about a program that depends on the values of its symbols alone."""

    def __init__(self, program: HostProgram, values: Sequence[int]) -> None:
        names = [source.name for source in program.symbols]
        self.bindings = dict(zip(names, values, strict=True))
        resolve: Callable[[Dim], int] = lambda dim: dims.evaluate(dim, self.bindings)  # noqa: E731
        sizes = [max(resolve(b.nbytes), 0) for b in program.buffers]
        plan = plan_memory([(b.first, b.last) for b in program.buffers], sizes)
        self.arena_bytes = plan.nbytes
        self.buffer_slots = [(b.slot, offset) for b, offset in zip(program.buffers, plan.offsets, strict=True)]
        self.size_slots = [(slot, resolve(dim)) for slot, dim in program.sizes]
        self.outputs = [self._output(n, program, resolve) for n in range(len(program.outputs))]
        self.free: list[Execution] = []

    @staticmethod
    def _output(number: int, program: HostProgram, resolve: Callable[[Dim], int]) -> ResolvedOutput | int:
        """The output with sizes known; a plain integer for a size result."""
        output = program.outputs[number]
        if output.tensor is None:
            assert output.size is not None
            return resolve(output.size)
        shape = tuple(resolve(d) for d in output.tensor.shape)
        strides = tuple(resolve(d) for d in output.tensor.strides)
        nbytes = None if output.storage is None else max(resolve(output.storage), 0)
        offset = resolve(output.tensor.offset)
        used = 0 if 0 in shape else sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        whole = nbytes is not None and offset == 0 and used * output.tensor.dtype.nbytes == nbytes
        return ResolvedOutput(
            number, output.tensor.slot, nbytes, shape, strides, offset, output.tensor.dtype.name, whole
        )

    def take(self, slots: int, constants: Sequence[tuple[int, int]]) -> Execution:
        """An execution nobody uses: a freed one, or a new one with its fixed slots filled."""
        try:
            return self.free.pop()
        except IndexError:
            pass
        table = (ctypes.c_int64 * max(slots, 1))()
        arena = ctypes.create_string_buffer(self.arena_bytes + ALIGNMENT) if self.arena_bytes else None
        base = 0 if arena is None else -(-ctypes.addressof(arena) // ALIGNMENT) * ALIGNMENT
        for slot, offset in self.buffer_slots:
            table[slot] = base + offset
        for slot, value in (*self.size_slots, *constants):
            table[slot] = value
        return Execution(table, ctypes.addressof(table), arena)


class Executor:
    """Runs one host program on tensors of one framework at a time."""

    def __init__(
        self,
        program: HostProgram,
        functions: Mapping[str, SegmentFunction],
        constants: Sequence[tuple[int, int, object]],
    ) -> None:
        self.program = program
        self._functions = functions
        self._constants = [(slot, address) for slot, address, _ in constants]
        self._keep_alive = [owner for _, _, owner in constants]
        self._classes: dict[tuple[int, ...], ShapeClass] = {}
        self._tensor_inputs = [(n, i.tensor.slot) for n, i in enumerate(program.inputs) if i.tensor is not None]
        self._steps: list[tuple[SegmentFunction | None, ForeignCall | None]] = [
            (functions[s.symbol], None) if isinstance(s, Segment) else (None, s) for s in program.steps
        ]
        self._returned = [n for n, o in enumerate(program.outputs) if o.mutates is None]

    def run(self, arguments: Sequence[Any], adapter: TensorAdapter, prepared: Sequence[int] = ()) -> list[Any]:
        """Run once. `prepared` are addresses of the prepared slots, in order."""
        program = self.program
        values = tuple(
            arguments[s.input] if s.axis is None else arguments[s.input].shape[s.axis] for s in program.symbols
        )
        shapes = self._classes.get(values)
        if shapes is None:
            shapes = self._classes[values] = ShapeClass(program, [int(v) for v in values])
        execution = shapes.take(program.slots, self._constants)
        table = execution.table
        pointer = adapter.pointer
        for number, slot in self._tensor_inputs:
            table[slot] = pointer(arguments[number])
        for slot, address in zip(program.prepared, prepared, strict=True):
            table[slot] = address
        results, storages = self._allocate(shapes, table, adapter)
        for function, foreign in self._steps:
            if function is not None:
                function(execution.address)
            else:
                assert foreign is not None
                self._call_foreign(foreign, table, shapes, adapter)
        shapes.free.append(execution)
        del storages
        return results

    def _allocate(self, shapes: ShapeClass, table: Any, adapter: TensorAdapter) -> tuple[list[Any], dict[int, Any]]:
        results: list[Any] = []
        storages: dict[int, Any] = {}
        for number in self._returned:
            output = shapes.outputs[number]
            if isinstance(output, int):
                results.append(output)
                continue
            if output.is_whole:
                tensor, address = adapter.empty(output.shape, output.strides, output.dtype_name)
                table[output.slot] = address
                storages[number] = tensor
                results.append(tensor)
                continue
            shared = self.program.outputs[number].same_as
            if shared is None:
                assert output.nbytes is not None
                storages[number], table[output.slot] = adapter.empty((output.nbytes,), (1,), "uint8")
            owner = storages[number if shared is None else shared]
            results.append(adapter.view(owner, output.shape, output.strides, output.offset, output.dtype_name))
        return results, storages

    def _call_foreign(self, step: ForeignCall, table: Any, shapes: ShapeClass, adapter: TensorAdapter) -> None:
        resolve: Callable[[Dim], int] = lambda dim: dims.evaluate(dim, shapes.bindings)  # noqa: E731

        def tensor(slot: TensorSlot) -> Any:
            address = table[slot.slot] + resolve(slot.offset) * slot.dtype.nbytes
            shape = tuple(map(resolve, slot.shape))
            return adapter.wrap(address, shape, tuple(map(resolve, slot.strides)), slot.dtype.name)

        arguments = [a if a is None else tensor(a) if isinstance(a, TensorSlot) else resolve(a) for a in step.arguments]
        produced = step.call(*arguments)
        produced = produced if isinstance(produced, tuple | list) else (produced,)
        if len(produced) < len(step.results):
            raise LaunchError(f"node {step.name} returned {len(produced)} results, expected {len(step.results)}")
        for slot, value in zip(step.results, produced, strict=False):
            adapter.copy(tensor(slot), value)
