"""Python processes of the benchmarks: what one prints, or its last words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def run_python(arguments: Sequence[str], limit: float, environment: Mapping[str, str] | None = None) -> str:
    """What this Python prints when it runs with `arguments` at the root of the repository.

    limit: seconds after which the process is given up. environment: None is this process's. Raises RuntimeError with
    the process's last words when it fails.
    """
    try:
        child = subprocess.run(
            [sys.executable, *arguments],
            cwd=_ROOT,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no result after {limit:.0f} s") from error
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines() or [f"exit status {child.returncode}"]
        raise RuntimeError(lines[-1])
    return child.stdout
