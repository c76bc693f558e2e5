"""ONNX's own backend tests, run by us: every test of `onnx.backend.test`, compared as that package compares.

python -m hidet.onnx.suite [--jobs N] [--part K/N] [--pattern REGEX] [--device DEVICE] [--report FILE]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

import onnx
from hidet.dtypes import from_numpy
from hidet.errors import HidetError
from hidet.onnx import backend
from hidet.operators.random import SPECS
from hidet.testing import suite
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

KINDS = ("node", "real", "simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test.

    result: "pass"; "wrong" (outputs differ); "rounding" (they differ by more than onnx allows, but see `is_rounding`);
    "random" (they differ, but the model draws random numbers, and the recorded outputs are another generator's); or
    "fail" (an error). reason: the first line of the error. operators: those of the model. classes: how many nodes were
    compiled in which way. seconds: of wall time.
    """

    name: str
    result: str
    reason: str
    operators: tuple[str, ...]
    classes: dict[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Selection(suite.Selection):
    """Tests of the suite, and the device they run on, as `onnx.backend.base.Device` writes it."""

    device: str = "CPU"


def cases() -> Iterator[Any]:
    """Every test case of the installed onnx package."""
    with warnings.catch_warnings():
        # Some cases compute their expected outputs by dividing by zero.
        warnings.simplefilter("ignore")
        for kind in KINDS:
            yield from load_model_tests(kind=kind)


def run_case(case: Any, device: str) -> Outcome:
    """Run one test case as `onnx.backend.test.runner` does: prepare the model, run every data set, compare."""
    start = time.perf_counter()
    operators: tuple[str, ...] = ()
    classes: dict[str, int] = {}
    result, reason, differ = "pass", "", ""
    prepared: Any = None
    try:
        model, data_sets = load_case(case)
        operators = tuple(sorted({node.op_type for node in model.graph.node}))
        prepared = backend.prepare(model, device)
        for inputs, expected in data_sets:
            outputs = prepared.run(inputs)
            differ = "wrong" if differ == "wrong" or not is_rounding(expected, outputs) else "rounding"
            Runner.assert_similar_outputs(expected, outputs, case.rtol, case.atol)
        classes = _classes(prepared.runner)
    except AssertionError as error:
        result, reason = differ or "wrong", _first_line(error)
        if _draws_numbers(prepared.runner):
            result = "random"
    except HidetError as error:
        result, reason = "fail", f"{type(error).__name__}: {_first_line(error)}"
    except Exception as error:  # noqa: BLE001 - a crash is an outcome, too
        result, reason = "fail", f"uncaught {type(error).__name__}: {_first_line(error)}"
    return Outcome(case.name, result, reason, operators, classes, time.perf_counter() - start)


def is_rounding(expected: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether every element is within 4 units of the element type, times the largest element, of the recorded one.

    onnx compares each element by itself: where the exact value is 0, what it records is the rounding error of numpy.
    """
    if len(expected) != len(outputs):
        return False
    for recorded, found in zip(expected, outputs, strict=True):
        if not (isinstance(found, numpy.ndarray) and isinstance(recorded, numpy.ndarray)):
            return False
        if found.shape != recorded.shape or found.dtype != recorded.dtype:
            return False
        if not from_numpy(found.dtype).is_float:
            if not numpy.array_equal(found, recorded):
                return False
            continue
        a, b = found.astype(numpy.float64), recorded.astype(numpy.float64)
        finite = numpy.isfinite(b)
        if not numpy.array_equal(a[~finite], b[~finite], equal_nan=True) or not numpy.isfinite(a[finite]).all():
            return False
        unit = from_numpy(found.dtype).unit_roundoff
        if finite.any() and numpy.abs(a - b)[finite].max() > 4 * unit * numpy.abs(b[finite]).max():
            return False
    return True


def _draws_numbers(runner: Any) -> bool:
    drawing = {spec.name for spec in SPECS}
    return any(node.op.name in drawing for graph in runner.graphs for node in graph.nodes)


def _classes(runner: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for compiled in runner.compiled:
        for name, count in asdict(compiled.report().nodes).items():
            if isinstance(count, int):
                found[name] = found.get(name, 0) + count
    return found


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300]


def load_case(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """The model of a case, and its inputs and expected outputs as arrays.

    Models without recorded outputs (the "light" ones) are compared with those in the package beside them.
    """
    if case.model is not None:
        sets = [
            ([_array(item) for item in inputs], [_array(item) for item in outputs])
            for inputs, outputs in case.data_sets
        ]
        return case.model, sets
    if case.model_dir is None:
        return _light_case(case)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    found = []
    for data in sorted(folder.glob("test_data_set*")):
        inputs = _files(data, "input", [entry.type for entry in model.graph.input])
        outputs = _files(data, "output", [entry.type for entry in model.graph.output])
        found.append((inputs, outputs))
    return model, found


def _light_case(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """A model of known architecture with constant weights; its input is a ramp, its output lies beside it."""
    path = Path(onnx.__file__).parent / Path(case.url).relative_to("onnx")
    model = onnx.load(path)
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = []
    for entry in model.graph.input:
        if entry.name not in held:
            shape = tuple(dim.dim_value or 1 for dim in entry.type.tensor_type.shape.dim)
            count = int(numpy.prod(shape))
            inputs.append((numpy.arange(count).reshape(shape) / count).astype(numpy.float32))
    outputs = [
        numpy_helper.to_array(onnx.load_tensor(f"{path.with_suffix('')}_output_{number}.pb"))
        for number in range(len(model.graph.output))
    ]
    return model, [(inputs, outputs)]


def _files(folder: Path, prefix: str, types: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    readers = {
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    }
    for number in range(len(list(folder.glob(f"{prefix}_*.pb")))):
        proto, convert = readers[types[number].WhichOneof("value")]
        message = proto()
        message.ParseFromString((folder / f"{prefix}_{number}.pb").read_bytes())
        found.append(convert(message))
    return found


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
