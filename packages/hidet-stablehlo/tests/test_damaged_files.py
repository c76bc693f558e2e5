"""Damaged files give clean errors or right runs, never a crash, a hang or memory without end."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import numpy as np
import pytest

from hidet.context import make_context
from hidet.driver import compile_graph
from hidet.errors import HidetError
from hidet.graph import Graph
from hidet.stablehlo import from_stablehlo
from hidet.stablehlo.exported import read_exported
from hidet.testing.interpret import interpret

DATA = Path(__file__).parent / "data"
COUNT = int(os.environ.get("HIDET_MUTANTS", "60"))
"""Mutants of each file; 250 make a thousand of all."""


def mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes changed, cut out, doubled or exchanged."""
    held = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(held)))
        kind = rng.integers(0, 5)
        if kind == 0:
            held[at] = int(rng.integers(0, 256))
        elif kind == 1:
            held[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 2:
            del held[at : at + int(rng.integers(1, 9))]
        elif kind == 3:
            held[at:at] = held[at : at + int(rng.integers(1, 9))]
        else:
            held[at : at + 4] = b"\xff" * 4
        held = held or bytearray(b"\0")
    return bytes(held)


def require_right_run(graph: Graph) -> None:
    """What the compiled graph computes is what its operators mean."""
    rng = np.random.default_rng(0)
    arrays = []
    for value in graph.inputs:
        shape = tuple(extent if isinstance(extent, int) else 3 for extent in value.tensor.shape)
        numbers = rng.standard_normal(shape) if value.tensor.dtype.is_float else rng.integers(0, 2, shape)
        arrays.append(numbers.astype(value.tensor.dtype.numpy()))
    made = compile_graph(graph, make_context("cpu"))(*arrays)
    expected = interpret(graph, arrays)
    for ours, wanted in zip(made if isinstance(made, tuple) else (made,), expected, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("file", ["perceptron.jax", "perceptron.mlirbc", "mixed.mlirbc", "mixed.mlir"])
def test_mutants_are_refused_or_compute_what_they_say(file) -> None:
    data = (DATA / file).read_bytes()
    rng = np.random.default_rng(len(data))
    refused = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(COUNT):
        start = time.monotonic()
        try:
            imported = from_stablehlo(mutant(data, rng))
            require_right_run(imported.graph)
        except HidetError:
            refused += 1
        assert time.monotonic() - start < 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert refused > COUNT // 10 and grown < 1 << 20, (refused, grown)


@pytest.mark.parametrize("file", ["perceptron.jax", "perceptron.mlirbc", "mixed.mlir"])
def test_files_that_end_early_are_refused(file) -> None:
    data = (DATA / file).read_bytes()
    for size in range(0, len(data) - 64, max(1, len(data) // 40)):
        with pytest.raises(HidetError):
            from_stablehlo(data[:size] if size else b"\0")


def test_an_export_whose_tables_lie_elsewhere_is_refused() -> None:
    data = bytearray((DATA / "perceptron.jax").read_bytes())
    for at in range(64):
        changed = bytearray(data)
        changed[at] ^= 0xFF
        try:
            read_exported(memoryview(changed))
        except HidetError:
            continue
