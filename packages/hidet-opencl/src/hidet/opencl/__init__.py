"""hidet's OpenCL target: GPUs of any vendor, and processors with an OpenCL runtime.

devices     what the platforms of this machine offer, and which one a target names
target      thread IR to OpenCL C to programs of the driver, and launches from compiled host code
codegen     OpenCL C as the printer of hidet-gpu takes it
memory      memory of devices that do not read the host's

Everything is imported at first use; importing this package loads no driver.
"""

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.opencl.memory import DeviceArray, asarray, release_memory
else:
    _LAZY = {"DeviceArray": "memory", "asarray": "memory", "release_memory": "memory"}

    __getattr__, __dir__ = lazy_attributes(__name__, _LAZY)

__all__ = ["DeviceArray", "asarray", "release_memory"]
