"""How long the first call of a model takes in a fresh process: with empty caches, with those that the process before it
left, and where torch's caching precompile has kept what dynamo made of the model as well.

The measured process is this module run with `python -m`; it prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.processes import run_python

CACHES = ("empty", "warm", "precompiled")
"""What a process finds: no cache, what the process before it left, and that of torch's caching precompile as well."""

_PRECOMPILE = "TORCH_CACHING_PRECOMPILE"


@dataclass(frozen=True, slots=True)
class FirstCall:
    """Seconds from handing over the model to having the first result; imports of torch and the model's own are before.

    cache: one of `CACHES`. total: all of it. ours: the phases that hidet counts as its own (graph, build, compile,
    load), None for other systems; the rest of `total` is torch's dynamo and AOT.
    """

    cache: str
    total: float
    ours: Mapping[str, float] | None


def measure_first_calls(system: str, model: str, threads: int, limit: float = 900.0) -> list[FirstCall]:
    """Start a process for each of `CACHES` that compiles `model` with `system`, and return their times. Systems that
    keep nothing, or nothing for torch's caching precompile, are measured without it.

    limit: seconds after which a process is given up. Raises RuntimeError with a process's last words when it fails.
    """
    count = {"onnxruntime": 1, "hidet": 3, "inductor": 3}.get(system, 2)
    results = measure_in_caches("benchmarks.first_call", [system, model, str(threads)], limit, CACHES[:count])
    return [FirstCall(cache, **result) for cache, result in results.items()]


def measure_in_caches(
    module: str, arguments: Sequence[str], limit: float, caches: Sequence[str] = CACHES
) -> dict[str, dict[str, Any]]:
    """What `run_measured` gives for processes after each other, by what of `CACHES` they find in a new folder."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="hidet-first-call-") as folder:
        for cache in caches:
            if cache == "precompiled":
                run_measured(module, arguments, folder, limit, cache)  # writes what the next one finds
            found[cache] = run_measured(module, arguments, folder, limit, cache)
    return found


def keep_precompiled() -> None:
    """Let torch write what it has compiled, where the process is to keep that."""
    if os.environ.get(_PRECOMPILE) == "1":
        import torch

        torch.compiler.save_cache_artifacts()


def run_measured(module: str, arguments: Sequence[str], folder: str, limit: float, cache: str) -> dict[str, Any]:
    """Run a module in a process with all caches of compilers in `folder`, and return the JSON that it prints last.

    limit: seconds after which the process is given up. Raises RuntimeError with the process's last words when it
    fails.
    """
    environment = {
        **os.environ,
        "HIDET_CACHE_DIR": f"{folder}/hidet",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        _PRECOMPILE: "1" if cache == "precompiled" else "0",
    }
    # Installers leave bytecode behind; a process that may not write it would compile all of torch anew each time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    printed = run_python(["-m", module, *arguments], limit, environment)
    result: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return result


def _measure_here(system: str, name: str, threads: int) -> dict[str, Any]:
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
    keep_precompiled()
    return {"total": total, "ours": dict(sum_phases(reports)) if system == "hidet" else None}


if __name__ == "__main__":
    print(json.dumps(_measure_here(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
