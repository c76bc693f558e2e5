"""Compiled control flow and sizes that depend on data."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hidet
from hidet.testing.control_graphs import control_cases

CASES = {case.name: case for case in control_cases()}


def results_of(compiled, inputs):
    results = compiled(*inputs)
    return results if isinstance(results, tuple) else (results,)


def check(compiled, case):
    for inputs, expected in case.calls:
        for result, wanted in zip(results_of(compiled, inputs), expected, strict=True):
            assert result.dtype == wanted.dtype and result.shape == wanted.shape
            np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiled_control_flow_gives_what_numpy_gives(case):
    compiled = hidet.compile(case.graph, target="cpu", options={"verify": True})
    check(compiled, case)
    check(compiled, case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_control_flow_is_saved_and_loaded(case, tmp_path):
    hidet.compile(case.graph, target="cpu").save(tmp_path / "graph.hidet")
    check(hidet.load(tmp_path / "graph.hidet"), case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_concurrent_calls_stay_right(case):
    compiled = hidet.compile(case.graph, target="cpu")
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(check, compiled, case) for _ in range(16)]:
            future.result()
