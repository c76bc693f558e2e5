"""What the GPU benchmark computes from what it measures; the measurements themselves need a GPU."""

from __future__ import annotations

import gc
import json
import math
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from torch import nn

# The benchmarks are scripts at the root of the repository, not part of a wheel.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import ahead, first_call, gpu_first_call, gpu_models, llama_layers
from benchmarks.gpu_dynamic import SWEEPS, DynamicRow, print_rows
from benchmarks.gpu_layers import kernel_times, own_times
from benchmarks.gpu_operators import GPU_OPERATORS
from benchmarks.gpu_products import ProductName
from benchmarks.gpu_quantized import DEFAULT_LAYERS, LayerName
from benchmarks.gpu_results import GpuRow, cells, merge_runs, print_losses, rows_from_json, rows_to_json, unmeasured
from benchmarks.gpu_rows import DEFAULT_ROWS, GPU_MODELS, TUNED_ROWS, RowName
from benchmarks.gpu_systems import GPU_SYSTEMS
from benchmarks.results import live_to_frozen
from benchmarks.tile_ladder import StepRow, steps
from benchmarks.tile_ladder import cells as ladder_cells
from benchmarks.time_limit import TimeLimitExceeded, time_limit
from hidet.cli.timing import Latency
from hidet.cuda.testing.schedules import rules_of, run_text
from hidet.lang import f16
from hidet.runtime.compiled import CompileReport, ProgramUse
from hidet.runtime.program import NodeCounts as ReportedCounts
from hidet.testing.numerics import Verdict
from tests.models.compile_reports import NodeCounts, sum_counts, sum_phases


def _row(**milliseconds: float) -> GpuRow:
    latencies = {
        system.replace("_", "-"): Latency(value / 1e3, value / 1e3, 3) for system, value in milliseconds.items()
    }
    return GpuRow(
        "m:1:f16", latencies, {"hidet": 2.5}, {"hidet": Verdict("output", "float16", correct=False)}, kernels=7
    )


def test_every_default_row_names_a_model_and_prints_as_it_was_written() -> None:
    assert [str(RowName.parse(text)) for text in DEFAULT_ROWS] == list(DEFAULT_ROWS)
    assert {RowName.parse(text).model for text in (*DEFAULT_ROWS, *TUNED_ROWS)} <= set(GPU_MODELS)


@pytest.mark.parametrize("text", ["resnet50", "resnet50:1", "resnet51:1:f16", "resnet50:one:f16", "resnet50:1:f64"])
def test_a_wrong_row_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="is no row: write model:batch:dtype with a model of resnet18"):
        RowName.parse(text)


def test_frozen_weights_are_no_peer_and_have_a_ratio_of_their_own() -> None:
    rows = [_row(inductor=4.0, hidet_frozen=1.0, hidet=2.0), _row(hidet_frozen=1.0, hidet=8.0), _row(hidet=1.0)]
    assert rows[0].ratio == 0.5
    assert live_to_frozen([row.latencies for row in rows]) == pytest.approx(4.0)
    assert live_to_frozen([rows[2].latencies]) is None


def test_the_ratio_is_to_the_best_peer() -> None:
    assert _row(eager_graph=4.0, inductor=2.0, hidet=1.0).ratio == 0.5
    assert _row(hidet=1.0).ratio is None and _row(eager=1.0).ratio is None
    assert rows_to_json({}, [_row(eager=2.0, hidet=1.0)])["rows"][0]["ratio_to_best_peer"] == 0.5


def test_rows_whose_best_peer_is_faster_are_listed_with_the_largest_loss_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [_row(eager=4.0, inductor=2.0, hidet=ours, hidet_frozen=0.1) for ours in (2.2, 1.0, 4.0)]
    print_losses(Console(width=120), [*rows, _row(hidet=1.0)])
    assert capsys.readouterr().out.splitlines() == [
        "3 rows, 1.032 of the best peer in geometric mean, 2 slower than it",
        "2.000 m:1:f16: 4.000 ms, inductor 2.000",
        "1.100 m:1:f16: 2.200 ms, inductor 2.000",
    ]


def test_a_wrong_result_and_a_missing_system_show_in_the_table() -> None:
    row = _row(eager=2.0, hidet=1.0)
    assert cells(row, ["eager", "inductor", "hidet"]) == [
        *("m:1:f16", "2.000", "-", "1.000", "0.50", "2.5", "-", "7", "0", "0", "NO")
    ]
    assert row.counts == NodeCounts()


def test_rows_come_back_from_json_as_they_were() -> None:
    reports = [CompileReport(ReportedCounts(scheduled=3), kernels=2, seconds={"graph": 0.5, "build": 1.0})] * 2
    row = replace(_row(eager=2.0, hidet=1.0), counts=sum_counts(reports), seconds=sum_phases(reports))
    assert row.seconds == {"graph": 1.0, "build": 2.0}
    assert rows_from_json(json.loads(json.dumps(rows_to_json({}, [row])))) == [row]


