"""What the benchmarks compute from what they measure."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

# The benchmarks are scripts at the root of the repository, not part of a wheel.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fma_peak import peak_flops
from benchmarks.models import OneOutput, model_flops
from benchmarks.operators import OPERATORS
from benchmarks.results import Row, geometric_means, to_json
from hidet.cli.timing import Latency, measure_alternately


def _row(model: str = "m", peak_around: float = 1e9, **milliseconds: float) -> Row:
    latencies = {system: Latency(value / 1e3, value / 1e3, 3) for system, value in milliseconds.items()}
    return Row(model, "", 1, 1_000_000, latencies, {}, {}, peak=1e9, peak_around=peak_around)


BENCHMARKS = sorted((Path(__file__).resolve().parents[1] / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=[path.stem for path in BENCHMARKS])
def test_every_benchmark_finds_what_it_imports(path: Path) -> None:
    import_module(f"benchmarks.{path.stem}")


def test_declared_operations_are_those_that_torch_counts() -> None:
    checked = 0
    for case in OPERATORS.values():
        if case.group not in ("linear", "matmul", "conv", "depthwise") or case.flops > 1e9:
            continue
        module, inputs = case.build()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(*inputs)
        assert counter.get_total_flops() == case.flops, case.name
        checked += 1
    assert checked > 30


def test_attention_on_the_cpu_is_counted() -> None:
    class Attention(torch.nn.Module):
        def forward(self, query: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(query, query, query)

    assert model_flops(Attention(), {"query": torch.randn(2, 3, 5, 8)}) == 2 * 3 * 2 * (5 * 5 * 8) * 2


def test_one_output_is_taken_by_name() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return torch.return_types.max((x, x + 1))

    assert OneOutput(Inner(), "indices")(x=torch.zeros(1)) == 1


def test_the_ratio_is_to_the_best_peer() -> None:
    assert _row(eager=4.0, inductor=2.0, hidet=1.0).ratio == 0.5
    assert _row(eager=4.0).ratio is None
    assert _row(hidet=4.0).ratio is None


def test_part_of_peak_is_operations_over_time_over_peak() -> None:
    assert _row(eager=4.0).part_of_peak("eager") == pytest.approx(0.25)


def test_a_busy_machine_is_noticed() -> None:
    assert not _row(eager=1.0).disturbed
    assert _row(peak_around=0.5e9, eager=1.0).disturbed
    slow_median = Row("m", "", 1, 1, {"eager": Latency(median=2.0, fastest=1.0, calls=3)}, {}, {}, 1e9, 1e9)
    assert slow_median.disturbed


def test_a_geometric_mean_needs_every_row() -> None:
    rows = [_row("a", eager=1.0, hidet=1.0), _row("b", eager=4.0)]
    assert geometric_means(rows, ("eager", "hidet")) == {"eager": pytest.approx(2e-3)}
    result = to_json({"date": "today"}, rows, [], ("eager", "hidet"))
    assert result["geometric_means"]["1"] == {"eager": pytest.approx(2e-3)}
    assert result["rows"][0]["ratio_to_best_peer"] == 1.0


def test_functions_take_turns_and_each_comes_first_in_some() -> None:
    order: list[str] = []
    runs: dict[str, Callable[[], object]] = {name: partial(order.append, name) for name in ("a", "b")}
    latencies = measure_alternately(runs, seconds=0.0, rounds=2, pause=0.0)
    assert order == ["a"] * 4 + ["b"] * 8 + ["a"] * 4
    assert latencies["a"].calls == 6


def test_the_peak_loop_computes_at_a_rate_that_vectors_alone_reach() -> None:
    assert peak_flops(1, seconds=0.005) > 1e9


@pytest.mark.thorough
def test_the_hand_overs_of_a_compilation_are_timed() -> None:
    """The benchmark calls them one by one, and so by the arguments that they have today."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--models", "gpt2", "--repeat", "1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "verify to host, a node" in done.stdout


@pytest.mark.thorough
def test_profiles_of_a_model_are_summed_and_its_page_is_written(tmp_path: Path) -> None:
    """How near the sum is to a call is a question for an idle machine."""
    command = [sys.executable, "-m", "benchmarks.profiles", "--models", "gpt2", "--seconds", "0.1"]
    done = subprocess.run(
        [*command, "--pages", str(tmp_path)], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert "gpt2" in done.stdout, done.stderr[-2000:]
    assert "data-graph" in (tmp_path / "gpt2.html").read_text()
