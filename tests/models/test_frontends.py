"""The check of front-ends' models on a device: files hold what was written, and what is wrong is named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hidet
from hidet.graph.printer import constant_table, print_graph

from .frontends import StoredModel, check_file, read_model, write_model


@pytest.fixture
def model() -> StoredModel:
    """A product with a weight, for batches of two sizes, with its results."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((32, 8)).astype(np.float16)
    x = hidet.symbol(["n", 32], dtype="float16")
    graph = hidet.trace_from(hidet.ops.matmul(x, hidet.asarray(weight)), [x]).graph
    samples = []
    for batch in (1, 3):
        given = rng.standard_normal((batch, 32)).astype(np.float16)
        reference = given.astype(np.float64) @ weight.astype(np.float64)
        samples.append(([given], [reference.astype(np.float16)], [reference]))
    return StoredModel(print_graph(graph), b"", constant_table(graph), samples)


def test_a_file_holds_what_was_written(tmp_path: Path, model: StoredModel) -> None:
    write_model(tmp_path / "model.npz", model)
    read = read_model(tmp_path / "model.npz")
    assert (read.graph, read.program, list(read.constants)) == (model.graph, b"", list(model.constants))
    assert [inputs[0].shape for inputs, _, _ in read.samples] == [(1, 32), (3, 32)]


def test_a_model_that_computes_its_results_is_right(tmp_path: Path, model: StoredModel) -> None:
    write_model(tmp_path / "model.npz", model)
    report = check_file(tmp_path / "model.npz", "cpu", compile_only=False)
    assert report.problems == [] and len(report.verdicts) == 1 and report.counts.scheduled == 1


def test_a_model_that_computes_something_else_is_wrong(tmp_path: Path, model: StoredModel) -> None:
    other = {name: 2 * array for name, array in model.constants.items()}
    write_model(tmp_path / "model.npz", replace(model, constants=other))
    (problem,) = check_file(tmp_path / "model.npz", "cpu", compile_only=False).problems
    assert "WRONG" in problem and "rms error" in problem
