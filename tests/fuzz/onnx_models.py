"""Run damaged ONNX models in processes of their own and say how each ended.

    python -m tests.fuzz.onnx_models --count 2000 --jobs 2

Good ends are an error of hidet, and a run: one whose outputs agree with `onnx.reference` where that runs the model,
too. Bad ends are other exceptions, wrong outputs, death of the process, more than LIMIT_SECONDS or LIMIT_BYTES.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.fuzz.mutate import mutated

LIMIT_SECONDS = 60.0
LIMIT_BYTES = 6 << 30
"""Of address space: what the process maps of Python, numpy and LLVM, and far more than any of the models needs."""

MAX_ELEMENTS = 1 << 20
"""Inputs are not made larger than this, whatever a model declares."""

GOOD = ("refused", "ran")


@dataclass(frozen=True, slots=True)
class End:
    """How one damaged model ended: in one of GOOD, or "uncaught", "wrong", "died", "hung". seed: makes it again."""

    base: str
    seed: int
    kind: str
    detail: str

    @property
    def is_good(self) -> bool:
        """Whether that may happen."""
        return self.kind in GOOD


def base_models(count: int) -> list[tuple[str, bytes]]:
    """Small models of ONNX's backend tests, spread over all operators, the same for equal counts."""
    from hidet.onnx.suite.cases import cases

    found: dict[str, bytes] = {}
    for case in cases():
        model = case.model
        if model is None and case.model_dir is not None:
            model = onnx.load(Path(case.model_dir) / "model.onnx")
        if model is not None and model.ByteSize() < 20_000:
            found.setdefault(case.name, model.SerializeToString())
    names = sorted(found)
    random.Random(0).shuffle(names)
    return [(name, found[name]) for name in names[:count]]


# --- one model -------------------------------------------------------------------------------------------------------


def end_of(base: str, model: bytes, seed: int) -> End:
    """Damage a model, and run what comes of it in this process."""
    from hidet.errors import HidetError
    from hidet.onnx.runner import OnnxRunner

    data = mutated(model, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runner = OnnxRunner(data)
            inputs = {name: _input(type_, seed) for name, type_ in runner.input_types.items()}
            if any(array is None for array in inputs.values()):
                return End(base, seed, "ran", "imported; its inputs are not tensors of known size")
            outputs = runner(inputs)
        except HidetError as error:
            return End(base, seed, "refused", type(error).__name__)
        except BaseException as error:  # noqa: BLE001 - every other exception is what this looks for
            return End(base, seed, "uncaught", f"{type(error).__name__}: {str(error)[:200]}")
        return End(base, seed, *_judged(data, inputs, outputs))


def _input(type_: Any, seed: int) -> np.ndarray[Any, Any] | None:
    if type_ is None:
        return None
    shape = [extent if isinstance(extent, int) else 3 for extent in type_.shape]
    if np.prod([float(extent) for extent in shape]) > MAX_ELEMENTS or type_.dtype.name == "string":
        return None
    source = np.random.default_rng(seed)
    dtype = np.dtype(type_.dtype.numpy())
    if dtype.kind in "iub":
        return source.integers(0, 3, shape).astype(dtype)
    # Whole numbers: where an operator takes a float for a count or a position, the reference does not cut it off.
    return source.integers(1 if not shape else -4, 5, shape).astype(dtype)


def _judged(data: bytes, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> tuple[str, str]:
    """("ran", "") where the reference gives the same, or gives nothing."""
    from onnx.reference import ReferenceEvaluator

    if any(array.dtype.kind == "V" for array in inputs.values()):
        return "ran", "no reference: it leaves out zero points of small floats"
    try:
        with np.errstate(all="ignore"):
            expected = ReferenceEvaluator(onnx.load_from_string(data)).run(None, dict(inputs))
    except BaseException as error:  # noqa: BLE001 - where the reference fails there is nothing to compare with
        return "ran", f"no reference: {type(error).__name__}"
    for number, (mine, theirs) in enumerate(zip(outputs, expected, strict=False)):
        if not isinstance(theirs, np.ndarray) or theirs.dtype.kind not in "biuf":
            continue
        if mine.shape != theirs.shape:
            return "wrong", f"output {number} has shape {list(mine.shape)}, the reference {list(theirs.shape)}"
        if not np.allclose(mine.astype(np.float64), theirs.astype(np.float64), rtol=1e-3, atol=1e-4, equal_nan=True):
            return "wrong", f"output {number} differs from the reference"
    return "ran", ""


# --- many models -----------------------------------------------------------------------------------------------------


def ends(count: int, jobs: int, first_seed: int = 0) -> Iterator[End]:
    """Damage and run `count` models, `jobs` at a time."""
    bases = base_models(200)
    work = [(*bases[seed % len(bases)], seed) for seed in range(first_seed, first_seed + count)]
    results: list[End] = []
    threads = [threading.Thread(target=lambda part=work[job::jobs]: results.extend(_run(part))) for job in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from sorted(results, key=lambda end: end.seed)


def _run(work: Sequence[tuple[str, bytes, int]]) -> Iterator[End]:
    """Run models in a child process; one that dies or hangs is replaced."""
    child: _Child | None = None
    for base, model, seed in work:
        child = child or _Child()
        end = child.end_of(base, model, seed)
        if end.kind in ("died", "hung"):
            child = None
        yield end
    if child is not None:
        child.stop()


class _Child:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.fuzz.onnx_models", "--child"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def end_of(self, base: str, model: bytes, seed: int) -> End:
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(LIMIT_SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps([base, model.hex(), seed]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        is_late = not timer.is_alive()
        timer.cancel()
        if line:
            return End(**json.loads(line))
        code = self.stop()
        return End(base, seed, "hung" if is_late else "died", f"exit code {code}")

    def stop(self) -> int:
        """End the process; its exit code."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        return code


def _child() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    for line in sys.stdin:
        base, model, seed = json.loads(line)
        print(json.dumps(asdict(end_of(base, bytes.fromhex(model), seed))), flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, dest="first_seed")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _child()
        return
    found = list(ends(arguments.count, arguments.jobs, arguments.first_seed))
    for end in found:
        if not end.is_good:
            print(f"{end.kind:9}seed {end.seed} of {end.base}: {end.detail}")
    print(", ".join(f"{count} {kind}" for kind, count in Counter(end.kind for end in found).most_common()))
    if not all(end.is_good for end in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
