"""hidet's CUDA target, and what users need of a device without a framework: streams, events, arrays, memory.

Everything is imported at first use; importing this package loads neither the driver nor numpy.
"""

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.cuda.adapter import asarray, empty, zeros
    from hidet.cuda.arrays import DeviceArray
    from hidet.cuda.devices import (
        DeviceProperties,
        available,
        compute_capability,
        current_device,
        device,
        device_count,
        driver_version,
        memory_info,
        properties,
        set_device,
        synchronize,
    )
    from hidet.cuda.pool import MemoryStatistics, empty_cache, memory_statistics
    from hidet.cuda.raw_memory import free, malloc, memcpy, memset, profiler_start, profiler_stop
    from hidet.cuda.streams import Event, ExternalStream, Stream, current_stream, default_stream, stream
else:
    _MODULES = {
        "adapter": ("asarray", "empty", "zeros"),
        "arrays": ("DeviceArray",),
        "devices": (
            *("DeviceProperties", "available", "compute_capability", "current_device", "device", "device_count"),
            *("driver_version", "memory_info", "properties", "set_device", "synchronize"),
        ),
        "pool": ("MemoryStatistics", "empty_cache", "memory_statistics"),
        "raw_memory": ("free", "malloc", "memcpy", "memset", "profiler_start", "profiler_stop"),
        "streams": ("Event", "ExternalStream", "Stream", "current_stream", "default_stream", "stream"),
    }
    _LAZY = {name: module for module, names in _MODULES.items() for name in names}

    __getattr__, __dir__ = lazy_attributes(__name__, _LAZY)


__all__ = [
    "DeviceArray",
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "MemoryStatistics",
    "Stream",
    "asarray",
    "available",
    "compute_capability",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "driver_version",
    "empty",
    "empty_cache",
    "free",
    "malloc",
    "memcpy",
    "memory_info",
    "memory_statistics",
    "memset",
    "profiler_start",
    "profiler_stop",
    "properties",
    "set_device",
    "stream",
    "synchronize",
    "zeros",
]
