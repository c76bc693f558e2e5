"""Positions outside of an axis raise IndexError, as in eager mode, and touch no memory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hidet
from hidet.errors import PositionError

X = torch.arange(12.0).reshape(4, 3)

CASES: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], Any]] = {
    "embedding": (lambda x, i: nn.functional.embedding(i, x), [0, 3]),
    "index_select": (lambda x, i: x.index_select(0, i), [0, 3]),
    "gather": (lambda x, i: x.gather(0, i), [[0, 1, 3]]),
    "index": (lambda x, i: x[i], [0, 3]),
    "index of the second axis": (lambda x, i: x.t()[:, i], [0, 3]),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), [[0, 1, 3]]),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, torch.ones(1, 3)), [[0, 1, 3]]),
    "index_put": (lambda x, i: x.index_put((i,), torch.ones(3)), [0, 3]),
    "index_copy": (lambda x, i: x.index_copy(0, i, torch.ones(2, 3)), [0, 3]),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(2, 3)), [0, 3]),
    "take": (lambda x, i: x.take(i), [0, 11]),
    "max_unpool": (lambda x, i: nn.functional.max_unpool1d(x[:1, :2].reshape(1, 1, 2), i.reshape(1, 1, 2), 2), [0, 3]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), [0, 3]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_position_beyond_the_axis_is_an_index_error(name: str) -> None:
    function, right = CASES[name]
    compiled = torch.compile(function, backend="hidet", fullgraph=True)
    index = torch.tensor(right)
    torch.testing.assert_close(compiled(X, index), function(X, index))
    for wrong in (12, 10**12, -13, -(10**12)):
        bad = index.clone()
        bad.view(-1)[-1] = wrong
        # Eager mode raises IndexError or RuntimeError.
        with pytest.raises((IndexError, RuntimeError)):
            function(X, bad)
        with pytest.raises(IndexError, match="has position"):
            compiled(X, bad)
    torch.testing.assert_close(compiled(X, index), function(X, index))


@pytest.mark.parametrize("name", ["embedding", "gather", "index_select", "index"])
def test_negative_positions_are_those_of_torch(name: str) -> None:
    function, right = CASES[name]
    compiled = torch.compile(function, backend="hidet")
    index = torch.tensor(right).fill_(-1)
    try:
        expected = function(X, index)
    except (IndexError, RuntimeError):
        with pytest.raises(IndexError, match="position -1, expected 0 to 3"):
            compiled(X, index)
    else:
        torch.testing.assert_close(compiled(X, index), expected)


def test_the_message_names_the_place() -> None:
    compiled = torch.compile(CASES["embedding"][0], backend="hidet")
    with pytest.raises(PositionError, match=r"test_positions\.py") as caught:
        compiled(X, torch.tensor([4]))
    assert "operator embedding: input index has position 4, expected 0 to 3" in str(caught.value)


def test_a_failed_update_in_place_leaves_the_tensor_alone() -> None:
    def update(cache: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, index, torch.ones(2, 3))
        return cache.sum()

    compiled = torch.compile(update, backend="hidet")
    cache = X.clone()
    assert compiled(cache, torch.tensor([0, 1])) == cache.sum()
    before = cache.clone()
    with pytest.raises(IndexError):
        compiled(cache, torch.tensor([2, 4]))
    assert torch.equal(cache, before)


def test_the_axis_may_have_any_length_at_run_time() -> None:
    compiled = torch.compile(CASES["embedding"][0], backend="hidet", dynamic=True)
    for rows in (5, 8, 3):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x, torch.tensor([rows - 1, 0])), x[[rows - 1, 0]])
        with pytest.raises(IndexError, match=f"position {rows}, expected 0 to {rows - 1}"):
            compiled(x, torch.tensor([rows, 0]))


def test_a_wrong_class_label_is_found() -> None:
    compiled = torch.compile(nn.functional.cross_entropy, backend="hidet")
    x = torch.randn(4, 3)
    labels = torch.tensor([0, 1, 2, 1])
    torch.testing.assert_close(compiled(x, labels), nn.functional.cross_entropy(x, labels))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 1, 3, 1]))


def test_a_saved_graph_checks_too(tmp_path: Path) -> None:
    model = nn.Embedding(4, 3).eval()
    hidet.compile(model, (torch.tensor([0, 1]),)).save(tmp_path / "table.hidet")
    loaded = hidet.load(tmp_path / "table.hidet")
    torch.testing.assert_close(torch.as_tensor(loaded(torch.tensor([3, 1]))), model.weight[[3, 1]].detach())
    with pytest.raises(IndexError, match="position 4, expected 0 to 3"):
        loaded(torch.tensor([4, 1]))


ON_A_GPU = """
import sys
import torch
import hidet.torch

table = torch.randn(10, 4, device="cuda")
read = torch.compile(lambda index: torch.nn.functional.embedding(index, table), backend="hidet", mode=sys.argv[2])
right = torch.tensor([0, 9, 3], device="cuda")
for _ in range(4):
    torch.testing.assert_close(read(right), table[right])
try:
    read(torch.tensor([0, int(sys.argv[1]), 3], device="cuda")).sum().item()
except Exception as error:
    print("raised", type(error).__name__, str(error).splitlines()[0])
try:
    read(right)
except Exception as error:
    print("then", type(error).__name__)
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("position", "mode"), [(10, "default"), (-1, "reduce-overhead")])
def test_a_wrong_position_stops_a_gpu_with_the_operators_name(position: int, mode: str, tmp_path: Path) -> None:
    script = tmp_path / "reader.py"
    script.write_text(ON_A_GPU)
    command = [sys.executable, str(script), str(position), mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    output = done.stdout + done.stderr
    # The launch of what reads there may find the device stopped already; else waiting for the result does.
    assert re.search(r"^raised (AcceleratorError|DeviceLost) .*device-side assert triggered", done.stdout, re.M), output
    assert "operator embedding: input index at" in output and "reader.py:" in output
    assert "has a position outside of its axis, expected" in output
    assert "then" in done.stdout
