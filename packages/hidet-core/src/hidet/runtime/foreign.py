"""Nodes that run in the frontend's framework, or in numpy on the host."""

from __future__ import annotations

from typing import Any

import numpy

from hidet.errors import LaunchError
from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.frame import Frame, address_in, row_major, span, tell
from hidet.runtime.program import ForeignCall, ObjectSlot, TensorSlot
from hidet.runtime.shape_class import ResolvedArgument, ResolvedCall, ResolvedTensor

_NUMPY = NumpyAdapter()


def call_foreign(step: ForeignCall, call: ResolvedCall, frame: Frame) -> None:
    """Run a node of the frontend's framework, or of numpy; numpy is given copies of what lies on a device."""
    on_host = step.is_host and bool(frame.stream)
    adapter = _NUMPY if step.is_host else frame.adapter

    def wrap(tensor: ResolvedTensor) -> Any:
        if on_host:
            return _fetched(tensor, frame)
        return adapter.wrap(address_in(tensor, frame), tensor.shape, tensor.strides, tensor.dtype_name)

    def given(argument: ResolvedArgument) -> Any:
        if isinstance(argument, ResolvedTensor):
            return wrap(argument)
        return frame.objects[argument.slot] if isinstance(argument, ObjectSlot) else argument

    attrs = {} if step.attrs is None else {"attrs": step.attrs}
    produced = step.call(*map(given, call.arguments), **attrs)
    produced = (
        produced if isinstance(produced, tuple) or (isinstance(produced, list) and not step.is_host) else [produced]
    )
    if len(produced) < len(step.results):
        raise LaunchError(f"node {step.name} returned {len(produced)} results, expected {len(step.results)}")
    if not step.is_made:
        for result, value in zip(call.results, produced, strict=False):
            if tuple(value.shape) != tuple(result.shape):
                got, expected = list(value.shape), list(result.shape)
                raise LaunchError(f"node {step.name} returned a tensor of shape {got}, expected {expected}")
            target = wrap(result)
            adapter.copy(target, value)
            if on_host:
                frame.memory.from_host(address_in(result, frame), _NUMPY.pointer(target), _bytes(result))
        return
    for place, value in zip(step.results, produced, strict=False):
        frame.keep(place, value if isinstance(place, ObjectSlot) else _settled(step, place, value, frame))
    tell(step.name, step.results, step.defines, produced, frame)


def _fetched(tensor: ResolvedTensor, frame: Frame) -> Any:
    """A copy of a tensor of a device as a numpy array, with what lies between its elements."""
    array, address = _NUMPY.empty(tensor.shape, tensor.strides, tensor.dtype_name)
    frame.memory.to_host(address, address_in(tensor, frame), _bytes(tensor))
    return array


def _bytes(tensor: ResolvedTensor) -> int:
    """From its first element to the end of its last one."""
    return span(tensor.shape, tensor.strides) * tensor.itemsize


def _settled(step: ForeignCall, place: TensorSlot, value: Any, frame: Frame) -> Any:
    """A tensor of the frame's library, laid out row-major in memory of its own, with the elements of `value`."""
    shape = tuple(value.shape)
    made, address = frame.adapter.empty(shape, row_major(shape), place.dtype.name)
    if not step.is_host:
        frame.adapter.copy(made, value)
        return made
    array = numpy.ascontiguousarray(value)
    if array.dtype != place.dtype.numpy():
        raise LaunchError(f"node {step.name} made an array of {array.dtype}, expected {place.dtype.name}")
    frame.memory.from_host(address, array.ctypes.data, array.nbytes)
    return made
