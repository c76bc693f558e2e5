"""The check itself: it accepts eager, and refuses a backend that gets one small thing wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import fx, nn

from hidet.runtime.compiled import CompileReport
from hidet.runtime.program import NodeCounts as ReportedCounts
from hidet.testing.numerics import Verdict

from .check import ModelReport, check_module, main
from .compile_reports import NodeCounts, sum_counts
from .entry import Inputs, ZooModel, seeded
from .initialise import calibrate_batch_norms, randomise_constant_parameters
from .reference import run_reference
from .zoo import MODELS


class _Small(nn.Module):
    """A convolution, a batch norm and a head with an integer output."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        logits = self.head(features.float().to(x.dtype))
        return {"logits": logits, "best": logits.argmax(-1)}


def _inputs(seed: int) -> Inputs:
    return {"x": torch.randn(4, 3, 9, 7, generator=seeded(seed))}


def _build() -> nn.Module:
    torch.manual_seed(3)
    model = _Small().eval()
    randomise_constant_parameters(model, seeded(3))
    calibrate_batch_norms(model, lambda module: module(**_inputs(3)), seeded(4))
    return model


_ENTRY = ZooModel(name="small", build=_build, inputs=_inputs)


def _wrong_by(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A backend whose first output went through `change`."""

    def backend(graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        def run(*arguments: torch.Tensor) -> Any:
            first, *rest = graph(*arguments)
            return (change(first), *rest)

        return run

    return backend


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eager_is_correct_by_its_own_measure(dtype: torch.dtype) -> None:
    report = check_module(_ENTRY, dtype, "eager")
    assert report.correct, str(report)
    assert [verdict.name for verdict in report.verdicts] == ["['logits']", "['best']"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda x: x * (1 + 1e-5), "rms error"),
        (lambda x: x + torch.tensor([0, 0, 1e-4, 0, 0]), "largest error"),
        (lambda x: x.double(), "dtype is float64"),
        (lambda x: x.flip(0), "rms error"),
        (lambda x: x.where(x < x.max(), torch.inf), "NaN or inf"),
    ],
    ids=["slightly scaled", "one column off", "wider dtype", "rows swapped", "an inf"],
)
def test_a_wrong_result_is_refused(change: Callable[[torch.Tensor], torch.Tensor], complaint: str) -> None:
    report = check_module(_ENTRY, torch.float32, _wrong_by(change))
    assert not report.correct
    assert complaint in str(report)


def test_the_reference_is_float64_throughout() -> None:
    model = _build()
    result = run_reference(model, _inputs(0))
    assert result["logits"].dtype == torch.float64
    wide = model.double()
    x = _inputs(0)["x"].double()
    with torch.no_grad():
        features = torch.relu(wide.norm(wide.convolution(x))).mean((2, 3))  # type: ignore[operator]
        assert torch.equal(result["logits"], wide.head(features))  # type: ignore[operator]


def test_initialisation_leaves_no_constant_parameter() -> None:
    for name, parameter in _build().named_parameters():
        assert parameter.std() > 0, name


def test_batch_norm_statistics_are_neither_fresh_nor_the_batchs_own() -> None:
    model = _build()
    norm, convolution = model.norm, model.convolution
    assert isinstance(norm, nn.BatchNorm2d) and isinstance(convolution, nn.Conv2d)
    with torch.no_grad():
        features = convolution(_inputs(3)["x"])
    assert norm.running_mean is not None and norm.running_var is not None
    own_mean, own_variance = features.mean((0, 2, 3)), features.var((0, 2, 3))
    assert not torch.allclose(norm.running_mean, own_mean, rtol=1e-3)
    assert bool((norm.running_var / own_variance - 1).abs().max() < 0.3)
    assert not norm.training


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        (NodeCounts(scheduled=3, fallback_nest=2, routine=1), None),
        (NodeCounts(scheduled=3, eager=2), "2 eager nodes"),
        (NodeCounts(scheduled=3, host=1), "1 host nodes"),
        (NodeCounts(scheduled=3, fallback_nest=1, anchors_on_nest=("softmax",)), "on the fallback nest: softmax"),
        (NodeCounts(), "no scheduled node at all"),
    ],
)
def test_node_counts_complain_about_what_must_not_be(counts: NodeCounts, complaint: str | None) -> None:
    assert counts.complaint == complaint


def test_only_anchors_on_the_fallback_nest_are_named() -> None:
    names = (("fallback", "layer_norm_with_statistics"), ("fallback", "cumsum"), ("routine", "topk"), ("eager", "conv"))
    nodes = ReportedCounts(scheduled=4, fallback=2, routine=1, eager=1, names=names)
    counts = sum_counts([CompileReport(nodes=nodes, kernels=1), CompileReport(nodes=nodes, kernels=1)])
    assert counts.anchors_on_nest == ("layer_norm_with_statistics",)
    assert (counts.scheduled, counts.fallback_nest, counts.routine, counts.eager) == (8, 4, 2, 2)
    assert "fallback: cumsum x2" in str(counts)


@pytest.mark.parametrize(("device", "correct"), [("cpu", True), ("cuda", False), ("cuda:1", False)])
def test_nothing_runs_on_the_fallback_nest_of_a_gpu(device: str, correct: bool) -> None:
    counts = NodeCounts(scheduled=3, fallback_nest=2)
    report = ModelReport("small", "float32", "hidet", device, (Verdict("output", "f32", correct=True),), counts)
    assert report.correct == correct
    assert correct or report.complaint == "2 nodes on the fallback nest"


def test_a_report_without_a_result_is_not_correct() -> None:
    report = ModelReport("small", "float32", "hidet", failure="RuntimeError: out of memory")
    assert not report.correct
    assert str(report) == "small float32 by hidet on cpu: FAILED: RuntimeError: out of memory"


@pytest.mark.parametrize(
    ("name", "dtype"), [(entry.name, dtype) for entry in MODELS.values() for dtype in entry.breaks_in]
)
def test_what_is_not_compiled_whole_cannot_be_by_any_backend(name: str, dtype: torch.dtype) -> None:
    entry = replace(MODELS[name], breaks_in=frozenset())
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        check_module(entry, dtype, "eager")


@pytest.mark.slow
def test_models_are_checked_in_processes_of_their_own_and_written_to_a_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["--models", "gpt2", "--backend", "eager", "--jobs", "2", "--json", str(tmp_path / "zoo.json")]
    )
    assert result.exit_code == 0, result.output
    assert "1 of 1 right by eager on cpu" in result.output
    rows = json.loads((tmp_path / "zoo.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["name"], row["correct"]) for row in rows] == [("gpt2", True)]
