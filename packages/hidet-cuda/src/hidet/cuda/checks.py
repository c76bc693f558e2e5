"""What `hidet doctor` says of CUDA: NVIDIA's driver, its devices, and NVRTC, which compiles without either."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from hidet.cuda.arch import OLDEST
from hidet.cuda.devices import device_count, properties
from hidet.cuda.driver import OLDEST_VERSION, driver_library, driver_version_of, version_text
from hidet.cuda.nvrtc import compile_cubin, toolchain_version
from hidet.doctor import Check
from hidet.errors import HidetError
from hidet.gpu.codegen.source import KernelSource

_KERNEL = 'extern "C" __global__ void doctor(float *x) { x[threadIdx.x] *= 2.0f; }'
_INSTALL = "pip install --force-reinstall nvidia-cuda-nvrtc cuda-bindings, of one CUDA major version"


def list_devices() -> list[str]:
    """A line for each GPU; none without a driver. LaunchError where the driver is old or finds no device."""
    return [_describe(index) for index in range(device_count())] if driver_library() is not None else []


def _describe(index: int) -> str:
    found = properties(index)
    major, minor = found.capability
    return f"cuda:{index}: {found.name}, compute capability {major}.{minor}, {found.total_memory / 2**30:.0f} GiB"


def check_driver() -> Iterator[Check]:
    """The driver, and GPUs that are too old."""
    library = driver_library()
    if library is None:
        hint = "on a machine with an NVIDIA GPU install its driver; target='cuda:sm_90a' compiles without one"
        yield Check("cuda driver", "none", "NVIDIA's driver is not installed", hint)
        return
    version = driver_version_of(library)
    if version < OLDEST_VERSION:
        needed = f"CUDA {version_text(version)}, expected {version_text(OLDEST_VERSION)} or newer"
        yield Check("cuda driver", "fail", needed, "update NVIDIA's driver to 580 or newer")
        return
    yield Check("cuda driver", "ok", f"CUDA {version_text(version)}")
    for index in range(device_count()):
        major, minor = properties(index).capability
        if 10 * major + minor < OLDEST:
            needed = f"cuda:{index} has compute capability {major}.{minor}, expected {OLDEST / 10} or newer"
            yield Check("cuda driver", "warn", needed, "models stay on the CPU, or on another GPU")


def check_nvrtc() -> Iterator[Check]:
    """Whether NVRTC is there, compiles a kernel, and makes code that the driver loads."""
    start = time.perf_counter()
    try:
        version = toolchain_version()
        compile_cubin(KernelSource(_KERNEL, ()), f"sm_{OLDEST}")
    except HidetError as error:
        hint = "LD_LIBRARY_PATH may lead to another one; " + _INSTALL
        yield Check("nvrtc", "fail", error.message, hint)
        return
    seconds = time.perf_counter() - start
    yield Check("nvrtc", "ok", f"{version}, a kernel compiled for sm_{OLDEST} in {seconds:.1f} s")
    library, major = driver_library(), re.search(r"(\d+)\.", version)
    if library is not None and major is not None and int(major[1]) > driver_version_of(library) // 1000:
        needed = f"{version} makes code that the driver, CUDA {version_text(driver_version_of(library))}, does not load"
        yield Check("nvrtc", "fail", needed, "update the driver, or install the NVRTC of its major version")
