"""Which calls become CUDA graphs, and what of a captured call is copied. Graphs are lists of recorded work here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hidet.torch import compat
from hidet.torch.replay import MAX_INSTANCES, Replays

CPU = torch.device("cpu")


class Recorded:
    """A graph: what ran while it was captured, to be run again on the same tensors."""

    current: Recorded | None = None

    def __init__(self) -> None:
        self.work: list[Any] = []

    def replay(self) -> None:
        for step in self.work:
            step()


@pytest.fixture(autouse=True)
def _device_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def capture(graph: Recorded, **options: object) -> Iterator[None]:
        Recorded.current = graph
        yield
        Recorded.current = None

    @contextmanager
    def nothing(device: torch.device) -> Iterator[None]:
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorded)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "device", nothing)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(compat, "current_stream", lambda device: 0)


class Model:
    """y = x * w, and counter += 1; counts how often it ran outside of graphs."""

    def __init__(self) -> None:
        self.weight, self.counter = torch.full((4,), 3.0), torch.zeros(1)
        self.runs = 0
        self.replays = Replays(self.run, CPU, [1], [2], lambda tensor: tensor._version)

    def run(self, inputs: list[Any]) -> list[Any]:
        x, w, counter = inputs
        result = torch.empty(4)

        def work() -> None:
            torch.mul(x, w, out=result)
            counter.add_(1)

        if Recorded.current is None:
            self.runs += 1
            work()
        else:
            Recorded.current.work.append(work)
        return [result]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.replays([x, self.weight, self.counter])[0]


def test_the_first_call_runs_and_later_ones_are_replayed() -> None:
    model = Model()
    results = [model(torch.full((4,), float(n))) for n in range(5)]
    assert model.runs == 1
    assert [result[0].item() for result in results] == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert model.counter.item() == 5


def test_an_updated_parameter_is_captured_anew() -> None:
    model = Model()
    for _ in range(3):
        model(torch.ones(4))
    with torch.no_grad():
        model.weight.add_(1)
    assert [model(torch.ones(4))[0].item() for _ in range(3)] == [4.0, 4.0, 4.0]
    assert model.runs == 2


def test_graphs_that_are_kept_are_bounded() -> None:
    model = Model()
    for n in range(3 * MAX_INSTANCES):
        model.counter = torch.zeros(1)
        model(torch.ones(4))
        assert len(model.replays._instances) <= MAX_INSTANCES, n


def test_results_that_share_memory_are_not_captured() -> None:
    memory = torch.zeros(8)
    ran: list[int] = []

    def run(inputs: list[Any]) -> list[Any]:
        ran.append(1)
        return [memory[:4], memory[4:]]

    replays = Replays(run, CPU, [], [], lambda tensor: 0)
    for _ in range(3):
        first, _ = replays([torch.ones(1)])
    assert first.data_ptr() == memory.data_ptr()


def replayed(*inputs: torch.Tensor) -> tuple[list[torch.Tensor], int]:
    """Results of x * 2 for tensors of one layout, and how many of them were not replayed."""
    ran: list[int] = []

    def run(given: list[Any]) -> list[Any]:
        (x,) = given
        result = torch.empty(x.shape)

        def work() -> None:
            torch.mul(x, 2, out=result)

        if Recorded.current is None:
            ran.append(1)
            work()
        else:
            Recorded.current.work.append(work)
        return [result]

    replays = Replays(run, CPU, [], [], lambda tensor: 0)
    return [replays([x])[0] for x in inputs], len(ran)


def test_repeated_inputs_are_copied_without_their_repetitions() -> None:
    inputs = [torch.arange(3.0).add(n)[:, None].expand(3, 4) for n in range(4)]
    results, runs = replayed(*inputs)
    assert all(torch.equal(result, x * 2) for result, x in zip(results, inputs, strict=True))
    assert runs == 1


def test_inputs_whose_elements_share_memory_are_not_captured() -> None:
    inputs = [torch.arange(6.0).add(n).unfold(0, 3, 1) for n in range(3)]
    results, runs = replayed(*inputs)
    assert all(torch.equal(result, x * 2) for result, x in zip(results, inputs, strict=True))
    assert runs == 3