def _run(*rows: GpuRow, gpu: str = "H100") -> dict[str, Any]:
    return rows_to_json({"device": {"gpu": gpu}}, rows)


def test_a_row_of_several_runs_is_that_of_the_last_one_that_measured_it() -> None:
    first, second = replace(_row(hidet=1.0), name="first"), replace(_row(hidet=2.0), name="second")
    again = replace(_row(hidet=3.0), name="first")
    runs = {"a": _run(first, unmeasured("second", ["hidet"])), "b": _run(again, second)}
    assert merge_runs(runs) == [again, second]
    assert merge_runs({"b": runs["b"], "a": runs["a"]}) == [first, second]


def test_a_row_that_no_run_measured_is_named_with_the_reason() -> None:
    (row,) = merge_runs({"a": _run(unmeasured("m:1:f16", ["eager", "hidet"]))})
    assert row.reasons == dict.fromkeys(["eager", "hidet"], "the run ended before this was measured")


def test_what_is_merged_can_be_written_as_one_run_of_the_newest_date(tmp_path: Path) -> None:
    for day in (1, 2):
        data = _run(replace(_row(hidet=float(day)), name=f"m{day}:1:f16")) | {"date": f"2026-01-0{day}"}
        (tmp_path / f"{day}.json").write_text(json.dumps(data))
    files, written = f"{tmp_path}/2.json,{tmp_path}/1.json", tmp_path / "both.json"
    result = CliRunner().invoke(gpu_models.main, ["--merge", files, "--json", str(written)])
    assert result.exit_code == 0, result.output
    both = json.loads(written.read_text())
    assert both["date"] == "2026-01-02" and [row.name for row in rows_from_json(both)] == ["m2:1:f16", "m1:1:f16"]


def test_runs_on_different_devices_are_not_merged() -> None:
    runs = {"a": _run(_row(hidet=1.0)), "b": _run(_row(hidet=1.0), gpu="H200")}
    with pytest.raises(ValueError, match=r"different devices .* b: H200"):
        merge_runs(runs)


def test_what_takes_too_long_is_stopped() -> None:
    with pytest.raises(TimeLimitExceeded, match=r"not ready after 0\.05 s"), time_limit(0.05):
        try:
            time.sleep(10)
        except Exception:  # noqa: BLE001 - what a compiler under the limit does
            pytest.fail("the limit was caught")
    with time_limit(0.01):
        pass
    time.sleep(0.02)


@pytest.mark.parametrize("text", ["128x768x3072:NT:f16", "12x128x64x128:NN:f64"])
def test_a_product_prints_as_it_was_written(text: str) -> None:
    assert str(ProductName.parse(text)) == text


def test_products_of_a_batch_have_a_leading_axis() -> None:
    assert ProductName.parse("12x128x64x32:NT:f16").shapes == ((12, 128, 32), (12, 64, 32))
    assert ProductName.parse("128x64x32:TN:f16").shapes == ((32, 128), (32, 64))


@pytest.mark.parametrize("text", ["128x768:NT:f16", "1x2x3x4x5:NT:f16", "1x2x3:TM:f16", "1x2x3:NN:i8", "1x2x3:NN"])
def test_a_wrong_product_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write mxnxk|the order is one of"):
        ProductName.parse(text)


def test_kernels_are_summed_by_name_and_belong_to_programs() -> None:
    use = ProgramUse("matmul_0a1b", "cuda.matmul", ("matmul(f16[8, 8], f16[8, 8])",))
    launches = [("matmul_0a1b_tile", 3e-6), ("Memcpy DtoD", 1e-6), ("matmul_0a1b_tile", 5e-6), ("Memcpy DtoD", 1e-6)]
    matmul, copy = kernel_times(launches, [use], calls=2)
    assert (matmul.name, matmul.launches, matmul.use) == ("matmul_0a1b_tile", 1.0, use)
    assert matmul.seconds == pytest.approx(4e-6)
    assert copy.use is None and copy.seconds == pytest.approx(1e-6)


def test_what_a_kernel_waits_for_is_not_its_own_time() -> None:
    spans = [("b", 2.0, 5.0), ("a", 0.0, 3.0), ("c", 7.0, 8.0), ("d", 7.5, 7.75)]
    assert own_times(spans) == [("a", 3.0), ("b", 2.0), ("c", 1.0), ("d", 0.0)]


