"""Arrays of other libraries on CUDA devices, by DLPack and version 3 of the CUDA array interface.

Work that the giving library has put into its stream is waited for by the taking library's stream, never by the host.
"""

from __future__ import annotations

from typing import Any

import numpy

from hidet.cuda.arrays import DeviceArray
from hidet.cuda.devices import Device, device_at
from hidet.cuda.dlpack import CUDA, MANAGED, take_capsule
from hidet.cuda.streams import LEGACY_STREAM, ExternalStream, current_stream, order_streams
from hidet.dtypes import from_numpy
from hidet.errors import LaunchError
from hidet.runtime.frame import row_major

_DEVICE_ORDINAL = 9  # CUpointer_attribute


def import_array(value: Any, device: Device) -> DeviceArray | None:
    """An array over the memory of another library's; None for a value that is not on a CUDA device.

    device: where one without elements is taken to be. Its library's work is waited for by the current stream.
    """
    if isinstance(value, DeviceArray):
        return value
    if hasattr(value, "__dlpack_device__"):
        kind, index = value.__dlpack_device__()
        if int(kind) not in (CUDA, MANAGED):
            return None
        on = device if index == device.index else device_at(int(index))
        return _from_dlpack(value, on)
    interface = getattr(value, "__cuda_array_interface__", None)
    return None if interface is None else _from_interface(value, interface, device)


def _from_dlpack(value: Any, device: Device) -> DeviceArray:
    found = take_capsule(value.__dlpack__(stream=current_stream(device).handle or LEGACY_STREAM))
    return DeviceArray(device, found.address, found.shape, found.strides, found.dtype, found.owner)


def _from_interface(value: Any, interface: dict[str, Any], device: Device) -> DeviceArray:
    if interface.get("mask") is not None:
        raise LaunchError(f"a {type(value).__name__} has a mask, which compiled code does not look at")
    address, is_readonly = interface["data"]
    kind = numpy.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    given = interface.get("strides")
    strides = row_major(shape) if given is None else tuple(stride // kind.itemsize for stride in given)
    if given is not None and any(stride % kind.itemsize for stride in given):
        raise LaunchError(f"strides {given} of a {type(value).__name__} are no multiples of {kind.itemsize} bytes")
    found = device.driver.number("cuPointerGetAttribute", _DEVICE_ORDINAL, address) if address else device.index
    if found != device.index:
        device = device_at(found)
    if interface.get("stream"):
        handle = interface["stream"]
        producer = ExternalStream(0 if handle == LEGACY_STREAM else handle, device)
        order_streams(current_stream(device), producer)
    return DeviceArray(device, address or 0, shape, strides, from_numpy(kind), value, not is_readonly)
