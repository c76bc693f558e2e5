"""How long the first call of a model takes in a fresh process with empty caches.

The measured process is this module run with `python -m`; it prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class FirstCall:
    """Seconds from handing over the model to having the first result; imports of torch and the model's own are before.

    total: all of it. ours: the phases that hidet counts as its own (graph, build, compile, load), None for other
    systems; the rest of `total` is torch's dynamo and AOT.
    """

    total: float
    ours: Mapping[str, float] | None


def measure_first_call(system: str, model: str, threads: int, limit: float = 900.0) -> FirstCall:
    """Start a process that compiles `model` with `system`, its caches in a new folder, and return its times.

    limit: seconds after which the process is given up. Raises RuntimeError with the process's last words when it
    fails.
    """
    with tempfile.TemporaryDirectory(prefix="hidet-first-call-") as caches:
        result = run_measured("benchmarks.first_call", [system, model, str(threads)], caches, limit)
    return FirstCall(total=result["total"], ours=result["ours"])


def run_measured(module: str, arguments: Sequence[str], caches: str, limit: float) -> dict[str, Any]:
    """Run a module in a process with all caches of compilers in the folder `caches`, and return the JSON that it prints
    last.

    limit: seconds after which the process is given up. Raises RuntimeError with the process's last words when it
    fails.
    """
    environment = {
        **os.environ,
        "HIDET_CACHE_DIR": f"{caches}/hidet",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "TRITON_CACHE_DIR": f"{caches}/triton",
    }
    # Installers leave bytecode behind; a process that may not write it would compile all of torch anew each time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        child = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=_ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no result after {limit:.0f} s") from error
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines() or [f"exit status {child.returncode}"]
        raise RuntimeError(lines[-1])
    result: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    return result


def _measure_here(system: str, name: str, threads: int) -> FirstCall:
    import torch

    from tests.models.compile_reports import collected_reports, sum_phases

    from .models import MODELS
    from .systems import prepare

    torch.set_num_threads(threads)
    entry = MODELS[name]
    model, inputs = entry.build(), entry.inputs()
    with torch.no_grad():
        if system == "onnxruntime":
            prepare(system, name, model, inputs, threads)  # the export is not part of the first call
        with collected_reports(system == "hidet") as reports:
            start = time.perf_counter()
            prepare(system, name, model, inputs, threads)()
            total = time.perf_counter() - start
    return FirstCall(total=total, ours=sum_phases(reports) if system == "hidet" else None)


def _main(system: str, name: str, threads: str) -> None:
    result = _measure_here(system, name, int(threads))
    print(json.dumps({"total": result.total, "ours": None if result.ours is None else dict(result.ours)}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
