"""Running a host program: tables, arenas, outputs, and the call of each segment.

The memory plan is shared; each call takes an `Execution` (a table and an arena) of its shape class from a free list and
returns it, so that concurrent calls never share temporaries and results of earlier calls stay valid. There are no
locks: what threads share is replaced as a whole or changed by one operation of a built-in list.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hidet.errors import LaunchError
from hidet.graph.position import is_outside, position_error
from hidet.loc import Loc
from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.program import ForeignCall, HostProgram, PositionCheck, Segment
from hidet.runtime.shape_class import ResolvedCall, ResolvedCheck, ResolvedTensor, ShapeClass, SizeEvaluator
from hidet.runtime.symbol_values import symbol_reader

SegmentFunction = Callable[[int], object]

MAX_SHAPE_CLASSES = 8
"""Shape classes kept, with their arenas; beyond that the one used longest ago is dropped."""


class Executor:
    """Runs one host program on tensors of one framework at a time."""

    def __init__(
        self,
        program: HostProgram,
        functions: Mapping[str, SegmentFunction],
        constants: Sequence[tuple[int, int, object]],
    ) -> None:
        self.program = program
        self._constants = [(slot, address) for slot, address, _ in constants]
        self._keep_alive = [owner for _, _, owner in constants]
        self._classes: Mapping[tuple[int, ...], ShapeClass] = {}
        self._clock = itertools.count(1)
        self._latest: ShapeClass | None = None
        self._read_symbols = symbol_reader(program.symbols)
        self._evaluate_sizes = SizeEvaluator(program)
        self._tensor_inputs = [(n, i.tensor.slot) for n, i in enumerate(program.inputs) if i.tensor is not None]
        self._steps: list[Any] = [functions[s.symbol] if isinstance(s, Segment) else s for s in program.steps]
        self._returned = [n for n, o in enumerate(program.outputs) if o.mutates is None]

    @property
    def shape_classes(self) -> int:
        """How many shape classes are kept."""
        return len(self._classes)

    def run(self, arguments: Sequence[Any], adapter: TensorAdapter, prepared: Sequence[int] = ()) -> list[Any]:
        """Run once. `prepared` are addresses of the prepared slots, in order; the caller keeps their memory alive."""
        shapes = self._shape_class(self._read_symbols(arguments))
        execution = shapes.take(self.program.slots, self._constants)
        table = execution.table
        pointer = adapter.pointer
        for number, slot in self._tensor_inputs:
            table[slot] = pointer(arguments[number])
        for slot, address in zip(self.program.prepared, prepared, strict=True):
            table[slot] = address
        results, storages = self._allocate(shapes, table, adapter)
        for step, resolved in zip(self._steps, shapes.steps, strict=True):
            if resolved is None:
                step(execution.address)
            elif isinstance(resolved, ResolvedCheck):
                _check_positions(step, resolved, table)
            else:
                _call_foreign(step, resolved, table, adapter)
        shapes.free.append(execution)
        del storages
        return results

    def _shape_class(self, values: tuple[int, ...]) -> ShapeClass:
        shapes = self._classes.get(values)
        if shapes is None:
            shapes = ShapeClass(self.program, self._evaluate_sizes(values))
            shapes.used = next(self._clock)
            # A new mapping replaces the old one. Two threads may lose each other's entry, which costs time only.
            kept = sorted(self._classes.items(), key=lambda item: -item[1].used)[: MAX_SHAPE_CLASSES - 1]
            self._classes = {**dict(kept), values: shapes}
            self._latest = shapes
        elif shapes is not self._latest:
            shapes.used = next(self._clock)
            self._latest = shapes
        return shapes

    def _allocate(self, shapes: ShapeClass, table: Any, adapter: TensorAdapter) -> tuple[list[Any], dict[int, Any]]:
        """Memory for the results of a call, and what of it must stay alive while it runs."""
        results: list[Any] = []
        storages: dict[int, Any] = {}
        for number in self._returned:
            output = shapes.outputs[number]
            if isinstance(output, int):
                results.append(output)
                continue
            tensor = output.tensor
            if output.is_whole:
                made, table[tensor.slot] = adapter.empty(tensor.shape, tensor.strides, tensor.dtype_name)
                storages[number] = made
                results.append(made)
                continue
            shared = self.program.outputs[number].same_as
            if shared is None:
                assert output.nbytes is not None
                storages[number], table[tensor.slot] = adapter.empty((output.nbytes,), (1,), "uint8")
            owner = storages[number if shared is None else shared]
            results.append(adapter.view(owner, tensor.shape, tensor.strides, tensor.offset, tensor.dtype_name))
        return results, storages


def _call_foreign(step: ForeignCall, call: ResolvedCall, table: Any, adapter: TensorAdapter) -> None:
    def wrap(tensor: ResolvedTensor) -> Any:
        address = table[tensor.slot] + tensor.offset * tensor.itemsize
        return adapter.wrap(address, tensor.shape, tensor.strides, tensor.dtype_name)

    produced = step.call(*[wrap(a) if isinstance(a, ResolvedTensor) else a for a in call.arguments])
    produced = produced if isinstance(produced, tuple | list) else (produced,)
    if len(produced) < len(call.results):
        raise LaunchError(f"node {step.name} returned {len(produced)} results, expected {len(call.results)}")
    for result, value in zip(call.results, produced, strict=False):
        adapter.copy(wrap(result), value)


def _check_positions(step: PositionCheck, resolved: ResolvedCheck, table: Any) -> None:
    worst = ctypes.c_int64.from_address(table[resolved.slot] + resolved.offset).value
    if resolved.extent is not None and is_outside(worst, resolved.extent, step.wraps):
        loc = Loc(name=step.place) if step.place else None
        raise position_error(worst, resolved.extent, step.wraps, step.what, loc)


def constant_slots(program: HostProgram, arrays: Sequence[Any]) -> list[tuple[int, int, object]]:
    """(slot, address, array) of each constant of a program; `arrays` is the store that its constants index."""
    return [(c.slot, arrays[c.index].ctypes.data, arrays[c.index]) for c in program.constants]
