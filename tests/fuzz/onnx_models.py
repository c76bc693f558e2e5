"""Run damaged ONNX models in processes of their own and say how each ended.

    python -m tests.fuzz.onnx_models --count 2000 --jobs 2

Good ends are an error of hidet, and a run: one whose outputs agree with `onnx.reference` where that runs the model,
too. Bad ends are other exceptions, wrong outputs, death of the process, and more time or memory than
`tests.fuzz.children` grants.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.fuzz.children import End, ends, in_batches, report, serve
from tests.fuzz.mutate import mutated

MODULE = "tests.fuzz.onnx_models"

MAX_ELEMENTS = 1 << 20
"""Inputs are not made larger than this, whatever a model declares."""


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


def run(count: int, jobs: int, first_seed: int = 0) -> list[End]:
    """Damage and run `count` models, `jobs` at a time."""
    bases = base_models(200)
    work = [(*bases[seed % len(bases)], seed) for seed in range(first_seed, first_seed + count)]
    return ends(MODULE, [(base, model.hex(), seed) for base, model, seed in work], jobs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(lambda base, model, seed: end_of(base, bytes.fromhex(model), seed))
        return
    jobs, seed = arguments.jobs, arguments.seed
    report(in_batches(arguments.count, lambda many, first: run(many, jobs, seed + first)))


if __name__ == "__main__":
    main()