def test_systems_hold_ours_and_the_reference() -> None:
    assert {"eager", "hidet", "inductor", "inductor-max-autotune", "eager-graph"} <= set(GPU_SYSTEMS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_peer_keeps_what_its_graph_reads() -> None:
    model = nn.Conv2d(64, 64, 3, padding=1).cuda().half().eval()
    inputs = {"input": torch.randn(8, 64, 56, 56, device="cuda", dtype=torch.float16)}
    with torch.no_grad():
        run = GPU_SYSTEMS["eager-graph-channels-last"](model, inputs, True)
        expected = model(**inputs)
        gc.collect()
        # Memory that nobody holds goes back to the driver, and is written over.
        torch.cuda.empty_cache()
        written_over = torch.full((64 << 20,), float("nan"), device="cuda")
        assert torch.allclose(run(), expected, atol=1e-2, rtol=1e-2)
    assert written_over.isnan().all()


def test_a_step_with_a_cache_is_the_last_row_of_the_whole_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder is right about positions and the cache: one layer's keys and values come from the prompt itself."""
    for name, value in {"WIDTH": 64, "HEADS": 4, "GROUPS": 2, "HIDDEN": 96, "VOCABULARY": 50, "HEAD_WIDTH": 16}.items():
        monkeypatch.setattr(llama_layers, name, value)
    model = llama_layers.build_llama(layers=1)
    whole = llama_layers.llama_inputs(2, length=5, past=0)
    layer = model.layers[0]
    with torch.no_grad():
        expected = model(**whole)
        hidden = layer.attention_norm(model.embedding(whole["tokens"]))
        heads = [rows.view(2, 5, 2, 16).transpose(1, 2) for rows in (layer.key(hidden), layer.value(hidden))]
        keys = llama_layers._rotated(heads[0], whole["cosine"], whole["sine"])
        step = {
            "tokens": whole["tokens"][:, 4:],
            "cosine": whole["cosine"][4:],
            "sine": whole["sine"][4:],
            "keys": keys[:, :, :4],
            "values": heads[1][:, :, :4],
        }
        torch.testing.assert_close(model(**step), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GPU_OPERATORS)
def test_every_measured_operator_takes_its_input(name: str) -> None:
    case = GPU_OPERATORS[name]
    with torch.device("meta"):
        result = case.build()(torch.empty(case.shape))
    assert result.numel() > 0


def test_a_first_call_is_measured_again_with_the_caches_of_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str], str, float]] = []
    caches: list[str] = []

    def run(module: str, arguments: list[str], folder: str, limit: float, cache: str) -> dict[str, object]:
        asked.append((module, arguments, folder, limit))
        caches.append(cache)
        return {
            "total": 5.0,
            "ours": {"build": 0.5, "compile": 1.0},
            "programs": 7,
            "modules": 9,
            "cached_modules": 9 * (len(asked) - 1),
        }

    monkeypatch.setattr(first_call, "run_measured", run)
    calls = gpu_first_call.measure_first_calls("m:1:f16", 60.0)
    assert len(set(map(repr, asked))) == 1 and asked[0][:2] == ("benchmarks.gpu_first_call", ["m:1:f16", "hidet"])
    assert caches == ["empty", "warm", "precompiled", "precompiled"], "the first writes what the second finds"
    assert [(call.cache, call.cached_modules) for call in calls] == [("empty", 0), ("warm", 9), ("precompiled", 27)]
    console = Console(record=True, width=160)
    gpu_first_call.print_first_calls(console, calls)
    (line,) = (line for line in console.export_text().splitlines() if "empty" in line)
    assert "1.50" in line and "build 0.50, compile 1.00" in line


def test_rows_are_compiled_ahead_by_processes_that_measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[tuple[str, ...], str | None]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append((tuple(command[1:]), env.get("TORCHINDUCTOR_CACHE_DIR")))
        return subprocess.CompletedProcess(command, 1 if "b:1:f16" in command else 0, "", "first\nlast words\n")

    monkeypatch.setattr(subprocess, "run", run)
    console = Console(record=True, width=200)
    systems = ("inductor", "inductor-max-autotune", "hidet")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    commands = [command for model in "ab" for command in gpu_models._compiling(RowName(model, 1, "f16"), systems, "x")]
    ahead.run_ahead(console, commands, 2, 60.0)
    assert {(arguments[2], arguments[-1], cache) for arguments, cache in started} == {
        ("a:1:f16", "inductor", None),
        ("a:1:f16", "inductor-max-autotune", str(Path("x", "a-1-f16"))),
        ("b:1:f16", "inductor", None),
        ("b:1:f16", "inductor-max-autotune", str(Path("x", "b-1-f16"))),
    }, "what max-autotune chooses beside others is not what is measured"
    assert all(arguments[3:6] == ("--seconds", "0", "--no-check") for arguments, _ in started)
    lines = console.export_text().splitlines()
    assert len(lines) == 2 and all("b:1:f16" in line and line.rstrip().endswith("last words") for line in lines)


