"""What tasks find in the slot table of a call: their tensors as arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet import dims
from hidet.ir.expr import Const, Expr, Load
from hidet.ir.func import Module
from hidet.ir.stmt import Invoke
from hidet.ir.visit import walk
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.frame import span
from hidet.schedule.task import Task, TaskTensor

if TYPE_CHECKING:
    from hidet.target import DeviceMemory

Array = np.ndarray[Any, np.dtype[Any]]
_NUMPY = NumpyAdapter()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor is: the slot with an address, and the elements to skip there: a number, or the slot with it."""

    slot: int
    offset: int = 0
    offset_slot: int | None = None


def places_of(segment: Module, task: Task) -> list[Place]:
    """Where a segment of one task finds the task's inputs and outputs, in order."""
    (call,) = (node for node in walk(segment.function(segment.entry).body) if isinstance(node, Invoke))
    caller = segment.function(call.function)
    given = {param.name: argument for param, argument in zip(caller.params, call.arguments, strict=True)}
    slots = [(name, argument) for name, argument in given.items() if name.endswith("_slot")]
    found = []
    for name, argument in slots[: len(task.inputs) + len(task.outputs)]:
        offset = given.get(f"{name.removesuffix('_slot')}_offset")
        if offset is None or isinstance(offset, Const):
            found.append(Place(_number(argument), 0 if offset is None else _number(offset)))
        else:
            assert isinstance(offset, Load)
            found.append(Place(_number(argument), offset_slot=_number(offset.indices[0])))
    return found


def _number(value: Expr) -> int:
    assert isinstance(value, Const)
    return int(value.value)  # type: ignore[arg-type]  # an integer


def read_tensor(
    table: int,
    place: Place,
    tensor: TaskTensor,
    sizes: Mapping[str, int],
    memory: DeviceMemory | None = None,
    stream: tuple[int, ...] = (),
) -> Array:
    """A copy of a tensor. table: the address of the slot table. memory: of the device that the tensor is on."""
    slots = ctypes.cast(table, ctypes.POINTER(ctypes.c_int64))
    shape = [dims.evaluate(extent, sizes) for extent in tensor.type.shape]
    strides = [dims.evaluate(stride, sizes) for stride in tensor.type.element_strides]
    dtype = tensor.type.dtype
    skipped = place.offset if place.offset_slot is None else slots[place.offset_slot]
    address = slots[place.slot] + skipped * dtype.nbytes
    if memory is None:
        return np.array(_NUMPY.wrap(address, shape, strides, dtype.name), order="C")
    array, start = _NUMPY.empty(shape, strides, dtype.name)
    if array.size:
        memory.in_stream(*stream).to_host(start, address, span(shape, strides) * dtype.nbytes)
    return np.array(array, order="C")
