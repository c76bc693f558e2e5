"""A step of a decoder writes the new rows of its KV cache and not a byte besides.

The caches lie in pages that the operating system lets nobody write, but for those of the new rows: one write elsewhere
ends the process. Rows fill a page each, so nothing hides in a page that must be writable.
"""

import subprocess
import sys
import textwrap

import pytest

COMMON = """
import ctypes, mmap
import numpy as np

PAGE = mmap.PAGESIZE
WIDTH = PAGE // 4
HEADS, LENGTH = 2, 8

def guarded_cache(count=1):
    memory = mmap.mmap(-1, count * HEADS * LENGTH * PAGE)
    cache = np.frombuffer(memory, np.float32).reshape(count, HEADS, LENGTH, WIDTH)
    cache[:] = np.random.default_rng(0).standard_normal(cache.shape)
    return cache

def protect(cache, row):
    libc = ctypes.CDLL(None, use_errno=True)
    for index in np.ndindex(cache.shape[:-1]):
        allowed = mmap.PROT_READ | (mmap.PROT_WRITE if index[-1] == row else 0)
        address = cache[index].ctypes.data
        assert libc.mprotect(ctypes.c_void_p(address), PAGE, allowed) == 0
"""

GRAPH = """
from hidet.context import make_context
from hidet.compiler.graphs import compile_graph
from hidet.graph.parser import parse_graph

TEXT = f'''
graph step(%q: f32[1, 2, 1, {WIDTH}], %row: f32[1, 2, 1, {WIDTH}], %at: i64[1], %cache: f32[1, 2, 8, {WIDTH}]):
  %0: f32[1, 2, 8, {WIDTH}] = UPDATE
  %1: f32[1, 2, 1, {WIDTH}] = attention(%q, %0, %0)
  return %1, %0
  mutates 3 <- 1
'''
ctx = make_context("cpu", {"cache": False})
compiled = compile_graph(parse_graph(TEXT, ctx.registry.operators), ctx)
cache = guarded_cache()
before = cache.copy()
generator = np.random.default_rng(1)
q, row = (generator.standard_normal((1, 2, 1, WIDTH)).astype(np.float32) for _ in range(2))
protect(cache, 3)
result = compiled(q, row, np.array([3]), cache)
before[:, :, 3:4] = row
np.testing.assert_array_equal(cache, before)
scores = (q @ before.swapaxes(-1, -2)) / np.sqrt(WIDTH)
weights = np.exp(scores - scores.max(-1, keepdims=True))
np.testing.assert_allclose(result, weights / weights.sum(-1, keepdims=True) @ before, rtol=1e-4, atol=1e-5)
"""

TORCH = """
import torch
import hidet.torch

class Step(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.projections = torch.nn.ModuleList(torch.nn.Linear(16, HEADS * WIDTH) for _ in range(3))

    def forward(self, x, at, *caches):
        keys, values = SPLIT
        q, k, v = (p(x).view(1, 1, HEADS, WIDTH).transpose(1, 2) for p in self.projections)
        UPDATE
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values)

torch.manual_seed(0)
model = Step().eval()
x, at = torch.randn(1, 1, 16), torch.tensor([3])
arrays = ARRAYS
caches = [torch.from_numpy(array) for array in arrays]
with torch.no_grad():
    expected_caches = [cache.clone() for cache in caches]
    expected = model(x, at, *expected_caches)
    compiled = torch.compile(model, backend="hidet", fullgraph=True, options={"strict": True})
    compiled(x, at, *[cache.clone() for cache in caches])
    for array in arrays:
        protect(array, 3)
    result = compiled(x, at, *caches)
torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
for ours, theirs in zip(caches, expected_caches):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
"""


def run(script):
    """Run Python text in a process of its own; -11 would be a write outside the new rows."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-2000:]}"


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
@pytest.mark.parametrize(
    "update",
    [
        "index_put(%cache, %row, none, none, %at)",
        "slice_scatter(%cache, %row, starts=[None, None, 3, None], stops=[None, None, 4, None])",
    ],
    ids=["at a position given as a tensor", "at a fixed position"],
)
def test_a_compiled_graph_writes_only_the_new_rows(update):
    run(COMMON + GRAPH.replace("UPDATE", update))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
@pytest.mark.parametrize(
    "update",
    ["keys.index_copy_(2, at, k); values.index_copy_(2, at, v)", "keys[:, :, 3:4] = k; values[:, :, 3:4] = v"],
    ids=["index_copy_", "slices"],
)
@pytest.mark.parametrize(
    ("arrays", "split"),
    [("[guarded_cache(), guarded_cache()]", "caches"), ("[guarded_cache(2)]", "(caches[0][0:1], caches[0][1:2])")],
    ids=["two tensors", "one tensor"],
)
@pytest.mark.thorough(every=4)
def test_a_torch_module_writes_only_the_new_rows(update, arrays, split):
    pytest.importorskip("torch")
    run(COMMON + TORCH.replace("UPDATE", update).replace("SPLIT", split).replace("ARRAYS", arrays))


def test_the_guard_catches_a_write_elsewhere():
    script = COMMON + "cache = guarded_cache()\nprotect(cache, 3)\ncache[0, 0, 4, 0] = 1\n"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode == -11
