"""Where and with what a measurement was made."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

_PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "onnxruntime",
    "llvmlite",
    "hidet-core",
    "hidet-cpu",
    "hidet-cuda",
    "hidet-gpu",
    "hidet-script",
    "hidet-torch",
)


def describe_environment() -> dict[str, Any]:
    """Return the device, the versions of everything that matters, and the date, ready for JSON."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": {
            "cpu": cpu_name(),
            "gpu": gpu_name(),
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "system": platform.platform(),
        },
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }


def cpu_name() -> str:
    """Return the processor's name as the system gives it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpu_name() -> str | None:
    """Return the name of the first CUDA device as torch gives it; None without one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
