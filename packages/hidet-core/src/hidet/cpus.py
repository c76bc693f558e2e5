"""How many CPUs this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_cpus() -> int:
    """CPUs that this process may use: its affinity mask, further limited by the CPU quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        limit = count if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        limit = count
    return max(1, min(count, limit))