def test_first_calls_of_other_backends_say_nothing_of_ours() -> None:
    calls = [gpu_first_call.GpuFirstCall("m:1:f16", "inductor", "warm", 2.25, {}, 0, 0, 0)]
    console = Console(record=True, width=120)
    gpu_first_call.print_first_calls(console, calls)
    (line,) = (line for line in console.export_text().splitlines() if "warm" in line)
    assert "inductor" in line and "2.25" in line and "0.00" not in line


def test_the_ladder_of_kernels_in_tiles_is_that_of_its_page() -> None:
    page = (Path(__file__).parents[1] / "docs" / "tile-kernels.md").read_text()
    rungs = [line.split()[1].rstrip(".") for line in page.splitlines() if line.startswith("## ") and line[3].isdigit()]
    assert sorted({step.name.split()[0] for step in steps()}) == rungs
    for step in steps():
        assert step.make(f16).ir_module("cuda:sm_90a").entry == "launch"


def test_a_step_of_the_ladder_that_a_device_lacks_has_its_reason() -> None:
    row = StepRow("4 and TMA", 2e-3, 1e-3, 50.0, 100.0, 2e-4, 1e-4)
    assert ladder_cells(row) == ("4 and TMA", "2000.0", "50", "1000.0", "100", "0.50", "2.0e-04, 1.0e-04")
    assert ladder_cells(replace(row, reason="needs wgmma"))[1:3] == ("-", "-")


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_draws_the_same_sizes_every_time(name: str) -> None:
    sweep = SWEEPS[name]
    assert sweep.model in GPU_MODELS
    assert sweep.sizes(20) == sweep.sizes(20)
    assert sweep.sizes(20)[: len(sweep.first)] == list(sweep.first)


@pytest.mark.parametrize("name", SWEEPS)
def test_sizes_of_a_sweep_differ_on_its_symbolic_axes_alone(name: str) -> None:
    sweep = SWEEPS[name]
    small, large = map(sweep.make, sorted(sweep.sizes(20), key=math.prod)[:2])
    for key, value in small.items():
        pairs = zip(value.shape, large[key].shape, strict=True)
        differing = {axis for axis, (one, other) in enumerate(pairs) if one != other}
        assert differing <= set(sweep.axes.get(key, ()))


def test_a_symbolic_build_is_beside_the_one_for_the_size() -> None:
    console = Console(record=True, width=140)
    first = DynamicRow("bert", (2, 7), 2e-3, 1e-3, 1e-3, 1, peer=4e-3, kernels=(3e-4, 2e-4))
    print_rows(console, [first, DynamicRow("bert", (5, 77), 1e-3, 2e-3, 0.5, 1)])
    text = console.export_text()
    assert "2x7" in text and "WRONG" in text
    assert "bert: geometric mean 1.000, worst 2.00 of 2 sizes" in text
    assert "kernels of bert: geometric mean 1.500, worst 1.50 of 1 sizes" in text
    assert "bert beside Inductor: geometric mean 0.500, worst 0.50 of 1 sizes" in text


def test_layers_with_quantised_weights_print_as_they_were_written_and_have_the_kernel_that_is_measured() -> None:
    assert [str(LayerName.parse(text)) for text in DEFAULT_LAYERS] == list(DEFAULT_LAYERS)
    for text in DEFAULT_LAYERS[::5]:
        graph = LayerName.parse(text).text(layers=2).replace("@cuda:0", "")
        assert rules_of(graph, "sm_90a") == ["cuda.packed_product"] * 2


@pytest.mark.parametrize("text", ["1x64x64:u4:32", "1x64:u4:32:f16", "1x64x64:u3:32:f16", "1x64x64:u4:48:f16"])
def test_a_wrong_layer_is_refused_with_what_it_should_be(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        LayerName.parse(text)


@pytest.mark.parametrize("text", ["2x24x256:u4:32:f16", "2x24x256:i8:256:f16"])
def test_the_weight_that_torch_dequantises_is_that_of_the_graph(text: str) -> None:
    name = LayerName.parse(text)
    torch.manual_seed(0)
    bits = 2 if name.codes == "u4" else 1
    codes = torch.randint(0, 120, (name.n, name.blocks, name.group // bits))
    codes = codes.to(torch.uint8 if name.codes == "u4" else torch.int8)
    x, scales = torch.randn(name.m, name.k).half(), torch.rand(name.n, name.blocks).half() / 16
    given = {"x": x.numpy(), "p0": codes.numpy(), "s0": scales.numpy()}
    (found,) = run_text(name.text().replace("@cuda:0", ""), given, "sm_90a")
    right = x.double() @ name.weight(codes, scales, torch.float64).T
    torch.testing.assert_close(torch.from_numpy(found).double(), right, rtol=1e-2, atol=2e-2)
