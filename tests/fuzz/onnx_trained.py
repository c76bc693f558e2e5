"""Run damaged files of trained ONNX models, and compare what runs with ONNX Runtime.

    python -m tests.fuzz.onnx_trained --count 2000 --jobs 2

The models are those of packages that bring them, as far as they are installed: `TRAINED`. Ends are those of
`tests.fuzz.onnx_models`; a run that ONNX Runtime refuses is good, one with other numbers is not.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.children import End, ends, in_batches, report, serve
from tests.fuzz.mutate import mutated
from tests.fuzz.onnx_models import MAX_ELEMENTS

MODULE = "tests.fuzz.onnx_trained"
COMPARED = "compared with ONNX Runtime"


@dataclass(frozen=True, slots=True)
class Trained:
    """Models of a package. files: a pattern. shapes: of inputs by name. whole: what elements of integer inputs are."""

    package: str
    files: str
    shapes: Mapping[str, Sequence[int]]
    whole: int = 0


TRAINED = (
    # Voices: branches, an LSTM, a Fourier transform, and weights of a megabyte. The integer is the sample rate.
    Trained("silero_vad", "data/*.onnx", {"input": (1, 576), "state": (2, 1, 128)}, whole=16000),
    # PP-OCRv4 finds text, reads it with attention, and turns it: 4.7, 10.9 and 0.6 MB, images of any size.
    Trained("rapidocr_onnxruntime", "models/*det*.onnx", {"x": (1, 3, 32, 64)}),
    Trained("rapidocr_onnxruntime", "models/*rec*.onnx", {"x": (1, 3, 48, 32)}),
    Trained("rapidocr_onnxruntime", "models/*cls*.onnx", {"x": (1, 3, 48, 96)}),
    # Types of files by their bytes: 3.2 MB, one-hot positions.
    Trained("magika", "models/*/*.onnx", {"bytes": (1, 2048)}, whole=65),
    # Notes of music: a filter bank of 248 nodes.
    Trained("basic_pitch", "saved_models/*/*.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
)


def trained_models(of: Trained | None = None) -> list[Path]:
    """The files of one kind, or of all; none where its package is not installed."""
    if of is None:
        return [path for each in TRAINED for path in trained_models(each)]
    found = importlib.util.find_spec(of.package)
    if found is None or found.origin is None:
        return []
    return sorted(Path(found.origin).parent.glob(of.files))


def kind_of(path: str) -> Trained:
    """What is known of a file of `trained_models`."""
    return next(each for each in TRAINED if Path(path) in trained_models(each))


def end_of(base: str, path: str, seed: int) -> End:
    """Damage a model, and run what comes of it in this process."""
    from hidet.errors import HidetError
    from hidet.onnx.runner import OnnxRunner

    data, kind = mutated(Path(path).read_bytes(), seed), kind_of(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runner = OnnxRunner(data)
            inputs = {name: input_for(kind, name, type_, seed) for name, type_ in runner.input_types.items()}
            if any(array is None for array in inputs.values()):
                return End(base, seed, "ran", "imported; its inputs are not tensors of a size that is tried")
            outputs = runner(inputs)
        except HidetError as error:
            return End(base, seed, "refused", type(error).__name__)
        except BaseException as error:  # noqa: BLE001 - every other exception is what this looks for
            return End(base, seed, "uncaught", f"{type(error).__name__}: {str(error)[:200]}")
        return End(base, seed, *judged(data, inputs, outputs))


def input_for(kind: Trained, name: str, type_: Any, seed: int) -> np.ndarray[Any, Any] | None:
    """An input for the damaged model, of the type and the fixed extents that it declares; None for types of others."""
    if type_ is None or type_.dtype.name == "string":
        return None
    usual = kind.shapes.get(name, ())
    usual = usual if len(usual) == len(type_.shape) else [3] * len(type_.shape)
    shape = [mine if isinstance(mine, int) else other for mine, other in zip(type_.shape, usual, strict=True)]
    if np.prod([float(extent) for extent in shape]) > MAX_ELEMENTS:
        return None
    dtype = np.dtype(type_.dtype.numpy())
    if dtype.kind in "iu" and dtype.itemsize > 1:
        return np.full(shape, kind.whole, dtype)
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


def run(count: int, jobs: int, first_seed: int = 0, packages: Sequence[str] = ()) -> list[End]:
    """Damage and run `count` models, `jobs` at a time. packages: whose; all that are installed where there are none."""
    files = [path for each in TRAINED if each.package in packages or not packages for path in trained_models(each)]
    seeds = range(first_seed, first_seed + count) if files else ()
    return ends(MODULE, [(files[n % len(files)].stem, str(files[n % len(files)]), n) for n in seeds], jobs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="*", default=[], choices=sorted({each.package for each in TRAINED}))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(end_of)
        return
    jobs, seed, packages = arguments.jobs, arguments.seed, arguments.packages
    compared = 0

    def counted(many: int, first: int) -> list[End]:
        nonlocal compared
        found = run(many, jobs, seed + first, packages)
        compared += sum(end.detail == COMPARED for end in found)
        return found

    try:
        report(in_batches(arguments.count, counted))
    finally:
        print(f"{compared} {COMPARED}")


if __name__ == "__main__":
    main()
