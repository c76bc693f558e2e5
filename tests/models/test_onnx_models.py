"""ONNX models with open sizes are right at several sizes from one import."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hidet.testing.numerics import Sample, check_output

from .onnx_models import ONNX_MODELS, Arrays, OnnxModel
from .reference import run_reference


def _case(model: OnnxModel) -> object:
    return pytest.param(model, id=model.name, marks=() if model.smoke else pytest.mark.models)


@pytest.mark.parametrize("model", [_case(model) for model in ONNX_MODELS.values()])
@pytest.mark.thorough(every=3)
def test_one_import_is_right_at_several_sizes(model: OnnxModel) -> None:
    from hidet.onnx.runner import OnnxRunner

    runner = OnnxRunner(model.path())
    given = [model.inputs(size, seed) for seed, size in enumerate(model.sizes)]
    results = [runner(arrays) for arrays in given]
    assert len(runner.compiled) == model.programs, f"{model.name} was compiled {len(runner.compiled)} times"
    assert all(compiled.report().nodes.eager == 0 for compiled in runner.compiled)
    if model.module is None:
        _compare_with_onnxruntime(model, given, results)
        return
    module = model.module()
    for arrays, ours in zip(given, results, strict=True):
        inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        with torch.no_grad():
            eager = _flat(module(**inputs))
        reference = _flat(run_reference(module, inputs))
        for number, (mine, theirs, exact) in enumerate(zip(ours, eager, reference, strict=True)):
            verdict = check_output(f"output {number}", [Sample(mine, theirs.numpy(), exact.numpy())])
            assert verdict.correct, str(verdict)


def _compare_with_onnxruntime(model: OnnxModel, given: list[Arrays], results: list[list[np.ndarray]]) -> None:
    """For a file without another reference: both compute in float32, so that they differ in rounding alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(model.path()))
    for arrays, ours in zip(given, results, strict=True):
        for mine, theirs in zip(ours, session.run(None, dict(arrays)), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def _flat(result: torch.Tensor | tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)
