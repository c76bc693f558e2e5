"""torch's caching precompile: what one process compiled, the next one calls without tracing a function."""

from __future__ import annotations

import copy
import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hidet.torch.compat_precompile import GraphArtifact

SCRIPT = """
import contextlib, json, os, sys
import torch
import hidet.torch
from torch._dynamo.utils import counters

asked = json.loads(sys.argv[1])
torch.manual_seed(0)
layers = [torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU()]
model = torch.nn.Sequential(*layers).eval()
x = torch.randn(4, 8)
if asked.get("prints"):
    hidet.torch.dynamo_config.print_input_graph(True)
context = contextlib.nullcontext() if asked.get("gradients") else torch.no_grad()
with context, hidet.torch.collect_reports() as reports:
    compiled = torch.compile(model, backend=asked.get("backend", "hidet"), options=asked.get("options"))
    torch.testing.assert_close(compiled(x), model(x))
    if asked.get("gradients"):
        expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), list(model.parameters())), expected)
    if asked.get("changes"):
        model[0].weight.data.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))
parts = hidet.compiler.graphs.compiled_parts(compiled) if asked.get("parts") else ()
torch.compiler.save_cache_artifacts()
print(json.dumps({
    "traced": counters["frames"].get("total", 0),
    "kept": [report.is_kept for report in reports],
    "read": counters["dynamo_cache"],
    "parts": len(parts),
}))
"""


def run(folder: Path, asked: Mapping[str, Any], **environment: str) -> dict[str, Any]:
    """What a process says that finds the caches of `folder`."""
    named = {
        "TORCH_CACHING_PRECOMPILE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
        "HIDET_CACHE_DIR": str(folder / "hidet"),
        "HIDET_PLUGINS": "hidet.cpu._plugin,hidet.torch._plugin",
        **environment,
    }
    command = [sys.executable, "-c", SCRIPT, json.dumps(asked)]
    done = subprocess.run(command, env={**os.environ, **named}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The caches that a first process has left."""
    folder = tmp_path_factory.mktemp("caches")
    first = run(folder, {})
    assert (first["traced"], first["kept"]) == (1, [False])
    return folder


@pytest.fixture
def caches(written: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of them."""
    shutil.copytree(written, tmp_path / "copy")
    yield tmp_path / "copy"


def test_a_process_traces_nothing_of_what_the_one_before_compiled(caches: Path) -> None:
    found = run(caches, {"changes": True, "parts": True})
    assert found["traced"] == 0
    assert found["kept"] == [True]
    assert found["parts"] == 1, "the model knows its graphs, which can be tuned"


def test_a_graph_that_left_the_kernel_cache_is_compiled_from_its_text(caches: Path) -> None:
    shutil.rmtree(caches / "hidet")
    found = run(caches, {})
    assert (found["traced"], found["kept"]) == (0, [False])


@pytest.mark.parametrize(
    "asked",
    [{"options": {"strict": True}}, {"prints": True}, {"backend": "eager"}],
    ids=["an option", "printed graphs", "another backend"],
)
@pytest.mark.thorough(every=3)
def test_what_was_compiled_in_another_way_is_compiled_anew(caches: Path, asked: Mapping[str, Any]) -> None:
    found = run(caches, asked)
    assert found["traced"] == 1
    assert found["read"] == {"dynamo_cache_error": 1}


@pytest.mark.thorough
def test_what_other_wheels_compiled_is_compiled_anew(caches: Path) -> None:
    found = run(caches, {}, HIDET_PLUGINS="hidet.cpu._plugin,hidet.torch._plugin,hidet.onnx._plugin")
    assert (found["traced"], found["kept"]) == (1, [False])


def test_what_torch_keeps_of_a_graph_holds_no_compiled_one() -> None:
    def run() -> None:
        return None

    held = weakref.ref(run)
    kept = copy.deepcopy(GraphArtifact("__compiled_fn_0", "{}", run))
    del run
    gc.collect()
    assert held() is None
    assert kept.content == "{}"


@pytest.mark.thorough
def test_a_model_that_records_gradients_is_traced_in_each_process(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(tmp_path, {"gradients": True})["traced"]
