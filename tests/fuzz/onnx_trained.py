"""Run damaged files of trained ONNX models, and compare what runs with ONNX Runtime.

    python -m tests.fuzz.onnx_trained --count 2000 --jobs 2

The models are those of the package silero-vad: branches, an LSTM, a Fourier transform, and weights of a megabyte. Ends
are those of `tests.fuzz.onnx_models`; a run that ONNX Runtime refuses is good, one with other numbers is not.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.children import End, ends, in_batches, report, serve
from tests.fuzz.mutate import mutated
from tests.fuzz.onnx_models import MAX_ELEMENTS

MODULE = "tests.fuzz.onnx_trained"
SHAPES: Mapping[str, Sequence[int]] = {"input": (1, 576), "state": (2, 1, 128)}
SAMPLE_RATE = 16000
COMPARED = "compared with ONNX Runtime"


def trained_models() -> list[Path]:
    """The files; none where the package is not installed."""
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        return []
    return sorted((Path(found.origin).parent / "data").glob("*.onnx"))


def end_of(base: str, path: str, seed: int) -> End:
    """Damage a model, and run what comes of it in this process."""
    from hidet.errors import HidetError
    from hidet.onnx.runner import OnnxRunner

    data = mutated(Path(path).read_bytes(), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runner = OnnxRunner(data)
            inputs = {name: input_for(name, type_, seed) for name, type_ in runner.input_types.items()}
            if any(array is None for array in inputs.values()):
                return End(base, seed, "ran", "imported; its inputs are not tensors of a size that is tried")
            outputs = runner(inputs)
        except HidetError as error:
            return End(base, seed, "refused", type(error).__name__)
        except BaseException as error:  # noqa: BLE001 - every other exception is what this looks for
            return End(base, seed, "uncaught", f"{type(error).__name__}: {str(error)[:200]}")
        return End(base, seed, *judged(data, inputs, outputs))


def input_for(name: str, type_: Any, seed: int) -> np.ndarray[Any, Any] | None:
    """A signal, a state or a sample rate, of the type and the fixed extents that the damaged model declares."""
    if type_ is None or type_.dtype.name == "string":
        return None
    usual = SHAPES.get(name, ())
    usual = usual if len(usual) == len(type_.shape) else [3] * len(type_.shape)
    shape = [mine if isinstance(mine, int) else other for mine, other in zip(type_.shape, usual, strict=True)]
    if np.prod([float(extent) for extent in shape]) > MAX_ELEMENTS:
        return None
    dtype = np.dtype(type_.dtype.numpy())
    if dtype.kind in "iu" and dtype.itemsize > 1:
        return np.full(shape, SAMPLE_RATE, dtype)
    return (0.1 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def judged(data: bytes, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> tuple[str, str]:
    """("ran", `COMPARED`) where ONNX Runtime gives the same; ("ran", the reason) where it gives nothing."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        expected = session.run(None, dict(inputs))
    except Exception as error:  # noqa: BLE001 - where it fails there is nothing to compare with
        return "ran", f"no reference: {type(error).__name__}"
    for number, (mine, theirs) in enumerate(zip(outputs, expected, strict=True)):
        if not isinstance(theirs, np.ndarray) or theirs.dtype.kind not in "biuf":
            continue
        if mine.shape != theirs.shape:
            return "wrong", f"output {number} has shape {list(mine.shape)}, that of ONNX Runtime {list(theirs.shape)}"
        if not np.allclose(mine.astype(np.float64), theirs.astype(np.float64), rtol=1e-3, atol=1e-4, equal_nan=True):
            return "wrong", f"output {number} differs from that of ONNX Runtime"
    return "ran", COMPARED


def run(count: int, jobs: int, first_seed: int = 0) -> list[End]:
    """Damage and run `count` models, `jobs` at a time."""
    files = trained_models()
    seeds = range(first_seed, first_seed + count) if files else ()
    return ends(MODULE, [(files[n % len(files)].stem, str(files[n % len(files)]), n) for n in seeds], jobs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(end_of)
        return
    jobs, seed = arguments.jobs, arguments.seed
    batches = list(in_batches(arguments.count, lambda many, first: run(many, jobs, seed + first)))
    print(f"{sum(end.detail == COMPARED for batch in batches for end in batch)} {COMPARED}")
    report(batches)


if __name__ == "__main__":
    main()
